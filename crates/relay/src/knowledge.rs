//! What sessions leave for later ones, shared by the threads of a relay and the gate.
//!
//! The knowledge is divided into [`PARTS`] parts by the hash of what an entry is about, and each part has a
//! lock. A thread locks one part at a time, for one look-up, so two threads seldom need the same lock at
//! once. With one lock for all, the samples of many sessions would wait for each other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_policy::hosts::Hosts;
use midspan_policy::leave_alone::{FlowsBySize, Route};
use midspan_policy::{Forgotten, Knowledge, KnowledgeParts, Part, PartKey};
use midspan_units::TimeSpan;

/// Number of parts.
const PARTS: usize = 64;

/// The [`Knowledge`] of a relay. Clones share it.
#[derive(Debug, Clone)]
pub struct SharedKnowledge(Arc<[Mutex<Knowledge>]>);

impl Default for SharedKnowledge {
    fn default() -> Self {
        Self::with_parts(PARTS)
    }
}

impl KnowledgeParts for SharedKnowledge {
    fn part(&mut self, key: PartKey) -> Part<'_> {
        let part = &self.0[key.number(self.0.len())];
        Part::Locked(lock(part))
    }
}

impl SharedKnowledge {
    /// Knowledge in this many parts, at least one.
    #[must_use]
    pub fn with_parts(parts: usize) -> Self {
        let parts = parts.max(1);
        let part = || Mutex::new(Knowledge::part_of(parts));
        Self(std::iter::repeat_with(part).take(parts).collect())
    }

    /// From now on, the proof of an asymmetric route holds for `keep`; all such routes are forgotten.
    pub fn keep_asymmetric_routes(&self, keep: TimeSpan) {
        self.each(|part| part.routes.change_keep(keep));
    }

    /// Flows that were split and flows that were not, by size, over all hosts.
    #[must_use]
    pub fn flows_by_size(&self) -> FlowsBySize {
        let mut all = FlowsBySize::new();
        self.each(|part| part.gains.add_sizes_to(&mut all));
        all
    }

    /// How many routes have been found in all on which splitting gains nothing.
    #[must_use]
    pub fn found_routes(&self) -> u64 {
        let mut all = 0;
        self.each(|part| all += part.gains.found());
        all
    }

    /// Routes found since the last call, at most `most`.
    #[must_use]
    pub fn take_found(&self, most: usize) -> Vec<Route> {
        let mut found = Vec::new();
        self.each(|part| found.extend(part.gains.take_found(most - found.len())));
        found
    }

    /// At most `most` entries of all parts, in the order of their keys, and whether more may follow.
    /// `read` returns the first entries of one part, at most as many as it is asked for, in this
    /// order. Threads that need a part wait while it is read.
    pub fn list<T, K: Ord>(
        &self,
        most: usize,
        read: impl Fn(&Knowledge, usize) -> Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> (Vec<T>, bool) {
        // More than an even share, because entries do not fall evenly on the parts.
        let each = most / self.0.len() * 2 + 8;
        let mut all = Vec::new();
        // Up to this key, no entry of any part is missing.
        let mut complete: Option<K> = None;
        self.each(|part| {
            let entries = read(part, each);
            if let Some(last) = entries.last().filter(|_| entries.len() >= each) {
                let last = key(last);
                complete = Some(match complete.take() {
                    Some(earlier) => earlier.min(last),
                    None => last,
                });
            }
            all.extend(entries);
        });
        if let Some(complete) = &complete {
            all.retain(|entry| key(entry) <= *complete);
        }
        all.sort_by_key(|entry| key(entry));
        let has_more = complete.is_some() || all.len() > most;
        all.truncate(most);
        (all, has_more)
    }

    /// Forgets what sessions with these hosts have left, at most `at_a_time` entries of each kind
    /// between two pauses for threads that wait. What sessions leave meanwhile is not awaited: under
    /// load, there would be no end.
    pub fn forget(&self, hosts: &Hosts, at_a_time: usize, mut note: impl FnMut(Forgotten)) {
        for part in self.0.iter() {
            let mut has_more = true;
            while has_more {
                let some = lock(part).forget(hosts, at_a_time);
                has_more = some.may_have_more(at_a_time);
                note(some);
                std::thread::yield_now();
            }
        }
    }

    /// Calls `read` with each part in turn, and only this part locked.
    fn each(&self, mut read: impl FnMut(&mut Knowledge)) {
        for part in self.0.iter() {
            read(&mut lock(part));
        }
    }
}

/// A panic elsewhere while the lock was held does no harm: the numbers stay usable.
fn lock(part: &Mutex<Knowledge>) -> MutexGuard<'_, Knowledge> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, SocketAddr};

