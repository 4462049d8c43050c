//! What a node does with a hop that another node has sent.

use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use super::{LegKeys, MOST_HOPS, Node, NodeKey, NodeKind, NodeName, Overlay, Route};

/// The parts of a hop's request on which its treatment depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedHop<'a> {
    /// The address from which the connection comes.
    pub sender: IpAddr,
    /// The key that the sender has proved to have; `None` if the connection is not encrypted.
    pub key: Option<NodeKey>,
    /// The nodes that the session has passed, the ingress first (`Via`); empty if the sender is a
    /// client that is a member itself.
    pub via: &'a [NodeName],
    /// The nodes that are still to come, the exit last; empty if this node is the exit.
    pub route: &'a [NodeName],
}

/// The treatment of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HopStep {
    /// This node is the exit: it connects to the server, if it serves it.
    Leave,
    /// The session continues to this node.
    Pass(NextHop),
}

/// The next node of a session, and the nodes after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// The node.
    pub node: NodeName,
    /// The leg to it: the node's name, or a name of its own if this node has several uplinks.
    pub leg: NodeName,
    /// Where it accepts hops, by this node's own list of members.
    pub address: SocketAddr,
    /// The address of this machine from which the leg begins; `None` if the kernel chooses.
    pub from: Option<IpAddr>,
    /// Its kind.
    pub kind: NodeKind,
    /// The keys of the leg; `None` if it is not encrypted.
    pub keys: Option<Box<LegKeys>>,
    /// The nodes after it, the exit last.
    pub rest: Vec<NodeName>,
}

/// Why a node refuses a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HopRefusal {
    /// The connection comes from no member.
    #[error("it comes from no member")]
    Stranger,
    /// It comes from the address of a member, and has another key, or none.
    #[error("it does not have the key of the member at its address")]
    WrongKey,
    /// It comes from a member with a key, and is not encrypted, or not as between nodes.
    #[error("it does not use TLS as a node does")]
    NotEncrypted,
    /// Its `Via` does not end with the member from whose address it comes.
    #[error("its Via ends with another node than the one that sent it")]
    Forged,
    /// The session has passed this node already.
    #[error("the session has passed this node already")]
    Loop,
    /// The session has passed, or would pass, more nodes than [`MOST_HOPS`].
    #[error("the route has more than {MOST_HOPS} nodes")]
    TooLong,
    /// This node carries nothing on to other nodes.
    #[error("this node is no transit node")]
    NoTransit,
    /// The next node is no member, accepts no hops, or cannot pass the session on.
    #[error("the next node is no member that accepts this hop")]
    UnknownNode,
    /// This node connects to no server for others.
    #[error("this node is no exit")]
    NoExit,
    /// This node connects to servers from its clients' addresses, and not from this one.
    #[error("this node does not connect from the address of the session's client")]
    ForeignClient,
}

impl NextHop {
    /// The exit of the session.
    #[must_use]
    pub fn exit(&self) -> &NodeName {
        self.rest.last().unwrap_or(&self.node)
    }
}

impl Overlay {
    /// What this node does with a hop.
    ///
    /// # Errors
    /// The reason for which it refuses the hop. Nothing of the request is trusted unless the sender is
    /// a member.
    pub fn receive(&self, hop: &ReceivedHop<'_>) -> Result<HopStep, HopRefusal> {
        let is_member = self.has_sender(hop.sender);
        if self.senders(hop.sender, hop.key).next().is_none() {
            return Err(match (is_member, hop.key) {
                (false, _) => HopRefusal::Stranger,
                (true, None) => HopRefusal::NotEncrypted,
                (true, Some(_)) => HopRefusal::WrongKey,
            });
        }
        if let Some(last) = hop.via.last()
            && !self
                .senders(hop.sender, hop.key)
                .any(|node| node.name == *last)
        {
            return Err(HopRefusal::Forged);
        }
        if hop.via.contains(&self.own) || hop.route.contains(&self.own) {
            return Err(HopRefusal::Loop);
        }
        if hop.via.len() + hop.route.len() > MOST_HOPS {
            return Err(HopRefusal::TooLong);
        }
        let own = self.own_node();
        if hop.route.is_empty() {
            let is_exit = own.is_some_and(|own| !own.serves.is_empty());
            return is_exit.then_some(HopStep::Leave).ok_or(HopRefusal::NoExit);
        }
        if own.is_none_or(|own| !own.transit) {
            return Err(HopRefusal::NoTransit);
        }
        self.next_hop(hop.route).map(HopStep::Pass)
    }

