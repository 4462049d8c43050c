//! Whether sessions with a network of servers get more through the overlay than without it: the newest
//! sessions of both kinds, by their real goodput.
//!
//! A prediction does not contain what no node can measure: a policer, a bottleneck that all routes share,
//! the last leg's loss. So a part of the client networks leaves at the ingress as a control group. If the
//! overlay is not better for a network of servers, its sessions leave at the ingress for ten minutes: the
//! overlay cannot stay worse than none.

use std::collections::{BTreeMap, VecDeque};

use ipnet::IpNet;
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::leave_alone::RecentGoodputs;

/// A shorter session shows set-up times rather than a goodput.
const EVIDENCE: u64 = 100_000;
/// Sessions of each kind that are compared: at least, and at most.
const COMPARED: usize = 5;
const RECENT: usize = 9;
/// How long the result holds. Then sessions of both kinds are compared again.
const HOLDS: TimeSpan = TimeSpan::from_seconds(600);
/// Most networks of servers; the oldest ones are forgotten.
const SITES: usize = 4096;

/// Where a session has left the overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// At an exit.
    Overlay,
    /// At the ingress.
    Here,
}

/// The goodputs of sessions with each network of servers.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    sites: BTreeMap<IpNet, Site>,
    order: VecDeque<IpNet>,
}

#[derive(Debug, Clone, Default)]
struct Site {
    through: RecentGoodputs,
    here: RecentGoodputs,
    /// The result, and until when it holds.
    better: Option<(Left, Time)>,
}

impl Comparison {
    /// A session with this network of servers has ended in an orderly route.
    pub fn note(
        &mut self,
        now: Time,
        site: IpNet,
        left: Left,
        (carried, lasted): (ByteSize, TimeSpan),
    ) {
        let goodput = BitRate::from_transfer(carried.bytes(), lasted);
        let Some(goodput) = goodput.filter(|_| carried.bytes() >= EVIDENCE) else {
            return;
        };
        if !self.sites.contains_key(&site) {
            if self.order.len() >= SITES
                && let Some(oldest) = self.order.pop_front()
            {
                self.sites.remove(&oldest);
            }
            self.order.push_back(site);
        }
        let known = self.sites.entry(site).or_default();
        let of_kind = match left {
            Left::Overlay => &mut known.through,
            Left::Here => &mut known.here,
        };
        of_kind.note(goodput.bits_per_second(), RECENT);
        if known.through.len() >= COMPARED && known.here.len() >= COMPARED {
            let better = match known.through.median() > known.here.median() {
                true => Left::Overlay,
                false => Left::Here,
            };
            *known = Site {
                better: Some((better, now + HOLDS)),
                ..Site::default()
            };
        }
    }

    /// Which kind of sessions is better; `None` if that is not known.
    #[must_use]
    pub fn better(&self, now: Time, site: IpNet) -> Option<Left> {
        let (better, until) = self.sites.get(&site)?.better?;
        (now < until).then_some(better)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    fn site(number: u32) -> IpNet {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + (number << 8));
        IpNet::new(address.into(), 24).unwrap()
    }

    fn note(comparison: &mut Comparison, left: Left, kilobytes: u64, milliseconds: u64) {
        let carried = ByteSize::from_bytes(kilobytes * 1000);
        let lasted = TimeSpan::from_milliseconds(milliseconds);
        comparison.note(at(0), site(1), left, (carried, lasted));
    }

    #[test]
    fn the_median_of_five_of_each_kind_decides_for_ten_minutes() {
        for (through, better) in [
            (900, Left::Overlay),
            (1_000, Left::Here),
            (1_100, Left::Here),
        ] {
            let mut comparison = Comparison::default();
            for number in 0..5 {
                assert_eq!(comparison.better(at(0), site(1)), None);
                // Two that were lucky or unlucky do not matter.
                let luck = if number < 2 { 10 } else { 1 };
                note(&mut comparison, Left::Here, 1_000, 1_000);
                note(&mut comparison, Left::Overlay, 99, 1);
                note(&mut comparison, Left::Overlay, 1_000, through / luck);
            }
            assert_eq!(
                comparison.better(at(599), site(1)),
                Some(better),
                "{through}"
            );
            assert_eq!(comparison.better(at(600), site(1)), None);
            assert_eq!(comparison.better(at(0), site(2)), None);
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut comparison = Comparison::default();
        for number in 0..10_000 {
            let carried = (ByteSize::from_bytes(200_000), TimeSpan::from_seconds(1));
            comparison.note(at(0), site(number), Left::Here, carried);
        }
        assert_eq!(
            (comparison.sites.len(), comparison.order.len()),
            (SITES, SITES)
        );
    }
}
