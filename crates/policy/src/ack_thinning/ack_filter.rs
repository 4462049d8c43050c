//! ACK filtering: a newer ACK replaces an older one that waits for the narrow link (AF; Tam §2.3,
//! §4.2; RFC 3449 §5.2.1).

use midspan_units::{BitRate, Time, TimeSpan};

use super::receiver_round_trip::is_before;
use crate::{AckPolicy, AckSample, AckVerdict};

/// Which waiting ACKs a newer one replaces.
///
/// The rules are those of RFC 3449 §5.2.1 and of the queue discipline CAKE: both are pure ACKs of
/// one flow; the newer one acknowledges more; the older one is not urgent (no duplicate, no SACK
/// block, no window update, no filled gap, no change of the ECN echo); and the ECN echo does not
/// change between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckFilter {
    /// How many older ACKs of a flow stay in the queue with the newest one. 0 is the filter of the
    /// paper, and CAKE's `ack-filter-aggressive`. With 2, a window keeps three ACKs even if the
    /// upstream is badly congested (Tam §2.3: with one or two, their loss leads to a time-out).
    pub kept: u32,
}

impl AckFilter {
    /// Whether `newer`, which came after `older`, contains all information of `older`.
    #[must_use]
    pub const fn supersedes(newer: &AckSample, older: &AckSample) -> bool {
        is_before(older.number, newer.number)
            && !older.is_urgent()
            && !newer.congestion_echo
            && !newer.other
    }
}

/// ACK filtering for a caller that cannot look into the queue before the narrow link. The filter computes
/// when the link will be free, and holds an ACK until then. So at most one ACK waits, in the filter and not
/// in the device. Urgent ACKs leave at once.
///
/// Flows that share the upstream get equal parts of it ([`AckPolicy::handle_active_flows`]). If a
/// part is less than one ACK for each time-out, ACKs leave at their time-out, and queue up in the
/// device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacedAckFilter {
    /// Time that one ACK takes on the link.
    interval: TimeSpan,
    /// Number of flows that share the link; above zero.
    flows: u32,
    /// Longest time that an ACK waits.
    time_out: TimeSpan,
    /// When the link will be free again.
    free_at: Time,
    held: Option<Time>,
}

/// No device queues ACKs for longer than this; it drops the rest, so the filter does not wait for
/// it.
const QUEUE_LIMIT: TimeSpan = TimeSpan::from_seconds(3);

impl PacedAckFilter {
    /// A filter for an upstream of this rate and ACKs of `ack_size` bytes at the network layer. No
    /// ACK waits longer than `time_out`.
    #[must_use]
    pub fn new(upstream: BitRate, ack_size: u32, time_out: TimeSpan) -> Self {
        Self {
            interval: upstream.transmission_time(u64::from(ack_size)),
            flows: 1,
            time_out,
            free_at: Time::ZERO,
            held: None,
        }
    }

    fn send(&mut self, now: Time) {
        let free_at = self.free_at.max(now) + self.interval * u64::from(self.flows);
        self.free_at = free_at.min(now + QUEUE_LIMIT);
    }
}