    use midspan_policy::leave_alone::Passage;
    use midspan_policy::{LegSample, Request};
    use midspan_units::{BitRate, ByteSize, Time};

    fn client(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    fn request(number: u32) -> Request {
        Request {
            client: SocketAddr::new(client(number), 1000),
            server: "198.51.100.7:80".parse().unwrap(),
        }
    }

    /// The paths to this many clients, and their routes, are known.
    fn known(clients: u32) -> SharedKnowledge {
        let leg = LegSample {
            segment_size: 1448,
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(500)),
            delivery_rate: BitRate::from_bits_per_second(8_000_000),
            bytes_acknowledged: ByteSize::from_bytes(1_000_000),
            ..LegSample::default()
        };
        let mut knowledge = SharedKnowledge::default();
        knowledge.keep_asymmetric_routes(TimeSpan::from_seconds(900));
        for number in 0..clients {
            let (host, request) = (client(number), request(number));
            (knowledge.part(PartKey::paths(host)).paths).note(Time::ZERO, host, &leg, false);
            (knowledge.part(PartKey::routes(&request)).routes).prove(Time::ZERO, &request);
            let gains = &mut knowledge.part(PartKey::gains(&request)).gains;
            gains.note_split(Time::ZERO, &request, &leg, &leg, TimeSpan::from_seconds(1));
        }
        knowledge
    }

    #[test]
    fn lists_of_all_parts_are_in_order_and_complete() {
        let knowledge = known(3000);
        for most in [1, 7, 256, 10_000] {
            let mut after = None;
            let mut peers = Vec::new();
            loop {
                let (some, has_more) = knowledge.list(
                    most,
                    |part, most| part.paths.known(Time::ZERO, &Hosts::ALL, after, most),
                    |path| path.peer,
                );
                assert!(some.len() <= most);
                peers.extend(some.iter().map(|path| path.peer));
                after = peers.last().copied();
                if !has_more {
                    break;
                }
                assert!(!some.is_empty());
            }
            let expected: Vec<_> = (0..3000).map(|number| client(number).into()).collect();
            assert_eq!(peers, expected, "{most} at a time");
        }
    }

    #[test]
    fn what_is_known_of_a_host_is_found_again_and_forgotten() {
        let mut knowledge = known(600);
        let request = request(77);
        let passage = |knowledge: &mut SharedKnowledge| {
            let routes = &mut knowledge.part(PartKey::routes(&request)).routes;
            routes.arrive(Time::ZERO, &request)
        };
        assert_eq!(passage(&mut knowledge), Passage::Pass);
        let mut forgotten = Forgotten::default();
        knowledge.forget(&Hosts::ALL, 3, |some| {
            forgotten.paths += some.paths;
            forgotten.gains += some.gains;
            forgotten.asymmetric_routes += some.asymmetric_routes;
        });
        let numbers = (forgotten.paths, forgotten.gains);
        assert_eq!((numbers, forgotten.asymmetric_routes), ((600, 600), 600));
        assert_eq!(passage(&mut knowledge), Passage::Intercept);
        // What is counted over all hosts stays.
        assert_eq!(knowledge.flows_by_size().gains()[2].split_flows, 600);
    }

    #[test]
    fn routes_that_were_found_in_any_part_are_taken_once() {
        let mut knowledge = SharedKnowledge::default();
        let leg = |milliseconds| LegSample {
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(milliseconds)),
            bytes_acknowledged: ByteSize::from_bytes(200_000),
            ..LegSample::default()
        };
        for number in 0..40 {
            let request = request(number);
            for _ in 0..8 {
                let lasted = TimeSpan::from_seconds(1);
                let gains = &mut knowledge.part(PartKey::gains(&request)).gains;
                gains.note_split(Time::ZERO, &request, &leg(20), &leg(1), lasted);
            }
        }
        assert_eq!(knowledge.found_routes(), 40);
        let found = [knowledge.take_found(30), knowledge.take_found(30)];
        assert_eq!(found.each_ref().map(Vec::len), [30, 10]);
        assert_eq!(knowledge.take_found(30), []);
    }
}
