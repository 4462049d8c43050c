//! What the kernel counts for all connections together.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Counters of TCP beyond RFC 4022, of the process's network namespace.
const COUNTERS: &str = "/proc/self/net/netstat";

/// Longest text that is read.
const LIMIT: usize = 64 << 10;

/// The file with the kernel's counters, open: the relay opens no file once it runs.
#[derive(Debug)]
pub(crate) struct HostCounters(File);

impl HostCounters {
    /// Opens the file; to be called before the relay gives its rights up.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn open() -> io::Result<Self> {
        File::open(COUNTERS).map(Self)
    }

    /// Tail loss probes of the network namespace; `None` where they cannot be read.
    pub fn tail_loss_probes(&self) -> Option<u64> {
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        // Each text is made when its first byte is read, so it is read from its beginning.
        while text.len() < LIMIT {
            let count = self.0.read_at(&mut piece, text.len() as u64).ok()?;
            match piece.get(..count) {
                Some([]) | None => break,
                Some(bytes) => text.extend_from_slice(bytes),
            }
        }
        find(&String::from_utf8_lossy(&text), "TCPLossProbes")
    }
}

/// Finds a value of TCP's: a line has the names, the next one their values.
pub(crate) fn find(text: &str, name: &str) -> Option<u64> {
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
        let counters = HostCounters::open().unwrap();
        assert!(counters.tail_loss_probes().is_some());
        let now = std::fs::read_to_string(COUNTERS).unwrap();
        assert!(counters.tail_loss_probes() >= find(&now, "TCPLossProbes"));
    }
}
