//! Access rules, without I/O: which clients may use a listener, and which servers they may reach.
//!
//! An IPv4 address inside an IPv6 address is treated as the IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use midspan_policy::Network;
use serde::{Deserialize, Serialize};

/// The port on which mail servers accept mail from each other (RFC 5321 §4.5.4.2). A proxy that
/// permits this port can be abused to send unwanted mail from its operator's address.
const MAIL: u16 = 25;

/// One line of `access`. An empty part applies to all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// Whether the line allows or denies.
    pub allow: bool,
    /// Clients; empty for all.
    pub from: Vec<Network>,
    /// Servers; empty for all.
    pub to: Vec<Network>,
    /// First and last port of the server; empty for all.
    pub ports: Vec<(u16, u16)>,
}

impl AccessRule {
    fn matches(&self, client: IpAddr, server: SocketAddr) -> bool {
        self.matches_port(client, server.port()) && is_within(&self.to, server.ip())
    }

    /// Whether the rule matches this client and port with some server.
    fn matches_port(&self, client: IpAddr, port: u16) -> bool {
        let has_port = self.ports.is_empty()
            || (self.ports.iter()).any(|(first, last)| (*first..=*last).contains(&port));
        has_port && is_within(&self.from, client)
    }
}

/// Whether a list, of which an empty one stands for all, has this address.
fn is_within(networks: &[Network], address: IpAddr) -> bool {
    networks.is_empty() || networks.iter().any(|network| network.contains(address))
}

/// Which clients may use a listener, and which servers they may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRules {
    /// Clients that may use the listener; empty for all.
    pub clients: Vec<Network>,
    /// The first matching rule decides; without a matching rule, the connection is allowed.
    pub rules: Vec<AccessRule>,
    /// Whether some destinations are denied unless a rule allows them: addresses of this machine, loopback
    /// and link-local addresses, and the metadata addresses of clouds, unless a rule with a list of servers
    /// allows them; port 25, unless a rule with this port allows it.
    pub protects_own: bool,
    /// Where the nodes of the overlay accept hops. These destinations are denied as well: a node is recognized by
    /// its address, so the node there would take a client of this machine for this machine.
    #[serde(default)]
    pub hops: Vec<SocketAddr>,
}

impl AccessRules {
    /// Whether this client may use the listener at all.
    #[must_use]
    pub fn admits(&self, client: IpAddr) -> bool {
        let mut clients = self.clients.iter();
        self.clients.is_empty() || clients.any(|network| network.contains(client))
    }

    /// Whether this client may connect to this server. `is_own` returns whether an address belongs
    /// to this machine.
    #[must_use]
    pub fn allows(
        &self,
        client: IpAddr,
        server: SocketAddr,
        is_own: impl FnOnce(IpAddr) -> bool,
    ) -> bool {
        let found = self.rules.iter().find(|rule| rule.matches(client, server));
        let names_port = found.is_some_and(|rule| !rule.ports.is_empty());
        let is_mail = self.protects_own && server.port() == MAIL && !names_port;
        match found {
            _ if is_mail => false,
            Some(rule) if !rule.allow => false,
            Some(rule) if !rule.to.is_empty() => true,
            _ => {
                let address = server.ip().to_canonical();
                let is_protected = is_special(address) || is_own(address) || self.is_hop(server);
                !(self.protects_own && is_protected)
            }
        }
    }

    /// Whether a node of the overlay accepts hops there.
    fn is_hop(&self, server: SocketAddr) -> bool {
        let same = |hop: &SocketAddr| {
            hop.port() == server.port() && hop.ip().to_canonical() == server.ip().to_canonical()
        };
        self.hops.iter().any(same)
    }

