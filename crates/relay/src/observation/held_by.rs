//! What holds a session back: the share of each reason in the time between two readings.
//!
//! The kernel measures for how long a sender has had data (`tcpi_busy_time`), and for how long in this time
//! the receiver's window (`tcpi_rwnd_limited`) or the send buffer (`tcpi_sndbuf_limited`) was the limit. For
//! the rest of this time the network was the limit: loss, if bytes were retransmitted although no queue had
//! built up, otherwise the link. While the sender had no data, its source was the limit.

use midspan_policy::LegSample;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

/// From this share of retransmitted bytes on, losses count as notable: the default of the analysis
/// for a lossy path.
const NOTABLE_LOSS: f64 = 0.001;

/// A queue shorter than this is not notable: the kernel's clocks and delayed ACKs cause as much.
const NOTABLE_QUEUE: TimeSpan = TimeSpan::from_milliseconds(20);

/// A reason that holds a session back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The link: as much data is on the way as it takes.
    Link,
    /// Losses without a queue keep the congestion window small.
    Loss,
    /// The window of the host that receives the data.
    Window,
    /// The host that sends the data has none to send.
    Source,
    /// Midspan's send buffer.
    Buffer,
}

/// Shares of the time, from 0 to 1; their sum is 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HeldBy {
    /// [`Limit::Link`].
    pub link: f32,
    /// [`Limit::Loss`].
    pub loss: f32,
    /// [`Limit::Window`].
    pub window: f32,
    /// [`Limit::Source`].
    pub source: f32,
    /// [`Limit::Buffer`].
    pub buffer: f32,
}

impl HeldBy {
    /// The reasons with their shares.
    #[must_use]
    pub const fn shares(&self) -> [(Limit, f32); 5] {
        [
            (Limit::Link, self.link),
            (Limit::Loss, self.loss),
            (Limit::Window, self.window),
            (Limit::Source, self.source),
            (Limit::Buffer, self.buffer),
        ]
    }

    /// The reason with the largest share; of equal ones, the first in the order of the type.
    #[must_use]
    pub fn most(&self) -> Limit {
        let mut most = (Limit::Link, self.link);
        for (limit, share) in self.shares() {
            if share > most.1 {
                most = (limit, share);
            }
        }
        most.0
    }

    /// Adds the shares of another session, with a weight, for a mean of several sessions.
    pub fn add(&mut self, other: &Self, weight: f32) {
        self.link += other.link * weight;
        self.loss += other.loss * weight;
        self.window += other.window * weight;
        self.source += other.source * weight;
        self.buffer += other.buffer * weight;
    }
}

/// What is read of a leg for the shares. Counters run from the start of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegReading {
    /// Time with data to send.
    pub busy: TimeSpan,
    /// The part of it in which the peer's window was the limit.
    pub window_limited: TimeSpan,
    /// The part of it in which the send buffer was the limit.
    pub buffer_limited: TimeSpan,
    /// Bytes that the peer has acknowledged.
    pub acknowledged: u64,
    /// Bytes sent again.
    pub retransmitted: u64,
    /// Smoothed round-trip time.
    pub round_trip_time: Option<TimeSpan>,
    /// Smallest round-trip time.
    pub minimum_round_trip_time: Option<TimeSpan>,
    /// There is data that was not sent or not acknowledged.
    pub has_data: bool,
}

impl From<&LegSample> for LegReading {
    fn from(sample: &LegSample) -> Self {
        Self {
            busy: sample.limited.busy,
            window_limited: sample.limited.receive_window,
            buffer_limited: sample.limited.send_buffer,
            acknowledged: sample.bytes_acknowledged.bytes(),
            retransmitted: sample.bytes_retransmitted.bytes(),
            round_trip_time: sample.round_trip_time,
            minimum_round_trip_time: sample.minimum_round_trip_time,
            has_data: sample.unacknowledged > 0 || sample.not_sent.bytes() > 0,
        }
    }
}

impl LegReading {
    /// How much longer the round trip takes than the shortest one.
    #[must_use]
    pub fn queue(&self) -> Option<TimeSpan> {
        let (now, least) = (self.round_trip_time?, self.minimum_round_trip_time?);
        Some(now - least)
    }

    /// The share of retransmitted bytes in all bytes sent; `None` before the first byte.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn retransmitted_ratio(&self) -> Option<f64> {
        ratio(self.retransmitted, self.acknowledged)
    }
}

#[allow(clippy::cast_precision_loss)]
fn ratio(retransmitted: u64, acknowledged: u64) -> Option<f64> {
    let all = retransmitted.saturating_add(acknowledged);
    (all > 0).then(|| retransmitted as f64 / all as f64)
}

