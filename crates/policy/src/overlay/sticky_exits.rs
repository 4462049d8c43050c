//! The exit of a client and a network of servers stays the same.
//!
//! A server sees the address of the exit. If it changes within minutes, log-ins and downloads in parts
//! break. So the exit of a pair stays for an hour, and changes earlier only if it fails.

use std::collections::{BTreeMap, VecDeque};

use ipnet::IpNet;
use midspan_units::{Time, TimeSpan};

use super::NodeName;

/// How long the exit of a pair stays.
const STAYS: TimeSpan = TimeSpan::from_seconds(3600);
/// Most pairs; the oldest ones are forgotten.
const PAIRS: usize = 65_536;

/// A client and a network of servers.
pub type Pair = (IpNet, IpNet);

/// The exits of pairs; `None` in the place of an exit: the ingress itself.
#[derive(Debug, Clone, Default)]
pub struct StickyExits {
    pairs: BTreeMap<Pair, (Option<NodeName>, Time)>,
    order: VecDeque<Pair>,
}

impl StickyExits {
    /// The exit of this pair, as long as it stays.
    #[must_use]
    pub fn get(&self, now: Time, pair: &Pair) -> Option<Option<&NodeName>> {
        let (exit, until) = self.pairs.get(pair)?;
        (now < *until).then_some(exit.as_ref())
    }

    /// This exit is used for the pair. If it is another one than before, it stays for an hour from now
    /// on.
    pub fn set_if_changed(&mut self, now: Time, pair: Pair, exit: Option<NodeName>) {
        if self.get(now, &pair) == Some(exit.as_ref()) {
            return;
        }
        if self.pairs.insert(pair, (exit, now + STAYS)).is_some() {
            return;
        }
        self.order.push_back(pair);
        while self.order.len() > PAIRS {
            if let Some(oldest) = self.order.pop_front() {
                self.pairs.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(number: u32) -> Pair {
        let client = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        let client = IpNet::new(client.into(), 32).unwrap();
        (client, "198.51.100.0/24".parse().unwrap())
    }

    #[test]
    fn an_exit_stays_for_an_hour() {
        let mut exits = StickyExits::default();
        let at = |seconds| Time::ZERO + TimeSpan::from_seconds(seconds);
        let sin: NodeName = "sin".parse().unwrap();
        assert_eq!(exits.get(at(0), &pair(1)), None);
        exits.set_if_changed(at(0), pair(1), Some(sin.clone()));
        exits.set_if_changed(at(0), pair(2), None);
        assert_eq!(exits.get(at(3_599), &pair(1)), Some(Some(&sin)));
        assert_eq!(exits.get(at(3_599), &pair(2)), Some(None));
        assert_eq!(exits.get(at(3_600), &pair(1)), None);
        exits.set_if_changed(at(3_600), pair(1), None);
        assert_eq!(exits.get(at(3_601), &pair(1)), Some(None));
        for number in 0..70_000 {
            exits.set_if_changed(at(4_000), pair(number), None);
        }
        assert_eq!((exits.pairs.len(), exits.order.len()), (PAIRS, PAIRS));
    }
}
