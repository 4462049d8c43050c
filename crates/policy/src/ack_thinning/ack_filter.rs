//! ACK filtering: a newer ACK takes the place of an older one that waits for the narrow link
//! (AF; Tam §2.3, §4.2; RFC 3449 §5.2.1).

use midspan_units::{BitRate, Time, TimeSpan};

use super::receiver_round_trip::is_before;
use crate::{AckPolicy, AckSample, AckVerdict};

/// Which waiting ACKs a newer one makes superfluous.
///
/// The rules of RFC 3449 §5.2.1 and of the queue discipline CAKE: both are pure ACKs of one flow;
/// the newer acknowledges more; the older is not urgent, so it is no duplicate, has no SACK block,
/// updates no window, fills no gap, begins or ends no ECN echo; and between the two the ECN echo
/// does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckFilter {
    /// So many older ACKs of a flow stay in the queue beside the newest. 0 is the filter of the
    /// paper, and CAKE's `ack-filter-aggressive`; with 2 a window keeps three ACKs even where the
    /// upstream is badly congested (Tam §2.3: with one or two, their loss is a time-out).
    pub kept: u32,
}

impl AckFilter {
    /// Whether `older` says nothing that `newer` does not say, where `newer` came after it.
    #[must_use]
    pub const fn supersedes(newer: &AckSample, older: &AckSample) -> bool {
        is_before(older.number, newer.number)
            && !older.is_urgent()
            && !newer.congestion_echo
            && !newer.other
    }
}

/// ACK filtering without a queue to look into: the filter keeps its own account of when the
/// narrow link is free, so that at most one ACK waits, here and not in the device.
///
/// Where several flows share the upstream, each takes an equal part of it
/// ([`AckPolicy::handle_active_flows`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacedAckFilter {
    /// Time that one ACK takes on the link.
    interval: TimeSpan,
    /// Flows that share the link; above zero.
    flows: u32,
    /// When the link is free again.
    free_at: Time,
    held: Option<Time>,
}

impl PacedAckFilter {
    /// Of an upstream of this rate, for ACKs of `ack_size` bytes at the network layer.
    #[must_use]
    pub fn new(upstream: BitRate, ack_size: u32) -> Self {
        Self {
            interval: upstream.transmission_time(u64::from(ack_size)),
            flows: 1,
            free_at: Time::ZERO,
            held: None,
        }
    }

    fn send(&mut self, now: Time) {
        self.free_at = self.free_at.max(now) + self.interval * u64::from(self.flows);
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
        AckVerdict::HoldUntil(*self.held.get_or_insert(self.free_at))
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
        // A newer one with another ECN echo, or a FIN, does not say what the older says.
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
        // SACK blocks in the newer take nothing from the older's number.
        assert!(AckFilter::supersedes(
            &AckSample {
                selective: true,
                ..newer
            },
            &ONE
        ));
        // Across the wrap.
        let low = AckSample { number: 5, ..ONE };
        let high = AckSample {
            number: u32::MAX - 5,
            ..ONE
        };
        assert!(AckFilter::supersedes(&low, &high));
    }

    #[test]
    fn one_ack_waits_for_the_link_and_the_newest_takes_its_place() {
        // 40 bytes at 32 kbit/s are 10 ms.
        let mut filter = PacedAckFilter::new(BitRate::from_bits_per_second(32_000).unwrap(), 40);
        assert_eq!(filter.acknowledge(at(0), &ONE), AckVerdict::Pass);
        for time in 1..10 {
            assert_eq!(
                filter.acknowledge(at(time), &ONE),
                AckVerdict::HoldUntil(at(10))
            );
        }
        // The newest left at 10 ms, so the link is taken until 20 ms.
        assert_eq!(
            filter.acknowledge(at(12), &ONE),
            AckVerdict::HoldUntil(at(20))
        );
        assert_eq!(filter.acknowledge(at(35), &ONE), AckVerdict::Pass);
        // Urgent ones leave, and the link is taken for as long as they need.
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
        // Behind three duplicates the newest stands for those before it, as long as it says all
        // that they say.
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