/// What held a session back between two readings of the leg that sends its data on; `None` if no
/// time has passed.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn held_by(before: &LegReading, now: &LegReading, passed: TimeSpan) -> Option<HeldBy> {
    let share = |from: TimeSpan, to: TimeSpan| (to - from).as_seconds() / passed.as_seconds();
    if passed == TimeSpan::ZERO {
        return None;
    }
    // The kernel's clock for these has ticks of some milliseconds, so the parts may exceed the whole.
    let busy = share(before.busy, now.busy).min(1.0);
    let window = share(before.window_limited, now.window_limited).min(busy);
    let buffer = share(before.buffer_limited, now.buffer_limited).min(busy - window);
    let network = (busy - window - buffer).max(0.0);
    let is_loss = is_loss(before, now);
    Some(HeldBy {
        link: if is_loss { 0.0 } else { network as f32 },
        loss: if is_loss { network as f32 } else { 0.0 },
        window: window as f32,
        source: (1.0 - busy) as f32,
        buffer: buffer as f32,
    })
}

/// Whether losses, and not the link's rate, are the limit: there were losses although no queue has
/// built up. Losses at a full queue are the link's own.
fn is_loss(before: &LegReading, now: &LegReading) -> bool {
    let lost = ratio(
        now.retransmitted.saturating_sub(before.retransmitted),
        now.acknowledged.saturating_sub(before.acknowledged),
    );
    let least = now.minimum_round_trip_time.unwrap_or_default();
    let notable = NOTABLE_QUEUE.max(least / 4);
    let has_queue = now.queue().is_some_and(|queue| queue >= notable);
    lost.is_some_and(|lost| lost >= NOTABLE_LOSS) && !has_queue
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(seconds: f64) -> TimeSpan {
        TimeSpan::from_milliseconds((seconds * 1000.0) as u64)
    }

    /// A second of a satellite's leg.
    fn leg(busy: f64, window: f64, buffer: f64) -> LegReading {
        LegReading {
            busy: seconds(busy),
            window_limited: seconds(window),
            buffer_limited: seconds(buffer),
            acknowledged: 1_000_000,
            retransmitted: 0,
            round_trip_time: Some(seconds(0.570)),
            minimum_round_trip_time: Some(seconds(0.560)),
            has_data: busy > 0.0,
        }
    }

    fn judged(now: &LegReading) -> Limit {
        let all = held_by(&LegReading::default(), now, seconds(1.0)).unwrap();
        let sum: f32 = all.shares().iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{all:?}");
        all.most()
    }

    #[test]
    fn each_limit_is_found() {
        assert_eq!(judged(&leg(1.0, 0.0, 0.0)), Limit::Link);
        assert_eq!(judged(&leg(1.0, 0.9, 0.0)), Limit::Window);
        assert_eq!(judged(&leg(1.0, 0.1, 0.8)), Limit::Buffer);
        assert_eq!(judged(&leg(0.06, 0.0, 0.0)), Limit::Source);
        let lossy = LegReading {
            retransmitted: 9000,
            ..leg(1.0, 0.0, 0.0)
        };
        assert_eq!(judged(&lossy), Limit::Loss);
    }

    #[test]
    fn losses_at_a_full_queue_are_the_links() {
        let full = LegReading {
            retransmitted: 9000,
            round_trip_time: Some(seconds(0.742)),
            ..leg(1.0, 0.0, 0.0)
        };
        assert_eq!(judged(&full), Limit::Link);
        assert_eq!(full.queue(), Some(seconds(0.182)));
        // Earlier losses do not count.
        let before = LegReading {
            retransmitted: 9000,
            ..leg(1.0, 0.0, 0.0)
        };
        let now = LegReading {
            busy: seconds(2.0),
            acknowledged: 2_000_000,
            ..before
        };
        let all = held_by(&before, &now, seconds(1.0)).unwrap();
        assert_eq!(all.most(), Limit::Link);
    }

    #[test]
    fn an_idle_session_waits_for_its_source() {
        let idle = leg(0.0, 0.0, 0.0);
        assert_eq!(judged(&idle), Limit::Source);
        assert_eq!(held_by(&idle, &idle, TimeSpan::ZERO), None);
        assert_eq!(LegReading::default().retransmitted_ratio(), None);
    }

    proptest! {
        /// Whatever the kernel's counters do, the shares are shares.
        #[test]
        fn shares_are_from_0_to_1(
            before in any::<[u32; 5]>(),
            now in any::<[u32; 5]>(),
            passed in 1_u64..1 << 40,
        ) {
            let leg = |of: [u32; 5]| LegReading {
                busy: TimeSpan::from_nanoseconds(u64::from(of[0]) << 8),
                window_limited: TimeSpan::from_nanoseconds(u64::from(of[1]) << 8),
                buffer_limited: TimeSpan::from_nanoseconds(u64::from(of[2]) << 8),
                acknowledged: of[3].into(),
                retransmitted: of[4].into(),
                ..LegReading::default()
            };
            let all = held_by(&leg(before), &leg(now), TimeSpan::from_nanoseconds(passed)).unwrap();
            let sum: f32 = all.shares().iter().map(|(_, share)| share).sum();
            prop_assert!((sum - 1.0).abs() < 1e-3);
            for (_, share) in all.shares() {
                prop_assert!((0.0..=1.0).contains(&share), "{all:?}");
            }
        }
    }
}
