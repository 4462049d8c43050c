//! Kinds of gateways: plain routing, or Midspan in one of its modes.

use std::fmt::Write as _;
use std::path::Path;

use midspan_conformance::Family;
use midspan_conformance::network::{CLIENT_SIDE, Network};

use crate::Error;

/// What runs on the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway {
    /// Plain routing; the other kinds are compared with it.
    Direct,
    /// A transparent listener with the handshake end to end.
    EndToEnd,
    /// A transparent listener with the handshake early.
    Early,
    /// A SOCKS5 proxy that the client is configured to use.
    Socks5,
    /// An HTTP proxy that the client is configured to use.
    Http,
}

impl Gateway {
    /// All kinds, in the order of tables.
    pub const ALL: [Self; 5] = [
        Self::Direct,
        Self::EndToEnd,
        Self::Early,
        Self::Socks5,
        Self::Http,
    ];

    /// The name on the command line and, in the variable `VIA`, in scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::EndToEnd => "end-to-end",
            Self::Early => "early",
            Self::Socks5 => "socks5",
            Self::Http => "http",
        }
    }

    /// Whether clients must be configured to use the proxy. Only cases that are written for such a
    /// proxy run with it.
    #[must_use]
    pub const fn is_explicit(self) -> bool {
        matches!(self, Self::Socks5 | Self::Http)
    }

    /// Whether clients connect to the server's own address through Midspan.
    #[must_use]
    pub const fn is_transparent(self) -> bool {
        matches!(self, Self::EndToEnd | Self::Early)
    }

    /// The configuration of Midspan, with this control socket; `None` without Midspan.
    #[must_use]
    pub fn configuration(self, socket: &Path) -> Option<String> {
        let listeners = match self {
            Self::Direct => return None,
            Self::EndToEnd | Self::Early => transparent(self.name()),
            Self::Socks5 | Self::Http => explicit(self.name()),
        };
        // Every connection is split: there is no control group, and the policy leaves no client
        // alone.
        Some(format!(
            "[relay]\nthreads = 2\ndrain_timeout = \"3 s\"\n\
             [log]\nformat = \"json\"\n\
             [interception]\nleave_alone_time = \"0 s\"\n\
             [control]\nsocket = \"{}\"\n{listeners}",
            socket.display()
        ))
    }
}

/// The transparent listener of the gateway guide, for all ports and with the policy `auto`.
fn transparent(handshake: &str) -> String {
    format!(
        "[[listener]]\nname = \"gateway\"\nmode = \"transparent\"\n\
         interfaces = [\"{CLIENT_SIDE}\"]\nhandshake = \"{handshake}\"\n\
         policy = \"auto\"\ncontrol_group = \"0 %\"\n\
         client_leg = {{ congestion_control = \"bbr\" }}\n"
    )
}

fn explicit(mode: &str) -> String {
    let clients = [Family::V4, Family::V6].map(Network::client_address);
    let mut text = String::new();
    for family in [Family::V4, Family::V6] {
        let _ = write!(
            text,
            "[[listener]]\nname = \"{}\"\nmode = \"{mode}\"\nlisten = \"{}\"\n\
             clients = [\"{}\", \"{}\"]\n",
            family.name(),
            Network::explicit_address(family),
            clients[0],
            clients[1]
        );
    }
    text
}

/// The part of the gateway guide's rules that the gateway uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firewall {
    /// All rules: a firewall that drops unknown packets, and masquerade for IPv4.
    Guide,
    /// The firewall without the masquerade: the server sees the client's own address.
    Routed,
}

/// The gateway guide. Its rules are tested as they are in the guide.
const GUIDE: &str = include_str!("../../../docs/gateway.md");

impl Firewall {
    /// The ruleset, with the interfaces of the network of namespaces.
    ///
    /// # Errors
    /// The guide no longer contains the rules.
    pub fn rules(self, gateway: Gateway) -> Result<String, Error> {
        let rules = block(GUIDE, "```nft file=/etc/nftables.conf\n")
            .ok_or(Error::Guide("block of rules, nft file=/etc/nftables.conf"))?;
        let mut rules = rules
            .replace("\"eth1\"", &format!("\"{CLIENT_SIDE}\""))
            .replace("\"eth0\"", "\"wan\"");
        if self == Self::Routed {
            let nat = rules
                .find("table ip nat")
                .ok_or(Error::Guide("table ip nat"))?;
            rules.truncate(nat);
        }
        if gateway.is_explicit() {
            let (at, accept) = (
                "tcp dport 22 accept",
                format!(
                    "tcp dport {{ 22, {} }} accept",
                    midspan_conformance::network::EXPLICIT_PORT
                ),
            );
            rules = rules.replace(at, &accept);
        }
        Ok(rules)
    }
}

/// The text of a fenced block of a Markdown page; `begin` is the block's first line.
fn block<'a>(page: &'a str, begin: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(begin)?;
    Some(rest.split_once("```")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_those_of_the_guide_for_the_interfaces_here() {
        let guide = Firewall::Guide.rules(Gateway::Direct).unwrap();
        assert!(guide.contains("policy drop"), "{guide}");
        assert!(guide.contains("oifname \"wan\" masquerade"), "{guide}");
        assert!(!guide.contains("eth"), "{guide}");
        assert_eq!(guide, Firewall::Guide.rules(Gateway::EndToEnd).unwrap());
        let routed = Firewall::Routed.rules(Gateway::Direct).unwrap();
        assert!(!routed.contains("masquerade"), "{routed}");
        assert!(guide.starts_with(&routed), "{routed}");
        let explicit = Firewall::Guide.rules(Gateway::Socks5).unwrap();
        assert!(explicit.contains("{ 22, 1080 } accept"), "{explicit}");
    }

    #[test]
    fn each_way_but_plain_routing_has_a_configuration() {
        let socket = Path::new("/somewhere/control.sock");
        for gateway in Gateway::ALL {
            let configuration = gateway.configuration(socket);
            assert_eq!(configuration.is_none(), gateway == Gateway::Direct);
            if let Some(text) = configuration {
                assert!(text.contains(&format!("\"{}\"", gateway.name())), "{text}");
            }
        }
    }
}