impl AckPolicy for PacedAckFilter {
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        if let Some(at) = self.held.take_if(|at| *at <= now) {
            self.send(at);
        }
        let held = self.held.is_some();
        if sample.is_urgent() && !sample.says_only_that_selection_grows() {
            self.held = None;
            if held && !sample.is_window_update_alone() {
                self.send(now);
            }
            self.send(now);
            return if sample.is_window_update_alone() {
                AckVerdict::Pass
            } else {
                AckVerdict::PassAfterHeld
            };
        }
        if self.free_at <= now {
            self.held = None;
            self.send(now);
            return AckVerdict::Pass;
        }
        let at = self.free_at.min(now + self.time_out);
        AckVerdict::HoldUntil(*self.held.get_or_insert(at))
    }

    fn handle_active_flows(&mut self, flows: u32) {
        self.flows = flows.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    const ONE: AckSample = AckSample {
        number: 1000,
        newly_covered: 1,
        arrived: 1,
        duplicate: false,
        selective: false,
        selection_grows: false,
        fills_gap: false,
        window_update: false,
        congestion_echo: false,
        other: false,
    };

    #[test]
    fn only_a_plain_ack_is_superseded_and_only_by_a_higher_number() {
        let newer = AckSample {
            number: 2000,
            ..ONE
        };
        assert!(AckFilter::supersedes(&newer, &ONE));
        assert!(!AckFilter::supersedes(&ONE, &newer));
        assert!(!AckFilter::supersedes(&ONE, &ONE));
        for older in [
            AckSample {
                duplicate: true,
                ..ONE
            },
            AckSample {
                selective: true,
                ..ONE
            },
            AckSample {
                window_update: true,
                ..ONE
            },
            AckSample {
                fills_gap: true,
                ..ONE
            },
            AckSample {
                congestion_echo: true,
                ..ONE
            },
            AckSample { other: true, ..ONE },
        ] {
            assert!(!AckFilter::supersedes(&newer, &older), "{older:?}");
        }
        // A newer ACK with another ECN echo, or a FIN, does not contain the information of the
        // older one.
        for newer in [
            AckSample {
                congestion_echo: true,
                ..newer
            },
            AckSample {
                other: true,
                ..newer
            },
        ] {
            assert!(!AckFilter::supersedes(&newer, &ONE), "{newer:?}");
        }
        // SACK blocks in the newer ACK do not matter for the older one's number.
        assert!(AckFilter::supersedes(
            &AckSample {
                selective: true,
                ..newer
            },
            &ONE
        ));
        // The numbers wrap around.
        let low = AckSample { number: 5, ..ONE };
        let high = AckSample {
            number: u32::MAX - 5,
            ..ONE
        };
        assert!(AckFilter::supersedes(&low, &high));
    }

    /// 40 bytes at 32 kbit/s take 10 ms.
    fn filter(upstream: u64) -> PacedAckFilter {
        let upstream = BitRate::from_bits_per_second(upstream).unwrap();
        PacedAckFilter::new(upstream, 40, TimeSpan::from_milliseconds(100))
    }

    #[test]
    fn no_ack_waits_longer_than_its_time_out() {
        // A second for each ACK of one of ten flows.
        let mut filter = filter(3200);
        filter.handle_active_flows(10);
        assert_eq!(filter.acknowledge(at(0), &ONE), AckVerdict::Pass);
        let mut held = None;
        for time in (7..60_000).step_by(7) {
            let since = held.filter(|since| time < since + 100).unwrap_or(time);
            held = Some(since);
            let verdict = filter.acknowledge(at(time), &ONE);
            assert_eq!(verdict, AckVerdict::HoldUntil(at(since + 100)), "{time}");
        }
        // The others have ended: the link is busy for what a device queues, and not for minutes.
        filter.handle_active_flows(1);
        let verdict = filter.acknowledge(at(63_200), &ONE);
        assert_eq!(verdict, AckVerdict::Pass);
    }

    #[test]
    fn one_ack_waits_for_the_link_and_the_newest_takes_its_place() {
        let mut filter = filter(32_000);
        assert_eq!(filter.acknowledge(at(0), &ONE), AckVerdict::Pass);
        for time in 1..10 {
            assert_eq!(
                filter.acknowledge(at(time), &ONE),
                AckVerdict::HoldUntil(at(10))
            );
        }
        // The newest ACK left at 10 ms, so the link is busy until 20 ms.
        assert_eq!(
            filter.acknowledge(at(12), &ONE),
            AckVerdict::HoldUntil(at(20))
        );
        assert_eq!(filter.acknowledge(at(35), &ONE), AckVerdict::Pass);
        // Urgent ACKs leave at once, and the link is busy for as long as they need.
        let duplicate = AckSample {
            duplicate: true,
            newly_covered: 0,
            ..ONE
        };
        for _ in 0..3 {
            assert_eq!(
                filter.acknowledge(at(36), &duplicate),
                AckVerdict::PassAfterHeld
            );
        }
        assert_eq!(
            filter.acknowledge(at(37), &ONE),
            AckVerdict::HoldUntil(at(75))
        );
        // After three duplicates, a newer duplicate replaces the ACK that waits, if its SACK blocks contain all
        // blocks of that ACK, and more.
        let grows = AckSample {
            selective: true,
            selection_grows: true,
            ..duplicate
        };
        for time in [76, 80, 84] {
            let verdict = filter.acknowledge(at(time), &grows);
            assert_eq!(verdict, AckVerdict::HoldUntil(at(85)));
        }
        let other = AckSample {
            selection_grows: false,
            ..grows
        };
        let verdict = filter.acknowledge(at(84), &other);
        assert_eq!(verdict, AckVerdict::PassAfterHeld);
        // One of four flows: each of its ACKs leaves room for three others.
        filter.handle_active_flows(4);
        assert_eq!(filter.acknowledge(at(200), &ONE), AckVerdict::Pass);
        assert_eq!(
            filter.acknowledge(at(201), &ONE),
            AckVerdict::HoldUntil(at(240))
        );
    }
}
