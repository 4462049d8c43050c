//! How much unsent data an outbound leg needs in its send buffer (Maki §III, §IV).
//!
//! While the inbound leg waits for a retransmission, the outbound leg sends the data of its send buffer. When
//! this data is used up, the outbound leg starves: that is the harm that Maki analyses. The buffer is large
//! enough if it holds what the outbound leg delivers during such a stall. A stall lasts two round trips of the
//! inbound leg (one until the loss is noticed, another until it is repaired), or as long as the longest recent
//! stall, whichever is longer. In a larger buffer, data only becomes older.
//!
//! The limit of unsent data bounds what waits, so that the kernel still fits the rest of the buffer
//! to the data in flight. The buffer's own size is set only if it must be larger than the kernel
//! would make it.
//!
//! There is no limit in slow start: the delivery rate that was measured is then half of the next one. The data that
//! waits would be used up, and while nothing more is read, the server's window grows by less.

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::LegSample;
use crate::recent_maximum::RecentMaximum;

/// A stall is assumed to last at least this long, because scheduling and sampling take time too …
const SHORTEST_STALL: TimeSpan = TimeSpan::from_milliseconds(20);
/// … and at most this long: after Linux's first time-out on the longest paths, data is only old.
const LONGEST_STALL: TimeSpan = TimeSpan::from_seconds(2);
/// A sample counts for at least this many further samples, and for at most twice as many.
const REMEMBERED: u8 = 32;
/// Lowest limit of unsent data, in bytes: a lower one would cost wake-ups.
const LEAST: u64 = 128 << 10;
/// Highest limit, in bytes; the memory budget bounds it separately.
const MOST: u64 = 64 << 20;
/// The kernel's own growth of a send buffer suffices for at most this many bytes of data. Its limit is usually
/// 4 MiB (`tcp_wmem`), and the kernel's overhead for the data takes about half of that.
const GROWN_BY_KERNEL: u64 = 2 << 20;
/// Changes of at most 1/`NOTABLE` are not worth a system call.
const NOTABLE: u64 = 4;
/// Slow start is over if the delivery rate has not grown by a quarter for this many round trips, and for this time …
const SETTLED_ROUND_TRIPS: u64 = 3;
/// … which is three samples.
const SETTLED_AFTER: TimeSpan = TimeSpan::from_milliseconds(300);

/// The changes of the buffers of the outbound leg. `None`: no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferSizes {
    /// The limit of unsent data.
    pub not_sent_limit: Option<ByteSize>,
    /// The size of the send buffer: room for unsent and for unacknowledged data.
    pub send_buffer: Option<ByteSize>,
}

/// Computes the sizes for one leg of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendBuffer {
    delivered: RecentMaximum,
    stalls: RecentMaximum,
    received: u64,
    progress: Option<Time>,
    slow_start: SlowStart,
    limit: u64,
    size: u64,
}

/// Whether a leg is in its first slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SlowStart {
    is_over: bool,
    /// The delivery rate in bit/s, as it was when it had last grown by a quarter, and when that was.
    rate: u64,
    grown: Time,
}

impl SlowStart {
    /// Takes a reading of the leg, with its largest recent delivery rate in bit/s; returns whether slow start is over.
    fn is_over(&mut self, now: Time, rate: u64, leg: &LegSample) -> bool {
        let has_grown = rate > self.rate.saturating_add(self.rate / 4);
        if has_grown {
            (self.rate, self.grown) = (rate, now);
        }
        let round_trip = leg.round_trip_time.unwrap_or_default();
        let settled = (round_trip * SETTLED_ROUND_TRIPS).max(SETTLED_AFTER);
        // BBR has no threshold until it has found the path full.
        self.is_over |= leg.slow_start_threshold.is_some() || now.since(self.grown) >= settled;
        self.is_over
    }
}

impl Default for SendBuffer {
    fn default() -> Self {
        Self {
            delivered: RecentMaximum::new(REMEMBERED),
            stalls: RecentMaximum::new(REMEMBERED),
            received: 0,
            progress: None,
            slow_start: SlowStart::default(),
            limit: 0,
            size: 0,
        }
    }
}

