//! More packets per ACK while the upstream limits the download and the downstream has room.

use midspan_units::{Time, TimeSpan};

/// With a round trip of this multiple of its shortest value, there is a standing queue.
const QUEUE_FACTOR: u64 = 2;
/// The fastest arrivals are measured over this many segments: an initial window that arrives at
/// once has ten.
const RUN: u64 = 8;
/// Arrivals that are kept: a run of ACKs for one segment needs one more than [`RUN`].
const KEPT: usize = 9;
/// The part of the downstream's rate in percent up to which the maximum may rise. Segments arrive in
/// bursts, one for each ACK. In the simulator, a larger part made these bursts overflow a queue of 20
/// packets; the recoveries then cost more than the larger maximum gained.
const USED: u128 = 50;
/// From one round trip to the next, the maximum rises by this factor at most.
const GROWTH: u32 = 2;

/// The largest number of packets for one ACK while the upstream limits the download.
///
/// The upstream counts as the limit if the round trip is at least twice its shortest value, which shows a
/// standing queue, and segments arrive at less than half the rate of the downstream. That rate is taken from
/// the fastest run of segments so far. The maximum then rises, at most twofold in a round trip, towards the
/// number at which segments arrive at half that rate. If segments arrive faster, the maximum falls to that
/// number. Congestion halves the maximum. The maximum is never below the usual one.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamLimit {
    now: u32,
    most: u32,
    /// When the maximum was last set.
    changed: Option<Time>,
    shortest_rtt: Option<TimeSpan>,
    /// The times of the last arrivals and the number of segments until then, the newest first.
    arrivals: [Option<(Time, u64)>; KEPT],
    /// The least time for a segment, as a mean over a run.
    shortest_gap: Option<TimeSpan>,
}

impl UpstreamLimit {
    /// A maximum that rises to `most`.
    pub const fn new(most: u32) -> Self {
        Self {
            now: 1,
            most,
            changed: None,
            shortest_rtt: None,
            arrivals: [None; KEPT],
            shortest_gap: None,
        }
    }

    /// The maximum.
    pub const fn now(&self) -> u32 {
        self.now
    }

    /// A round trip was measured.
    pub fn handle_round_trip(&mut self, span: TimeSpan) {
        let shortest = self.shortest_rtt.unwrap_or(span);
        self.shortest_rtt = Some(shortest.min(span));
    }

    /// `segments` packets arrived.
    pub fn handle_arrival(&mut self, now: Time, segments: u32) {
        if segments == 0 {
            return;
        }
        let [newest, ..] = self.arrivals;
        let count = newest.map_or(0, |(_, count)| count) + u64::from(segments);
        let mut known = self.arrivals.iter().flatten();
        if let Some((since, before)) = known.find(|(_, then)| count - then >= RUN) {
            let gap = now.since(*since) / (count - before);
            let shortest = self.shortest_gap.unwrap_or(gap);
            self.shortest_gap = Some(shortest.min(gap));
        }
        self.arrivals.rotate_right(1);
        let [newest, ..] = &mut self.arrivals;
        *newest = Some((now, count));
    }

    /// Sets the maximum, at most once a round trip. `recent` segments arrived in the last round trip.
    /// `least` is the usual maximum, and `share` the largest number that the window allows.
    pub fn adapt(
        &mut self,
        now: Time,
        recent: u32,
        round_trip: TimeSpan,
        (least, share): (u32, u32),
    ) {
        self.now = self.now.max(least);
        let changed = *self.changed.get_or_insert(now);
        let (Some(gap), Some(shortest)) = (self.shortest_gap, self.shortest_rtt) else {
            return;
        };
        if recent == 0 || now.since(changed) < round_trip {
            return;
        }
        self.changed = Some(now);
        // A larger maximum has no effect while the window limits.
        let has_queue = round_trip >= shortest * QUEUE_FACTOR;
        let factor = if has_queue && share > self.now {
            GROWTH
        } else {
            1
        };
        let carried = u128::from(recent) * u128::from(gap.nanoseconds().max(1)) * 100;
        let room = u128::from(self.now) * u128::from(round_trip.nanoseconds()) * USED / carried;
        let target = u32::try_from(room).unwrap_or(u32::MAX);
        let target = target.min(self.now.saturating_mul(factor));
        self.now = target.clamp(least, self.most.max(least));
    }

