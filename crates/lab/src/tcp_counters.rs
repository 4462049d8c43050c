//! The kernel's own TCP counters of a node (`/proc/net/snmp`, RFC 4022, and `/proc/net/netstat`).

use midspan_linux::namespace::NetworkNamespace;

use crate::LabError;

/// Counters since the node's network namespace was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpCounters {
    /// Connections that the node opened (`ActiveOpens`).
    pub connections_opened: u64,
    /// Segments sent, without retransmissions (`OutSegs`).
    pub segments_sent: u64,
    /// Segments retransmitted (`RetransSegs`).
    pub segments_retransmitted: u64,
    /// Expired retransmission timers (`TCPTimeouts`).
    pub timeouts: u64,
}

impl TcpCounters {
    /// Reads the counters of `node`.
    pub fn read(node: &NetworkNamespace) -> Result<Self, LabError> {
        let read = |path: &'static str| {
            node.run(move || std::fs::read_to_string(path))?
                .map_err(|source| LabError::File {
                    path: path.into(),
                    source,
                })
        };
        let mut counters = Self::default();
        counters.take(&read("/proc/thread-self/net/snmp")?, "Tcp:");
        counters.take(&read("/proc/thread-self/net/netstat")?, "TcpExt:");
        Ok(counters)
    }

    /// Adds the counters of `protocol` in `text`, which has a line of names and a line of values
    /// for each protocol.
    fn take(&mut self, text: &str, protocol: &str) {
        let mut lines = text.lines().filter(|line| line.starts_with(protocol));
        let names = lines.next().unwrap_or_default().split_whitespace();
        let values = lines.next().unwrap_or_default().split_whitespace();
        for (name, value) in names.zip(values) {
            let value = value.parse().unwrap_or(0);
            match name {
                "ActiveOpens" => self.connections_opened = value,
                "OutSegs" => self.segments_sent = value,
                "RetransSegs" => self.segments_retransmitted = value,
                "TCPTimeouts" => self.timeouts = value,
                _ => {}
            }
        }
    }

    /// The difference from the `earlier` counters.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            connections_opened: self
                .connections_opened
                .saturating_sub(earlier.connections_opened),
            segments_sent: self.segments_sent.saturating_sub(earlier.segments_sent),
            segments_retransmitted: self
                .segments_retransmitted
                .saturating_sub(earlier.segments_retransmitted),
            timeouts: self.timeouts.saturating_sub(earlier.timeouts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_format_is_read() {
        let text = "Ip: Forwarding\nIp: 1\n\
                    Tcp: RtoAlgorithm ActiveOpens InSegs OutSegs RetransSegs InErrs\n\
                    Tcp: 1 4 10 20 3 0\n";
        let mut counters = TcpCounters::default();
        counters.take(text, "Tcp:");
        counters.take(
            "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 7\n",
            "TcpExt:",
        );
        assert_eq!(counters.connections_opened, 4);
        assert_eq!(counters.segments_sent, 20);
        assert_eq!(counters.segments_retransmitted, 3);
        assert_eq!(counters.timeouts, 7);
        let mut none = TcpCounters::default();
        none.take("garbage", "Tcp:");
        assert_eq!(none, TcpCounters::default());
    }
}
