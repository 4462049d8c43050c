//! What the kernel counts for all connections together.

use std::fs;

/// Counters of TCP beyond RFC 4022, of the process's network namespace.
const COUNTERS: &str = "/proc/self/net/netstat";

/// Tail loss probes of the network namespace; `None` where they cannot be read.
pub(super) fn tail_loss_probes() -> Option<u64> {
    find(&fs::read_to_string(COUNTERS).ok()?, "TCPLossProbes")
}

/// Finds a value of TCP's: a line has the names, the next one their values.
fn find(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let names = lines.next()?.split_whitespace();
    let mut values = names.zip(lines.next()?.split_whitespace());
    let (_, value) = values.find(|(other, _)| *other == name)?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_name() {
        let text = "TcpExt: A TCPLossProbes B\nTcpExt: 1 22 3\nIpExt: TCPLossProbes\nIpExt: 4\n";
        assert_eq!(find(text, "TCPLossProbes"), Some(22));
        assert_eq!(find(text, "B"), Some(3));
        for nothing in [
            "",
            "TcpExt: A",
            "TcpExt: A\nTcpExt: x",
            "IpExt: A\nIpExt: 1",
        ] {
            assert_eq!(find(nothing, "A"), None);
        }
    }

    #[test]
    fn this_kernel_counts_them() {
        assert!(tail_loss_probes().is_some());
    }
}
