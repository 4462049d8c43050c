//! `PEPsal`, for comparison. It is not a package of Debian, so the lab leaves it out if it is not
//! installed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::nftables;
use midspan_testbed::program::{Launch, Program as Running};

use crate::LabError;
use crate::error::at;
use crate::programs::Program;
use crate::workload::wait_until_ready;

/// `PEPsal`'s port if none is given.
const PORT: u16 = 5000;
/// The mark of intercepted packets and the routing table, as in `PEPsal`'s README.
const MARK: &str = "1";
const TABLE: &str = "100";

/// A running `PEPsal` with the rules that take connections to it.
pub struct Pepsal<'a> {
    // Dropped in this order: the rules end after the program.
    _program: Running,
    _rules: Rules<'a>,
}

/// Starts `PEPsal` on `node` for the connections that arrive at `interfaces`, with its default
/// options; returns when it listens.
///
/// Its congestion control and initial window come from the node's routes.
pub fn start<'a>(
    node: &'a NetworkNamespace,
    interfaces: &[String],
    folder: &Path,
) -> Result<Pepsal<'a>, LabError> {
    let launch = Launch::new(Program::Pepsal.find()?)
        .folder(folder)
        .log_file("pepsal.log")
        .without_output()
        .inside(node)
        .grace(Duration::from_secs(1));
    let mut program = launch.start()?;
    // A connection to the port itself would make PEPsal connect to itself again and again.
    let listens = || {
        fs::read_to_string("/proc/thread-self/net/tcp6")
            .is_ok_and(|text| is_listened_on(&text, PORT))
    };
    let address = format!("port {PORT}");
    wait_until_ready(node, &address, "pepsal", &mut program, listens).map_err(with_known_cause)?;
    let rules = Rules::set(node, interfaces, folder)?;
    Ok(Pepsal {
        _program: program,
        _rules: rules,
    })
}

/// `PEPsal` prints nothing by default.
fn with_known_cause(error: LabError) -> LabError {
    match error {
        LabError::Program { program, reason } => LabError::Program {
            program,
            reason: format!(
                "{reason}\n(PEPsal ends if it may not set the limit of open files to 1,048,576: see \
                 docs/lab.md#pepsal. It also needs IPv6.)"
            ),
        },
        error => error,
    }
}

/// Whether a list of TCP sockets (`/proc/net/tcp6`, proc(5)) has a listening one at this port.
fn is_listened_on(list: &str, port: u16) -> bool {
    const LISTENING: &str = "0A";
    let port = format!(":{port:04X}");
    list.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&port) && fields.nth(1) == Some(LISTENING)
    })
}

/// The nftables table, routing rules and routes that take connections to `PEPsal`. They end when this
/// is dropped, because the next run in the same network may have another proxy.
struct Rules<'a> {
    node: &'a NetworkNamespace,
}

impl<'a> Rules<'a> {
    fn set(
        node: &'a NetworkNamespace,
        interfaces: &[String],
        folder: &Path,
    ) -> Result<Self, LabError> {
        // In the folder of the log, for a reader who repeats the run by hand.
        let table = table(interfaces);
        let file = folder.join("pepsal.nft");
        fs::write(&file, &table).map_err(at(&file))?;
        // From here on, the rules are removed again also after an error.
        let rules = Self { node };
        node.run(move || nftables::apply(&table))?
            .map_err(|error| failed(error.to_string()))?;
        for family in ["-4", "-6"] {
            let rule = [family, "rule", "add", "fwmark", MARK, "lookup", TABLE];
            node.run(move || ip(&rule))??;
            let route = [
                family, "route", "add", "local", "default", "dev", "lo", "table", TABLE,
            ];
            node.run(move || ip(&route))??;
        }
        Ok(rules)
    }
}

impl Drop for Rules<'_> {
    fn drop(&mut self) {
        // What was not set cannot be removed. The namespaces of the lab end with it.
        let _ = self.node.run(|| {
            let _ = nftables::apply("table inet pepsal\ndelete table inet pepsal\n");
            for family in ["-4", "-6"] {
                let _ = ip(&[family, "rule", "del", "fwmark", MARK, "lookup", TABLE]);
                let _ = ip(&[family, "route", "flush", "table", TABLE]);
            }
        });
    }
}

/// The table of nftables, after `PEPsal`'s README. Packets of other interfaces, and all packets if
/// `PEPsal` does not listen, pass.
fn table(interfaces: &[String]) -> String {
    let interfaces: Vec<String> = interfaces
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    let interfaces = interfaces.join(", ");
    format!(
        "table inet pepsal {{\n\
         \x20   chain prerouting {{\n\
         \x20       type filter hook prerouting priority mangle; policy accept;\n\
         \x20       iifname {{ {interfaces} }} meta nfproto ipv4 meta l4proto tcp \
         tproxy ip to 127.0.0.1:{PORT} meta mark set {MARK} accept\n\
         \x20       iifname {{ {interfaces} }} meta nfproto ipv6 meta l4proto tcp \
         tproxy ip6 to [::1]:{PORT} meta mark set {MARK} accept\n\
         \x20   }}\n\
         }}\n"
    )
}

/// Runs `ip` in the network namespace of this thread.
fn ip(arguments: &[&str]) -> Result<(), LabError> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| failed(format!("cannot run ip: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(format!("ip {}: {complaint}", arguments.join(" "))))
}

fn failed(reason: String) -> LabError {
    LabError::Program {
        program: "pepsal".into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listening_socket_at_the_port_is_one() {
        let list = "  sl  local_address                         remote_address  st tx_queue\n   \
                    0: 00000000000000000000000000000000:1388 00000000000000000000000000000000:0000 0A 0\n   \
                    1: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:9C40 01 0\n";
        assert!(is_listened_on(list, 5000));
        assert!(!is_listened_on(list, 8080));
        assert!(!is_listened_on("", 5000));
    }
}
