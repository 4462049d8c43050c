//! What this process and this user may use: descriptors, memory in pipes.

use rustix::process::{Resource, getrlimit};

use super::sysctls::number;
use super::{Context, Finding};

/// A session has two sockets, and two pipes while it has data in them.
const DESCRIPTORS_PER_SESSION: u64 = 6;
/// Fewer sessions than this at a time are worth a word.
const FEW_SESSIONS: u64 = 1_000;

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = vec![descriptors()];
    findings.extend(pipes(context));
    findings
}

fn descriptors() -> Finding {
    const CHECK: &str = "limit of descriptors";
    // The helper raises the soft limit to the hard one.
    let Some(limit) = getrlimit(Resource::Nofile).maximum else {
        return Finding::ok(CHECK, "none");
    };
    let sessions = limit / DESCRIPTORS_PER_SESSION;
    let found = format!("{limit}: about {sessions} busy sessions at a time");
    match sessions < FEW_SESSIONS {
        true => Finding::warning(
            CHECK,
            found,
            "LimitNOFILE=1048576 in the service, or: ulimit -Hn 1048576",
        ),
        false => Finding::ok(CHECK, found),
    }
}

fn pipes(context: &Context<'_>) -> Vec<Finding> {
    let relay = &context.configuration.relay;
    let (memory, size) = (relay.pipe_memory.bytes(), relay.pipe_size.bytes());
    if memory == 0 {
        return vec![Finding::ok("pipes", "none are used")];
    }
    let mut findings = Vec::new();
    let page = rustix::param::page_size() as u64;
    if let Some(pages) = number("fs.pipe-user-pages-soft") {
        let limit = pages.saturating_mul(page);
        let found = format!(
            "{} MiB for pipe_memory = \"{}\"",
            limit >> 20,
            relay.pipe_memory
        );
        let check = "sysctl fs.pipe-user-pages-soft";
        findings.push(match pages != 0 && limit < memory {
            true => Finding::warning(
                check,
                format!("{found}: beyond it, data is copied"),
                format!(
                    "sysctl -w fs.pipe-user-pages-soft={}",
                    memory.div_ceil(page)
                ),
            ),
            false => Finding::ok(check, found),
        });
    }
    if let Some(largest) = number("fs.pipe-max-size") {
        let check = "sysctl fs.pipe-max-size";
        let found = format!("{largest} bytes for pipe_size = \"{}\"", relay.pipe_size);
        findings.push(match largest < size {
            true => Finding::warning(
                check,
                format!("{found}: pipes of this size cannot be had, data is copied"),
                format!("sysctl -w fs.pipe-max-size={size}"),
            ),
            false => Finding::ok(check, found),
        });
    }
    findings
}