impl SendBuffer {
    /// Takes a reading of the inbound leg and of the outbound leg.
    pub fn handle_sample(
        &mut self,
        now: Time,
        inbound: &LegSample,
        outbound: &LegSample,
    ) -> BufferSizes {
        let received = inbound.bytes_received.bytes();
        let Some(progress) = self.progress else {
            (self.received, self.progress) = (received, Some(now));
            return BufferSizes::default();
        };
        if received != self.received {
            // Longer stalls are pauses of the sender.
            let stall = now.since(progress);
            if stall <= LONGEST_STALL {
                self.stalls.add(stall.nanoseconds());
            }
            (self.received, self.progress) = (received, Some(now));
        }
        let Some(rate) = outbound.delivery_rate else {
            return BufferSizes::default();
        };
        self.delivered.add(rate.bits_per_second());
        let Some(rate) = BitRate::from_bits_per_second(self.delivered.get()) else {
            return BufferSizes::default();
        };
        let is_settled = (self.slow_start).is_over(now, rate.bits_per_second(), outbound);
        let waiting = rate.bytes_in(self.stall(inbound)).clamp(LEAST, MOST);
        let in_flight = outbound.minimum_round_trip_time.unwrap_or_default();
        // Twice, so that the congestion window can grow.
        let size = (2 * rate.bytes_in(in_flight).min(MOST)).saturating_add(waiting);
        BufferSizes {
            not_sent_limit: match is_settled {
                true => self.changed_limit(waiting),
                false => None,
            },
            send_buffer: self.grown_size(size.min(MOST)),
        }
    }

    fn stall(&self, inbound: &LegSample) -> TimeSpan {
        let round_trip = inbound.round_trip_time.unwrap_or_default();
        // Even evenly arriving data looks like a stall of one sample.
        let seen = TimeSpan::from_nanoseconds(self.stalls.get());
        (round_trip * 2)
            .max(seen)
            .clamp(SHORTEST_STALL, LONGEST_STALL)
    }

    fn changed_limit(&mut self, limit: u64) -> Option<ByteSize> {
        if limit.abs_diff(self.limit) <= self.limit / NOTABLE {
            return None;
        }
        self.limit = limit;
        Some(ByteSize::from_bytes(limit))
    }