    /// The first hop of a route, for the ingress.
    ///
    /// # Errors
    /// [`HopRefusal::UnknownNode`] if the first node is no member that accepts the hop.
    pub fn first_hop(&self, route: &Route) -> Result<NextHop, HopRefusal> {
        self.next_hop(route.nodes())
    }

    fn next_hop(&self, route: &[NodeName]) -> Result<NextHop, HopRefusal> {
        let (first, rest) = route.split_first().ok_or(HopRefusal::UnknownNode)?;
        let carries = |node: &&Node| rest.is_empty() || node.kind == NodeKind::Midspan;
        let node = self.node(first).filter(carries);
        let address = node.and_then(|node| Some((node, node.address?)));
        let (node, address) = address.ok_or(HopRefusal::UnknownNode)?;
        Ok(NextHop {
            node: node.name.clone(),
            leg: first.clone(),
            address,
            from: self.source_of(first),
            kind: node.kind,
            keys: self.keys_to(&node.name).map(Box::new),
            rest: rest.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::NodeSecret;
    use ipnet::IpNet;

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    fn node(text: &str, address: &str, transit: bool, serves: &[&str]) -> Node {
        let network = |text: &&str| text.parse::<IpNet>().unwrap().into();
        Node {
            transit,
            serves: serves.iter().map(network).collect(),
            ..Node::new(name(text), address.parse().ok())
        }
    }

    fn overlay(own: &str) -> Overlay {
        let mut nodes = vec![
            node("ams", "10.0.0.1:7704", false, &[]),
            node("fra", "10.0.0.2:7704", true, &[]),
            node("sin", "10.0.0.3:7704", false, &["203.0.113.0/24"]),
            node("squid", "10.0.0.4:3128", false, &[]),
            node("laptop", "", false, &[]),
            node("twin", "10.0.0.1:7705", false, &[]),
        ];
        nodes[3].kind = NodeKind::Connect;
        nodes[4].from = vec!["10.0.9.0/24".parse::<IpNet>().unwrap().into()];
        Overlay::new(name(own), nodes)
    }

    fn receive(
        own: &str,
        sender: &str,
        via: &[&str],
        route: &[&str],
    ) -> Result<HopStep, HopRefusal> {
        let names = |texts: &[&str]| texts.iter().map(|text| name(text)).collect::<Vec<_>>();
        overlay(own).receive(&ReceivedHop {
            sender: sender.parse().unwrap(),
            key: None,
            via: &names(via),
            route: &names(route),
        })
    }

    #[test]
    fn a_transit_node_passes_a_hop_to_the_address_of_its_own_list() {
        let Ok(HopStep::Pass(next)) = receive("fra", "10.0.0.1", &["ams"], &["sin"]) else {
            panic!("the hop is refused");
        };
        assert_eq!(next.address, "10.0.0.3:7704".parse().unwrap());
        assert_eq!((next.exit(), next.rest.len()), (&name("sin"), 0));
        let Ok(HopStep::Pass(next)) = receive("fra", "::ffff:10.0.0.1", &["ams"], &["squid"])
        else {
            panic!("the hop is refused");
        };
        assert_eq!(next.kind, NodeKind::Connect);
    }

    #[test]
    fn an_exit_lets_a_hop_leave() {
        for (sender, via) in [
            ("10.0.0.2", &["ams", "fra"][..]),
            ("10.0.0.1", &["ams"]),
            // Two nodes behind one address.
            ("10.0.0.1", &["twin"]),
            // A client that is a member itself.
            ("10.0.9.7", &[]),
        ] {
            assert_eq!(
                receive("sin", sender, via, &[]),
                Ok(HopStep::Leave),
                "{via:?}"
            );
        }
    }

    #[test]
    fn each_refusal_has_its_reason() {
        use HopRefusal as Refusal;
        for (own, sender, via, route, expected) in [
            ("sin", "10.0.0.9", &["ams"][..], &[][..], Refusal::Stranger),
            // A foreign proxy sends no hops, and no node sends hops to itself.
            ("sin", "10.0.0.4", &[], &[], Refusal::Stranger),
            ("sin", "10.0.0.3", &[], &[], Refusal::Stranger),
            ("sin", "10.0.0.2", &["ams"], &[], Refusal::Forged),
            ("sin", "10.0.0.2", &["fra", "ams"], &[], Refusal::Forged),
            (
                "fra",
                "10.0.0.3",
                &["ams", "fra", "sin"],
                &[],
                Refusal::Loop,
            ),
            ("fra", "10.0.0.1", &["ams"], &["sin", "fra"], Refusal::Loop),
            (
                "fra",
                "10.0.0.1",
                &["sin", "laptop", "ams"],
                &["squid", "twin"],
                Refusal::TooLong,
            ),
            ("sin", "10.0.0.1", &["ams"], &["fra"], Refusal::NoTransit),
            (
                "fra",
                "10.0.0.1",
                &["ams"],
                &["nobody"],
                Refusal::UnknownNode,
            ),
            // The laptop accepts no hops; a foreign proxy carries nothing on.
            (
                "fra",
                "10.0.0.1",
                &["ams"],
                &["laptop"],
                Refusal::UnknownNode,
            ),
            (
                "fra",
                "10.0.0.1",
                &["ams"],
                &["squid", "sin"],
                Refusal::UnknownNode,
            ),
            ("fra", "10.0.0.1", &["ams"], &[], Refusal::NoExit),
        ] {
            let found = receive(own, sender, via, route);
            assert_eq!(found, Err(expected), "{own} {sender} {via:?} {route:?}");
        }
    }

    /// All nodes have keys, except the laptop.
    fn with_keys() -> Overlay {
        let mut overlay = overlay("fra");
        for (node, byte) in overlay.nodes.iter_mut().zip(1..) {
            let is_encrypted = !["squid", "laptop"].contains(&node.name.as_str());
            node.key = is_encrypted.then(|| NodeKey::new([byte; 32]));
        }
        overlay.secret = Some(NodeSecret::new([99; 32]));
        overlay
    }

    #[test]
    fn a_node_is_recognized_by_its_key() {
        let overlay = with_keys();
        let receive = |sender: &str, key: Option<u8>, via: &str| {
            overlay.receive(&ReceivedHop {
                sender: sender.parse().unwrap(),
                key: key.map(|byte| NodeKey::new([byte; 32])),
                via: &[name(via)],
                route: &[name("sin")],
            })
        };
        let Ok(HopStep::Pass(next)) = receive("10.0.0.1", Some(1), "ams") else {
            panic!("the hop is refused");
        };
        assert_eq!(next.keys.map(|keys| keys.peer), Some(NodeKey::new([3; 32])));
        use HopRefusal as Refusal;
        for (sender, key, via, expected) in [
            // Two nodes behind one address: the key is that of the other one.
            ("10.0.0.1", Some(6), "ams", Refusal::Forged),
            ("10.0.0.1", Some(3), "ams", Refusal::WrongKey),
            ("10.0.0.1", Some(9), "ams", Refusal::WrongKey),
            ("10.0.0.1", None, "ams", Refusal::NotEncrypted),
            ("10.0.0.9", Some(1), "ams", Refusal::Stranger),
            // The laptop has no key.
            ("10.0.9.7", Some(1), "laptop", Refusal::WrongKey),
        ] {
            let found = receive(sender, key, via);
            assert_eq!(found, Err(expected), "{sender} {key:?} {via}");
        }
        assert!(receive("10.0.0.1", Some(6), "twin").is_ok());
        assert!(receive("10.0.9.7", None, "laptop").is_ok());
        let keys = overlay.keys_from("10.0.0.1".parse().unwrap());
        assert_eq!(keys, [1, 6].map(|byte| NodeKey::new([byte; 32])));
        assert!(overlay.keys_from("10.0.9.7".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_node_without_a_key_has_plain_legs_only() {
        let mut overlay = with_keys();
        overlay.nodes[1].key = None;
        assert!(overlay.keys_to(&name("sin")).is_none());
        assert!(overlay.keys_from("10.0.0.1".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_node_serves_its_prefixes_and_ports() {
        let mut node = node("sin", "", false, &["203.0.113.0/24", "2001:db8::/32"]);
        let serves = |node: &Node, server: &str| node.serves(server.parse().unwrap());
        assert!(serves(&node, "203.0.113.7:22") && serves(&node, "[::ffff:203.0.113.7]:22"));
        assert!(serves(&node, "[2001:db8::1]:22") && !serves(&node, "192.0.2.1:22"));
        node.ports = vec![(80, 80), (8000, 8100)];
        assert!(serves(&node, "203.0.113.7:8100") && !serves(&node, "203.0.113.7:8101"));
        node.serves.clear();
        assert!(!serves(&node, "203.0.113.7:80"));
    }
}
