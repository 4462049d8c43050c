//! The delivery rate, estimated from ACKs as in Linux's `tcp_rate.c`
//! (draft-cheng-iccrg-delivery-rate-estimation).
//!
//! Every segment carries a [`Snapshot`] of the connection's deliveries at the time it was sent. The
//! ACK that acknowledges it gives a [`RateSample`]: the segments that were delivered in between,
//! and the longer of the times in which they were sent and acknowledged. Segments are counted, not
//! bytes.

use midspan_units::{Time, TimeSpan};

/// Deliveries of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct DeliveryRate {
    /// Segments delivered in total: acknowledged or selectively acknowledged.
    delivered: u64,
    /// When `delivered` last grew, or when sending began after everything had been acknowledged.
    delivered_at: Time,
    /// When the segment was sent that was sent last among the delivered ones.
    first_sent: Time,
    /// The flow is limited by its application until this many segments are delivered.
    application_limited: Option<u64>,
    /// The newest sample that the application did not limit, or a higher one that it did: number of
    /// segments and time.
    newest: Option<(u64, TimeSpan)>,
}

/// The deliveries at the time at which a segment was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot {
    sent: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    application_limited: bool,
}

/// The newest delivered segment of an ACK, on which its sample is based.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NewestDelivered(Option<Newest>);

#[derive(Debug, Clone, Copy)]
struct Newest {
    snapshot: Snapshot,
    end: u64,
}

/// The deliveries between a segment and its ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RateSample {
    /// Number of segments delivered in total when the segment was sent.
    pub(super) prior_delivered: u64,
    /// Number of segments delivered since then.
    pub(super) delivered: u64,
    /// The time that they took; `None`: it is too short to be true.
    pub(super) interval: Option<TimeSpan>,
    /// The application had too little data when the segment was sent.
    pub(super) is_application_limited: bool,
}

impl DeliveryRate {
    /// A segment is about to be sent; `idle`: no other is unacknowledged.
    pub(super) const fn handle_sent(&mut self, now: Time, idle: bool) -> Snapshot {
        if idle {
            self.first_sent = now;
            self.delivered_at = now;
        }
        Snapshot {
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            application_limited: self.application_limited.is_some(),
        }
    }

    /// A segment that ends at `end` is delivered, by an ACK whose newest delivered segment so far is
    /// `newest`.
    pub(super) fn handle_delivered(
        &mut self,
        snapshot: &Snapshot,
        end: u64,
        newest: &mut NewestDelivered,
    ) {
        self.delivered += 1;
        let is_newer = |known: Newest| (snapshot.sent, end) > (known.snapshot.sent, known.end);
        if newest.0.is_none_or(is_newer) {
            newest.0 = Some(Newest {
                snapshot: *snapshot,
                end,
            });
        }
    }

    /// The whole ACK was processed. `any`: it delivered something; `least`: the shortest round trip.
    pub(super) fn sample(
        &mut self,
        now: Time,
        newest: NewestDelivered,
        least: Option<TimeSpan>,
    ) -> Option<RateSample> {
        self.application_limited = self
            .application_limited
            .filter(|until| self.delivered <= *until);
        let Newest { snapshot, .. } = newest.0?;
        self.delivered_at = now;
        self.first_sent = snapshot.sent;
        let sending = snapshot.sent.since(snapshot.first_sent);
        let acknowledging = now.since(snapshot.delivered_at);
        let interval = sending.max(acknowledging);
        let delivered = self.delivered - snapshot.delivered;
        let is_possible = interval > TimeSpan::ZERO && least.is_none_or(|least| interval >= least);
        if is_possible && (!snapshot.application_limited || self.is_higher(delivered, interval)) {
            self.newest = Some((delivered, interval));
        }
        Some(RateSample {
            prior_delivered: snapshot.delivered,
            delivered,
            interval: is_possible.then_some(interval),
            is_application_limited: snapshot.application_limited,
        })
    }

