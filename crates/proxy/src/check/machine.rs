//! Kernel version, privileges, programs.

use std::env;

use midspan_linux::capability::{self, Capability};
use midspan_linux::nftables;

use super::{Context, Finding};

/// The oldest kernel that Midspan is tried on.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = vec![version()];
    findings.extend(privileges(context));
    if context.configuration.has_clients_addresses() {
        findings.push(program());
    }
    findings
}

fn version() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let (major, minor) = OLDEST_KERNEL;
    match parse(&release) {
        Some(version) if version >= OLDEST_KERNEL => Finding::ok("kernel", release),
        _ => Finding::warning(
            "kernel",
            format!("{release}; Midspan is tried on {major}.{minor} and newer"),
            format!("a kernel from {major}.{minor}"),
        ),
    }
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What the configuration needs, apart from what single options of legs need.
fn privileges(context: &Context<'_>) -> Vec<Finding> {
    let configuration = context.configuration;
    let mut needs: Vec<(Capability, &str)> = Vec::new();
    let windows = configuration
        .legs()
        .any(|(_, _, leg)| leg.initial_window.is_some());
    if configuration.has_clients_addresses() {
        needs.push((Capability::CAP_NET_ADMIN, "rules, routes, marks"));
        let raw = match context.is_transparent {
            true => "sending held SYNs on",
            false => "rules for the addresses of clients",
        };
        needs.push((Capability::CAP_NET_RAW, raw));
    } else if windows {
        needs.push((Capability::CAP_NET_ADMIN, "routes for initial windows"));
    }
    let first_free = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024);
    let is_privileged = |port: u16| port < first_free && port != 0;
    let addresses = configuration.listeners.iter().filter_map(|l| l.listen());
    if addresses.map(|listen| listen.port()).any(is_privileged) {
        needs.push((Capability::CAP_NET_BIND_SERVICE, "ports below 1024"));
    }
    let all: Vec<String> = needs
        .iter()
        .map(|(capability, _)| capability.to_string().to_lowercase())
        .collect();
    let program =
        env::current_exe().map_or_else(|_| "midspan".to_owned(), |path| path.display().to_string());
    let mend = format!("run as root, or: setcap {}+ep {program}", all.join(","));
    if needs.is_empty() {
        return vec![Finding::ok("privileges", "none are needed")];
    }
    needs
        .into_iter()
        .map(|(capability, use_)| {
            let check = format!("privilege {capability}");
            match capability::is_held(capability) {
                Ok(true) => Finding::ok(check, format!("held, for {use_}")),
                Ok(false) => Finding::missing(check, format!("not held; needed for {use_}"), &mend),
                Err(error) => Finding::warning(check, error.to_string(), &mend),
            }
        })
        .collect()
}

fn program() -> Finding {
    match nftables::version() {
        Ok(version) => Finding::ok("program nft", version),
        Err(error) => Finding::missing("program nft", error.to_string(), "apt install nftables"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart() {
        assert_eq!(parse("6.18.5-fc-v17"), Some((6, 18)));
        assert_eq!(parse("6.1"), Some((6, 1)));
        assert_eq!(parse("x"), None);
        assert!(parse("5.15.0").is_some_and(|version| version < OLDEST_KERNEL));
    }
}