    /// Whether this client may connect to this port of a server whose name another node looks up. Only
    /// the rules for all servers decide. The node that has the address applies its own rules.
    #[must_use]
    pub fn allows_name(&self, client: IpAddr, port: u16) -> bool {
        let mut rules = self.rules.iter();
        let found = rules.find(|rule| rule.to.is_empty() && rule.matches_port(client, port));
        let names_port = found.is_some_and(|rule| !rule.ports.is_empty());
        let is_mail = self.protects_own && port == MAIL && !names_port;
        !is_mail && found.is_none_or(|rule| rule.allow)
    }
}

/// Addresses at which clouds give credentials to their machines, in addition to link-local
/// addresses (169.254.0.0/16): Azure, Alibaba; AWS and Oracle over IPv6, Google over IPv6.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Whether an address does not belong to a host that is reachable from everywhere.
fn is_special(address: IpAddr) -> bool {
    let is_special = match address {
        // 0.0.0.0/8: Linux treats 0.0.0.0 as this machine.
        IpAddr::V4(four) => {
            four.is_link_local() || four.octets()[0] == 0 || four == Ipv4Addr::BROADCAST
        }
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    is_special
        || METADATA.contains(&address)
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        let (address, length) = text.split_once('/').unwrap();
        Network {
            address: address.parse().unwrap(),
            length: length.parse().unwrap(),
        }
    }

    fn allows(rules: &AccessRules, client: &str, server: &str) -> bool {
        let own: IpAddr = "192.0.2.1".parse().unwrap();
        let is_own = |address: IpAddr| address == own;
        rules.allows(client.parse().unwrap(), server.parse().unwrap(), is_own)
    }

    #[test]
    fn own_addresses_are_out_of_reach_unless_named() {
        let mut rules = AccessRules {
            protects_own: true,
            ..AccessRules::default()
        };
        let own = [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "0.0.0.0:1",
            "0.1.2.3:1",
            "169.254.169.254:80",
            "168.63.129.16:80",
            "100.100.100.200:80",
            "[::ffff:168.63.129.16]:80",
            "[fd00:ec2::254]:80",
            "[fd20:ce::254]:80",
            "192.0.2.1:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "[::1]:1",
            "[::]:1",
            "[fe80::1]:1",
            "[ff02::1]:1",
            "[::ffff:127.0.0.1]:1",
            "[::ffff:192.0.2.1]:1",
        ];
        for server in own {
            assert!(!allows(&rules, "198.51.100.1", server), "{server}");
        }
        assert!(allows(&rules, "198.51.100.1", "192.0.2.2:1"));
        // A rule for all servers does not allow the protected ones.
        let mut all = AccessRule {
            allow: true,
            from: Vec::new(),
            to: Vec::new(),
            ports: Vec::new(),
        };
        rules.rules.push(all.clone());
        assert!(!allows(&rules, "198.51.100.1", "127.0.0.1:1"));
        all.to = vec![network("127.0.0.0/8")];
        rules.rules.insert(0, all);
        assert!(allows(&rules, "198.51.100.1", "127.0.0.1:1"));
        assert!(!allows(&rules, "198.51.100.1", "192.0.2.1:1"));
    }

    #[test]
    fn mail_is_carried_only_where_a_rule_names_its_port() {
        let rule = |to: &[&str], ports: &[(u16, u16)]| AccessRule {
            allow: true,
            from: Vec::new(),
            to: to.iter().map(|text| network(text)).collect(),
            ports: ports.to_vec(),
        };
        let with = |rules: Vec<AccessRule>, protects_own| AccessRules {
            rules,
            protects_own,
            ..AccessRules::default()
        };
        let reaches = |rules: &AccessRules, port: u16| {
            allows(rules, "198.51.100.1", &format!("203.0.113.1:{port}"))
        };
        let by_default = with(Vec::new(), true);
        assert!(!reaches(&by_default, 25) && reaches(&by_default, 587));
        let all = with(vec![rule(&[], &[])], true);
        assert!(!reaches(&all, 25) && reaches(&all, 26));
        let server = with(vec![rule(&["203.0.113.0/24"], &[])], true);
        assert!(!reaches(&server, 25));
        let port = with(vec![rule(&[], &[(1, 1024)])], true);
        assert!(reaches(&port, 25));
        // A forward listener has one server, which the operator has chosen.
        assert!(reaches(&with(Vec::new(), false), 25));
    }

    #[test]
    fn only_rules_for_all_servers_decide_about_a_name() {
        let rule = |allow, to: &[&str], ports: &[(u16, u16)]| AccessRule {
            allow,
            from: Vec::new(),
            to: to.iter().map(|text| network(text)).collect(),
            ports: ports.to_vec(),
        };
        let allows = |rules: Vec<AccessRule>, port| {
            let rules = AccessRules {
                rules,
                protects_own: true,
                ..AccessRules::default()
            };
            rules.allows_name("198.51.100.1".parse().unwrap(), port)
        };
        assert!(allows(Vec::new(), 443) && !allows(Vec::new(), 25));
        let web = || {
            vec![
                rule(true, &[], &[(80, 80), (443, 443)]),
                rule(false, &[], &[]),
            ]
        };
        assert!(allows(web(), 443) && !allows(web(), 22));
        // It is not known whether the name has such an address.
        let site = vec![rule(true, &["10.0.0.0/8"], &[]), rule(false, &[], &[])];
        assert!(!allows(site, 443));
        assert!(allows(vec![rule(false, &["10.0.0.0/8"], &[])], 443));
        assert!(allows(vec![rule(true, &[], &[(25, 25)])], 25));
        let mut other = rule(false, &[], &[]);
        other.from = vec![network("192.0.2.0/24")];
        assert!(allows(vec![other], 443));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = AccessRules {
            clients: vec![network("198.51.100.0/24")],
            rules: vec![
                AccessRule {
                    allow: true,
                    from: vec![network("198.51.100.7/32")],
                    to: vec![network("10.0.0.0/8")],
                    ports: vec![(80, 80), (8000, 8100)],
                },
                AccessRule {
                    allow: false,
                    from: Vec::new(),
                    to: vec![network("10.0.0.0/8")],
                    ports: Vec::new(),
                },
            ],
            protects_own: true,
            ..AccessRules::default()
        };
        assert!(allows(&rules, "198.51.100.7", "10.1.1.1:80"));
        assert!(allows(&rules, "198.51.100.7", "10.1.1.1:8100"));
        assert!(!allows(&rules, "198.51.100.7", "10.1.1.1:8101"));
        assert!(!allows(&rules, "198.51.100.8", "10.1.1.1:80"));
        assert!(!allows(&rules, "198.51.100.7", "[::ffff:10.1.1.1]:22"));
        assert!(allows(&rules, "198.51.100.8", "203.0.113.1:22"));
        assert!(rules.admits("198.51.100.8".parse().unwrap()));
        assert!(!rules.admits("203.0.113.1".parse().unwrap()));
        assert!(AccessRules::default().admits("203.0.113.1".parse().unwrap()));
    }

    #[test]
    fn hop_listeners_of_other_nodes_are_denied_unless_a_rule_names_them() {
        let mut rules = AccessRules {
            protects_own: true,
            hops: vec!["10.3.0.2:7704".parse().unwrap()],
            ..AccessRules::default()
        };
        assert!(!allows(&rules, "10.1.0.2", "10.3.0.2:7704"));
        assert!(!allows(&rules, "10.1.0.2", "[::ffff:10.3.0.2]:7704"));
        assert!(allows(&rules, "10.1.0.2", "10.3.0.2:80"));
        rules.rules = vec![AccessRule {
            allow: true,
            from: Vec::new(),
            to: vec![network("10.3.0.0/24")],
            ports: Vec::new(),
        }];
        assert!(allows(&rules, "10.1.0.2", "10.3.0.2:7704"));
    }
}