    fn is_higher(&self, delivered: u64, interval: TimeSpan) -> bool {
        self.newest.is_none_or(|(count, span)| {
            let product =
                |count: u64, span: TimeSpan| u128::from(count) * u128::from(span.nanoseconds());
            product(delivered, span) >= product(count, interval)
        })
    }

    /// The application has too little data: samples of segments that are sent before everything in
    /// flight is delivered are lower than the path allows.
    pub(super) const fn limit_by_application(&mut self, in_flight: u64) {
        let until = self.delivered + in_flight;
        self.application_limited = Some(if until == 0 { 1 } else { until });
    }

    pub(super) const fn is_application_limited(&self) -> bool {
        self.application_limited.is_some()
    }

    /// Number of segments delivered so far.
    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// When the number of delivered segments last grew.
    pub(super) const fn delivered_at(&self) -> Time {
        self.delivered_at
    }

    /// The delivery rate of `TCP_INFO`: segments, and the time they took.
    pub(super) const fn newest(&self) -> Option<(u64, TimeSpan)> {
        self.newest
    }
}

impl Snapshot {
    /// When the segment was sent.
    pub(super) const fn sent(&self) -> Time {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn ms(milliseconds: u64) -> TimeSpan {
        TimeSpan::from_milliseconds(milliseconds)
    }

    fn delivered(rate: &mut DeliveryRate, now: u64, segments: &[(Snapshot, u64)]) -> RateSample {
        let mut newest = NewestDelivered::default();
        for (snapshot, end) in segments {
            rate.handle_delivered(snapshot, *end, &mut newest);
        }
        rate.sample(at(now), newest, Some(ms(100))).unwrap()
    }

    #[test]
    fn a_sample_counts_what_was_delivered_since_the_segment_was_sent() {
        let mut rate = DeliveryRate::default();
        let sent: Vec<_> = (0..4)
            .map(|n| (rate.handle_sent(at(10 * n), n == 0), n + 1))
            .collect();
        // One segment after 100 ms: the time runs from the start of sending.
        let first = delivered(&mut rate, 100, &sent[..1]);
        assert_eq!((first.delivered, first.interval), (1, Some(ms(100))));
        // The fourth was sent before anything was delivered: four segments in 130 ms.
        let rest = delivered(&mut rate, 130, &sent[1..]);
        assert_eq!((rest.delivered, rest.interval), (4, Some(ms(130))));
        assert_eq!((rest.prior_delivered, rate.delivered()), (0, 4));
        assert_eq!(rate.newest(), Some((4, ms(130))));
    }

    #[test]
    fn compressed_acks_count_with_the_time_of_sending() {
        let mut rate = DeliveryRate::default();
        let first = rate.handle_sent(at(0), true);
        delivered(&mut rate, 100, &[(first, 1)]);
        let sent: Vec<_> = (0..5)
            .map(|n| (rate.handle_sent(at(100 + 40 * n), n == 0), n + 2))
            .collect();
        // All ACKs come at once, 100 ms after the last segment: sending took 160 ms, ACKs 260 ms.
        let all = delivered(&mut rate, 360, &sent);
        assert_eq!((all.delivered, all.interval), (5, Some(ms(260))));
    }

    #[test]
    fn an_interval_below_the_shortest_round_trip_is_no_sample() {
        let mut rate = DeliveryRate::default();
        let sent = rate.handle_sent(at(0), true);
        let sample = delivered(&mut rate, 99, &[(sent, 1)]);
        assert_eq!(sample.interval, None);
        assert_eq!(rate.newest(), None);
    }

    #[test]
    fn samples_are_limited_by_the_application_until_its_gap_is_delivered() {
        let mut rate = DeliveryRate::default();
        let first = (rate.handle_sent(at(0), true), 1);
        rate.limit_by_application(1);
        let second = (rate.handle_sent(at(50), false), 2);
        assert!(!delivered(&mut rate, 100, &[first]).is_application_limited);
        assert!(rate.is_application_limited());
        assert!(delivered(&mut rate, 150, &[second]).is_application_limited);
        // Two are delivered, so the gap after the first is gone.
        assert!(!rate.is_application_limited());
    }
}
