//! The control group: connections that pass untouched so that they can be compared with split ones.
//!
//! After its SYN, such a connection does not pass the gate. The host's connection tracking counts its bytes
//! (`net.netfilter.nf_conntrack_acct`) and follows its state. The gate checks the entry of each connection
//! again after a twentieth of the connection's age, and after 10 ms at least. So the end is measured to about
//! 5 %, and the number of checks grows with the logarithm of the duration. At most 64 connections are
//! measured at a time, and none for longer than an hour.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::{ConnectionTracking, Passed, Progress, Tracked};
use midspan_units::{ByteSize, Probability, TimeSpan};

use midspan_policy::Request;

/// Most flows that are measured at a time, by all threads together.
const ROOM: usize = 64;
/// The shortest time between two looks at a flow.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// Number of checks within a flow's age.
const LOOKS: u32 = 20;
/// A flow that lasts longer is given up.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long connection tracking may have no entry of a new flow, whose SYN has just passed.
const UNKNOWN: Duration = Duration::from_secs(2);
/// Headers of a segment with timestamps, as connection tracking counts them.
const IPV4_HEADERS: u64 = 52;
const IPV6_HEADERS: u64 = 72;

/// The part of the control group whose SYNs one thread has read.
#[derive(Debug)]
pub struct ControlGroup {
    /// Most flows that are measured at a time.
    room: usize,
    /// A random seed, so that clients cannot predict which connections belong to the group.
    seed: RandomState,
    flows: BTreeMap<Request, Flow>,
    next: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    since: Instant,
    next: Instant,
}

/// A flow that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With a FIN in each direction: the bytes of data in the larger direction, and the time since
    /// the client's first segment.
    Measured(Request, ByteSize, TimeSpan),
    /// The flow could not be measured.
    Unmeasured,
}

impl ControlGroup {
    /// Without flows; one of this number of parts, one for each thread.
    pub fn of_one_part(parts: usize) -> Self {
        Self {
            room: ROOM.div_ceil(parts.max(1)),
            seed: RandomState::new(),
            flows: BTreeMap::new(),
            next: None,
        }
    }

    /// Whether this connection belongs to the control group, which has this share of all
    /// connections.
    pub fn takes(&self, connection: Request, part: Probability) -> bool {
        part.happens(self.seed.hash_one(connection))
    }

    /// A connection of the control group begins; `false` where there is no room to measure it.
    pub fn begin(&mut self, connection: Request, now: Instant) -> bool {
        if self.flows.len() >= self.room {
            return false;
        }
        let next = now + LEAST_PAUSE;
        self.flows.insert(connection, Flow { since: now, next });
        self.next = Some(self.next.map_or(next, |other| other.min(next)));
        true
    }

    /// When to [look](Self::look) next, if at all.
    pub const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Checks the flows whose time has come; returns those that have ended.
    pub fn look(&mut self, now: Instant, tracking: &ConnectionTracking) -> Vec<Ended> {
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.look_by(now, |connection| {
            tracking
                .look(connection.client, connection.server)
                .ok()
                .flatten()
        })
    }

    fn look_by(
        &mut self,
        now: Instant,
        tracked: impl Fn(&Request) -> Option<Tracked>,
    ) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.flows.retain(|connection, flow| {
            if now < flow.next {
                return true;
            }
            let age = now.saturating_duration_since(flow.since);
            flow.next = now + (age / LOOKS).max(LEAST_PAUSE);
            match tracked(connection) {
                Some(Tracked {
                    progress: Progress::Closed,
                    passed: Some(passed),
                }) => {
                    let carried = carried(passed, connection.server.is_ipv4());
                    ended.push(Ended::Measured(*connection, carried, age.into()));
                    false
                }
                Some(Tracked {
                    progress: Progress::Open,
                    ..
                }) => {
                    if age >= LONGEST {
                        ended.push(Ended::Unmeasured);
                    }
                    age < LONGEST
                }
                None if age < UNKNOWN => true,
                // Without counters, reset, or deleted before it was checked.
                _ => {
                    ended.push(Ended::Unmeasured);
                    false
                }
            }
        });
        self.next = self.flows.values().map(|flow| flow.next).min();
        ended
    }
}

/// Bytes of data in the larger direction.
fn carried(passed: [Passed; 2], is_ipv4: bool) -> ByteSize {
    let headers = if is_ipv4 { IPV4_HEADERS } else { IPV6_HEADERS };
    let data = passed.map(|one| {
        one.bytes
            .saturating_sub(one.packets.saturating_mul(headers))
    });
    ByteSize::from_bytes(data[0].max(data[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: u16) -> Request {
        Request {
            client: ([192, 0, 2, 1], port).into(),
            server: ([198, 51, 100, 7], 80).into(),
        }
    }

    fn tracked(progress: Progress) -> Option<Tracked> {
        let passed = |packets, bytes| Passed { packets, bytes };
        Some(Tracked {
            progress,
            passed: Some([passed(10, 530), passed(10, 100_520)]),
        })
    }

    #[test]
    fn a_flow_is_measured_at_its_end() {
        let mut group = ControlGroup::of_one_part(1);
        let start = Instant::now();
        assert!(group.begin(connection(1), start));
        let mut now = start;
        let mut looks = 0;
        while now < start + Duration::from_secs(10) {
            now = group.next().unwrap();
            assert_eq!(group.look_by(now, |_| tracked(Progress::Open)), []);
            looks += 1;
        }
        assert!(looks < 200, "{looks}");
        now = group.next().unwrap();
        let expected = Ended::Measured(
            connection(1),
            ByteSize::from_bytes(100_000),
            now.duration_since(start).into(),
        );
        assert_eq!(
            group.look_by(now, |_| tracked(Progress::Closed)),
            [expected]
        );
        assert_eq!(group.next(), None);
    }

    #[test]
    fn what_is_reset_or_not_counted_is_not_measured() {
        let mut group = ControlGroup::of_one_part(1);
        let start = Instant::now();
        let later = start + Duration::from_secs(3);
        let uncounted = Some(Tracked {
            progress: Progress::Closed,
            passed: None,
        });
        for seen in [tracked(Progress::Reset), uncounted, None] {
            group.begin(connection(1), start);
            assert_eq!(group.look_by(later, |_| seen), [Ended::Unmeasured]);
        }
        for port in 0..100 {
            let has_room = usize::from(port) < ROOM;
            assert_eq!(group.begin(connection(port), start), has_room);
        }
    }

    #[test]
    fn about_the_part_that_is_asked_for_is_taken() {
        let group = ControlGroup::of_one_part(1);
        let part = Probability::from_f64(0.1).unwrap();
        let all = (0..=u16::MAX).map(connection);
        let count = all.filter(|one| group.takes(*one, part)).count();
        assert!((5_500..7_600).contains(&count), "{count}");
        assert!(!group.takes(connection(1), Probability::ZERO));
    }
}