    /// A fixed size ends the kernel's own growth, so the size is never reduced.
    fn grown_size(&mut self, size: u64) -> Option<ByteSize> {
        if size <= GROWN_BY_KERNEL || size <= self.size.saturating_add(self.size / NOTABLE) {
            return None;
        }
        self.size = size;
        Some(ByteSize::from_bytes(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEP: TimeSpan = TimeSpan::from_milliseconds(100);

    fn sizes(inbound_rtt: u64, outbound_rtt: u64, rate: &str, stall: u64) -> BufferSizes {
        let mut buffer = SendBuffer::default();
        let mut last = BufferSizes::default();
        let mut now = Time::ZERO;
        for turn in 0..20 {
            now += STEP;
            if turn == 10 {
                now += TimeSpan::from_milliseconds(stall);
            }
            let inbound = LegSample {
                round_trip_time: Some(TimeSpan::from_milliseconds(inbound_rtt)),
                bytes_received: ByteSize::from_bytes(turn * 1000),
                ..LegSample::default()
            };
            let outbound = LegSample {
                minimum_round_trip_time: Some(TimeSpan::from_milliseconds(outbound_rtt)),
                delivery_rate: Some(rate.parse().unwrap()),
                slow_start_threshold: Some(100),
                ..LegSample::default()
            };
            let changed = buffer.handle_sample(now, &inbound, &outbound);
            last.not_sent_limit = changed.not_sent_limit.or(last.not_sent_limit);
            last.send_buffer = changed.send_buffer.or(last.send_buffer);
        }
        last
    }

    #[test]
    fn what_waits_lasts_for_two_round_trips_of_the_inbound_leg() {
        // 40 Mbit/s for 0.5 s, and for 0.4 s of two round trips twice what is in flight.
        let changed = sizes(250, 400, "40 Mbit/s", 0);
        assert_eq!(
            changed.not_sent_limit,
            Some(ByteSize::from_bytes(2_500_000))
        );
        assert_eq!(changed.send_buffer, Some(ByteSize::from_bytes(6_500_000)));
    }

    #[test]
    fn a_longer_stall_that_was_seen_counts_and_a_pause_does_not() {
        let seen = sizes(20, 20, "40 Mbit/s", 900).not_sent_limit;
        assert_eq!(seen, Some(ByteSize::from_bytes(5_000_000)));
        let pause = sizes(20, 20, "40 Mbit/s", 5000).not_sent_limit;
        assert_eq!(pause, Some(ByteSize::from_bytes(500_000)));
    }

    #[test]
    fn small_needs_are_left_to_the_kernel() {
        let changed = sizes(1, 600, "2 Mbit/s", 0);
        assert_eq!(changed.not_sent_limit, Some(ByteSize::from_bytes(LEAST)));
        assert_eq!(changed.send_buffer, None);
    }

    /// The number of the reading, one each 100 ms, at which there is a limit of unsent data for the first time, if
    /// these are the delivery rates in Mbit/s.
    fn limited_at(round_trip: u64, threshold: Option<u32>, rates: &[u64]) -> Option<usize> {
        let mut buffer = SendBuffer::default();
        let mut now = Time::ZERO;
        rates.iter().position(|rate| {
            now += STEP;
            let outbound = LegSample {
                round_trip_time: Some(TimeSpan::from_milliseconds(round_trip)),
                delivery_rate: BitRate::from_bits_per_second(rate * 1_000_000),
                slow_start_threshold: threshold,
                ..LegSample::default()
            };
            let sizes = buffer.handle_sample(now, &LegSample::default(), &outbound);
            sizes.not_sent_limit.is_some()
        })
    }

    #[test]
    fn there_is_no_limit_in_slow_start() {
        // The first reading only begins the measurement of stalls.
        assert_eq!(limited_at(100, Some(50), &[1, 2, 4]), Some(1));
        assert_eq!(limited_at(100, None, &[1, 2, 4, 8, 16, 32]), None);
        let settles = [1, 2, 4, 8, 8, 9, 8, 8];
        assert_eq!(limited_at(100, None, &settles), Some(6));
        assert_eq!(limited_at(10, None, &settles), Some(6));
        // Over a long path, the rate of one flight stands for six readings.
        assert_eq!(limited_at(600, None, &[4; 30]), Some(19));
    }

    proptest! {
        #[test]
        fn sizes_are_bounded_and_buffers_never_shrink(
            readings in proptest::collection::vec(
                (0_u64..u64::MAX, 0_u64..10_000_000_000, 0_u64..u64::MAX, 0_u64..5_000), 1..60),
        ) {
            let mut buffer = SendBuffer::default();
            let (mut now, mut size) = (Time::ZERO, 0);
            for (rate, time, received, pause) in readings {
                now += TimeSpan::from_milliseconds(pause);
                let inbound = LegSample {
                    round_trip_time: Some(TimeSpan::from_nanoseconds(time)),
                    bytes_received: ByteSize::from_bytes(received),
                    ..LegSample::default()
                };
                let outbound = LegSample {
                    minimum_round_trip_time: Some(TimeSpan::from_nanoseconds(time)),
                    delivery_rate: BitRate::from_bits_per_second(rate),
                    ..LegSample::default()
                };
                let changed = buffer.handle_sample(now, &inbound, &outbound);
                if let Some(limit) = changed.not_sent_limit {
                    prop_assert!((LEAST..=MOST).contains(&limit.bytes()));
                }
                if let Some(new) = changed.send_buffer {
                    prop_assert!(new.bytes() > size && new.bytes() <= MOST);
                    size = new.bytes();
                }
            }
        }
    }
}
