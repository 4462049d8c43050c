//! Uplinks: several addresses of this machine, each of which leads over another link, as a satellite link and LTE on a
//! ship. The legs over them to one other node are measured and chosen like legs to different nodes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{NodeName, Overlay};

/// An uplink of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// Its name.
    pub name: NodeName,
    /// The address of this machine that leads over it.
    pub from: IpAddr,
}

impl Overlay {
    /// The names of the legs from this node to another one: one for each uplink of its IP version, or the name of
    /// the node.
    #[must_use]
    pub fn legs_to(&self, node: &NodeName) -> Vec<NodeName> {
        let address = self.node(node).and_then(|node| node.address);
        let fits = |uplink: &&Uplink| {
            address.is_some_and(|address| address.is_ipv4() == uplink.from.is_ipv4())
        };
        let uplinks = self.uplinks.iter().filter(fits);
        let legs: Vec<NodeName> = uplinks.map(|uplink| node.by_uplink(&uplink.name)).collect();
        match legs.is_empty() {
            true => vec![node.clone()],
            false => legs,
        }
    }

    /// The address of this machine from which a leg begins; `None` if the kernel chooses.
    #[must_use]
    pub fn source_of(&self, leg: &NodeName) -> Option<IpAddr> {
        let name = leg.uplink()?;
        let mut uplinks = self.uplinks.iter();
        let uplink = uplinks.find(|uplink| uplink.name.as_str() == name)?;
        Some(uplink.from)
    }
}

#[cfg(test)]
mod tests {
    use midspan_units::{Probability, Time, TimeSpan};

    use super::*;
    use crate::overlay::{
        ChoiceSettings, ChosenRoutes, KnownOverlay, Node, OperatorRoute, RouteBy, RouteDecision,
        RouteDestination, RoutePolicy, Row, Wanted, WantedHost,
    };

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    fn leg(uplink: &str) -> NodeName {
        name("hub").by_uplink(&name(uplink))
    }

    /// A ship with two links to the hub.
    fn ship() -> Overlay {
        let node = |text: &str, last: u8| Node {
            serves: vec!["0.0.0.0/0".parse::<ipnet::IpNet>().unwrap().into()],
            ..Node::new(name(text), Some(([10, 0, 0, last], 7704).into()))
        };
        let uplink = |text: &str, third: u8| Uplink {
            name: name(text),
            from: [10, 1, third, 2].into(),
        };
        Overlay {
            routes: vec![OperatorRoute {
                destinations: vec![RouteDestination::All],
                by: RouteBy::Exits {
                    exits: vec![name("hub")],
                    or_here: false,
                },
            }],
            choice: ChoiceSettings {
                explore: Probability::ZERO,
                control: Probability::ZERO,
                ..ChoiceSettings::default()
            },
            uplinks: vec![uplink("vsat", 1), uplink("lte", 2)],
            ..Overlay::new(name("ship"), vec![node("ship", 1), node("hub", 2)])
        }
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    #[test]
    fn the_faster_uplink_is_used_and_the_other_one_when_it_is_silent() {
        let overlay = ship();
        let mut routes = ChosenRoutes::new(overlay.clone());
        let mut known = KnownOverlay::new(1);
        let answer = |known: &mut KnownOverlay, second, uplink: &str, round_trip| {
            let round_trip = TimeSpan::from_milliseconds(round_trip);
            known.note_row(at(second), &leg(uplink), round_trip, Row::default());
        };
        let mut taken = |known: &mut KnownOverlay, second| {
            let wanted = Wanted {
                client: [192, 0, 2, 1].into(),
                host: WantedHost::Address([203, 0, 113, 7].into()),
                port: 443,
                tried: &[],
            };
            match routes.route(at(second), &wanted, known) {
                RouteDecision::Through(route) => route,
                other => panic!("{other:?}"),
            }
        };
        for second in (0..=60).step_by(2) {
            answer(&mut known, second, "vsat", 600);
            answer(&mut known, second, "lte", 60);
        }
        let route = taken(&mut known, 60);
        assert_eq!(route.nodes(), [leg("lte")]);
        // Other nodes read of one leg to the hub, the faster one.
        let row = known.own_row(at(60));
        let legs: Vec<_> = row
            .legs
            .iter()
            .map(|leg| (&leg.to, leg.round_trip))
            .collect();
        assert_eq!(legs, [(&name("hub"), TimeSpan::from_milliseconds(60))]);
        let next = overlay.first_hop(&route).unwrap();
        assert_eq!(
            (next.node.clone(), next.leg.clone()),
            (name("hub"), leg("lte"))
        );
        assert_eq!(
            (next.from, next.exit()),
            (Some([10, 1, 2, 2].into()), &name("hub"))
        );
        for second in (62..=130).step_by(2) {
            answer(&mut known, second, "vsat", 600);
        }
        assert_eq!(taken(&mut known, 130).nodes(), [leg("vsat")]);
    }

    #[test]
    fn an_uplink_of_the_other_ip_version_has_no_leg() {
        let mut overlay = ship();
        overlay.uplinks[1].from = std::net::Ipv6Addr::LOCALHOST.into();
        assert_eq!(overlay.legs_to(&name("hub")), [leg("vsat")]);
        overlay.uplinks.clear();
        assert_eq!(overlay.legs_to(&name("hub")), [name("hub")]);
        assert_eq!(overlay.source_of(&name("hub")), None);
    }
}