    /// Three duplicate ACKs were sent, or a silence was longer than `rcv_RTO`. `least` is the usual
    /// maximum.
    pub fn handle_congestion(&mut self, now: Time, least: u32) {
        self.now = (self.now / 2).max(least);
        self.changed = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> TimeSpan {
        TimeSpan::from_milliseconds(milliseconds)
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + ms(milliseconds)
    }

    /// A limit of 16 that has seen ten segments in 30 ms, and a round trip of 100 ms.
    fn limit() -> UpstreamLimit {
        let mut limit = UpstreamLimit::new(16);
        limit.handle_round_trip(ms(100));
        for segment in 0..10 {
            limit.handle_arrival(at(3 * segment), 1);
        }
        assert_eq!(limit.shortest_gap, Some(ms(3)));
        limit.adapt(at(30), 10, ms(400), (5, 40));
        assert_eq!(limit.now(), 5);
        limit
    }

    #[test]
    fn it_rises_once_a_round_trip_while_the_downstream_has_room() {
        let mut limit = limit();
        // 400 ms carry 133 segments; 30 arrived. 5 × 0.5 × 133 / 30 = 11.1, but twice 5 is less.
        limit.adapt(at(429), 30, ms(400), (5, 40));
        assert_eq!(limit.now(), 5);
        limit.adapt(at(430), 30, ms(400), (5, 40));
        assert_eq!(limit.now(), 10);
        limit.adapt(at(830), 50, ms(400), (5, 40));
        assert_eq!(limit.now(), 13);
        // Now more than half of the rate arrives.
        limit.adapt(at(1230), 100, ms(400), (5, 40));
        assert_eq!(limit.now(), 8);
        limit.adapt(at(1630), 133, ms(400), (5, 40));
        assert_eq!(limit.now(), 5);
    }

    #[test]
    fn without_a_queue_or_a_large_window_it_does_not_rise() {
        let mut unqueued = limit();
        unqueued.adapt(at(430), 10, ms(199), (5, 40));
        assert_eq!(unqueued.now(), 5);
        let mut limited = limit();
        limited.adapt(at(430), 10, ms(400), (5, 5));
        assert_eq!(limited.now(), 5);
        // And never beyond its limit.
        let mut limit = limit();
        for round in 1..9 {
            limit.adapt(at(30 + 400 * round), 1, ms(400), (5, 40));
        }
        assert_eq!(limit.now(), 16);
    }

    #[test]
    fn congestion_halves_it_down_to_the_usual_maximum() {
        let mut limit = limit();
        limit.adapt(at(430), 10, ms(400), (5, 40));
        limit.adapt(at(830), 10, ms(400), (5, 40));
        assert_eq!(limit.now(), 16);
        limit.handle_congestion(at(900), 5);
        assert_eq!(limit.now(), 8);
        limit.adapt(at(1299), 10, ms(400), (5, 40));
        assert_eq!(limit.now(), 8);
        limit.handle_congestion(at(1300), 5);
        assert_eq!(limit.now(), 5);
    }

    #[test]
    fn arrivals_without_time_or_number_are_harmless() {
        let mut limit = UpstreamLimit::new(0);
        for _ in 0..20 {
            limit.handle_arrival(at(0), u32::MAX);
            limit.handle_arrival(at(0), 0);
        }
        limit.handle_round_trip(TimeSpan::ZERO);
        limit.adapt(at(0), u32::MAX, TimeSpan::ZERO, (5, 0));
        limit.adapt(at(1), u32::MAX, TimeSpan::ZERO, (5, u32::MAX));
        assert_eq!(limit.now(), 5);
    }
}
