//! The addresses of this machine from which server legs connect.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Addresses of this machine from which server legs connect, in turn. Each has local ports of its own
/// towards a server, so several addresses carry more sessions and more new connections per second.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceAddresses(pub Vec<IpAddr>);

impl SourceAddresses {
    /// The addresses for a connection to this server, the one whose turn it is first. Without an
    /// address of the server's IP version there is one entry, `None`: the kernel chooses.
    pub fn in_turn(
        &self,
        server: SocketAddr,
        turn: usize,
    ) -> impl Iterator<Item = Option<SocketAddr>> + use<'_> {
        let fitting = move |address: &&IpAddr| address.is_ipv4() == server.is_ipv4();
        let count = self.0.iter().filter(fitting).count();
        let own = self.0.iter().filter(fitting).cycle();
        let own = own.skip(turn.checked_rem(count).unwrap_or(0)).take(count);
        // The kernel chooses the port when the socket connects.
        let own = own.map(|address| Some(SocketAddr::new(*address, 0)));
        own.chain((count == 0).then_some(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_turn(addresses: &[&str], server: &str, turn: usize) -> Vec<String> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        SourceAddresses(addresses.collect())
            .in_turn(server.parse().unwrap(), turn)
            .map(|address| address.map_or("any".to_owned(), |address| address.ip().to_string()))
            .collect()
    }

    #[test]
    fn each_address_of_the_server_s_ip_version_has_its_turn() {
        let addresses = ["192.0.2.1", "2001:db8::1", "192.0.2.2"];
        for (turn, expected) in [
            (0, ["192.0.2.1", "192.0.2.2"]),
            (1, ["192.0.2.2", "192.0.2.1"]),
            (2, ["192.0.2.1", "192.0.2.2"]),
            (usize::MAX, ["192.0.2.2", "192.0.2.1"]),
        ] {
            assert_eq!(in_turn(&addresses, "198.51.100.1:80", turn), expected);
        }
        assert_eq!(in_turn(&addresses, "[2001:db8::9]:80", 1), ["2001:db8::1"]);
    }

    #[test]
    fn the_kernel_chooses_where_no_address_fits() {
        assert_eq!(in_turn(&[], "198.51.100.1:80", 3), ["any"]);
        assert_eq!(in_turn(&["192.0.2.1"], "[2001:db8::9]:80", 3), ["any"]);
    }
}
