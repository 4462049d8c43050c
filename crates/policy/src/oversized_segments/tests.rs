use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use midspan_units::{BitRate, ByteSize, Time, TimeSpan};
use proptest::prelude::*;

use super::*;
use crate::LegSample;

const OWN: u32 = 1460;

fn rate(text: &str) -> Option<BitRate> {
    Some(text.parse().unwrap())
}

fn measured() -> Measured {
    Measured {
        own: OWN,
        downstream: rate("8 Mbit/s"),
        upstream: rate("32 kbit/s"),
        window: ByteSize::from_bytes(1 << 20),
        sent: 1000,
        sent_again: 0,
        sent_size: OWN,
        round_trip: TimeSpan::from_milliseconds(100),
    }
}

fn auto() -> Vec<u32> {
    SegmentSizes::Auto.sizes(rate("8 Mbit/s"), rate("32 kbit/s"))
}

#[test]
fn sizes_fill_their_fragments() {
    // k is 8.7: nine fragments.
    assert_eq!(auto(), [4420, 8860, 13_300]);
    assert_eq!(SegmentSizes::Auto.sizes(None, None), [4420, 8860, 13_300]);
    let narrower = SegmentSizes::Auto.sizes(rate("8 Mbit/s"), rate("16 kbit/s"));
    assert_eq!(narrower, [4420, 8860, 13_300, 26_620]);
    assert_eq!(SegmentSizes::Fixed(4420).sizes(None, None), [4420]);
    assert_eq!(
        SegmentSizes::Fixed(70_000).sizes(None, None),
        [size::LARGEST]
    );
    assert!(SegmentSizes::Off.sizes(None, None).is_empty());
}

#[test]
fn the_size_follows_k_the_window_and_loss() {
    assert_eq!(measured().choose(&auto()), Some(13_300));
    let wider = Measured {
        upstream: rate("128 kbit/s"),
        ..measured()
    };
    assert_eq!(wider.choose(&auto()), Some(4420));
    // The client's window must have room for a fast retransmit.
    let window = |bytes| Measured {
        window: ByteSize::from_bytes(bytes),
        ..measured()
    };
    assert_eq!(window(65_535).choose(&auto()), Some(13_300));
    assert_eq!(window(30_000).choose(&auto()), Some(8860));
    assert_eq!(window(17_520).choose(&auto()), Some(4420));
    assert_eq!(window(8_000).choose(&auto()), None);
    // Only a clean path allows more than the paper's factor.
    let loss = |sent_again| Measured {
        sent_again,
        ..measured()
    };
    assert_eq!(loss(2).choose(&auto()), Some(4420));
    assert_eq!(loss(30).choose(&auto()), None);
    assert_eq!(loss(1000).choose(&auto()), None);
    // A client that accepts large packets by itself.
    let jumbo = Measured {
        own: 8960,
        ..measured()
    };
    assert_eq!(jumbo.choose(&[4420]), None);
}

/// A leg with a kernel that applies each decision, and a distant client.
struct Leg {
    state: OversizedSegments,
    now: u64,
    acknowledged: u64,
    segments: u32,
    timeouts: u32,
    under_way: u32,
    sent_again: u32,
    threshold: Option<u32>,
    slow_start_again: bool,
}

impl Leg {
    fn new(known: Option<Verdict>) -> Self {
        let sizes: Arc<[u32]> = auto().into();
        let (down, up) = (rate("8 Mbit/s"), rate("32 kbit/s"));
        Self {
            state: OversizedSegments::new(sizes, OWN, down, up, known),
            now: 0,
            acknowledged: 0,
            segments: 0,
            timeouts: 0,
            under_way: 0,
            sent_again: 0,
            threshold: None,
            slow_start_again: false,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(self.now)
    }

    fn sample(&self) -> LegSample {
        LegSample {
            round_trip_time: Some(TimeSpan::from_milliseconds(100)),
            segment_size: self.state.size(),
            congestion_window: 10,
            peer_window: 1 << 20,
            unacknowledged: self.under_way,
            bytes_acknowledged: ByteSize::from_bytes(self.acknowledged),
            segments_sent: self.segments,
            segments_retransmitted: self.sent_again,
            slow_start_threshold: self.threshold,
            timeouts_pending: self.timeouts,
            ..LegSample::default()
        }
    }

    fn look(&mut self) -> (u32, Option<u64>, Option<Event>) {
        self.now += 100;
        let sample = self.sample();
        let decision = self.state.handle_sample(self.now(), &sample);
        self.slow_start_again = decision.slow_start_again;
        let cap = decision.in_flight_cap.map(ByteSize::bytes);
        (self.state.size(), cap, self.state.poll_event())
    }

    /// The probe has left; its answer has not arrived.
    fn send_probe(&mut self) {
        self.segments += 1;
        self.under_way = 1;
        // The first retransmission must be of the client's own size.
        assert_eq!(self.look(), (OWN, None, None));
        assert!(!self.state.holds_to_fill());
    }

    /// Ten segments of the client's own size bring what the probe did not.
    fn lose_probe(&mut self) {
        self.send_probe();
        self.segments += 10;
        self.sent_again += 10;
        self.acknowledged += 13_300;
        self.under_way = 0;
    }

    /// Data flows.
    fn flow(&mut self, bytes: u64) {
        let segments = bytes.div_ceil(u64::from(self.state.size()));
        self.segments += u32::try_from(segments).unwrap();
        self.acknowledged += bytes;
    }
}

#[test]
fn a_session_starts_with_the_client_s_own_size_probes_and_raises() {
    let mut leg = Leg::new(None);
    assert_eq!(leg.look(), (OWN, Some(14_600), None));
    leg.flow(14_600);
    // One oversized segment and nothing after it.
    assert_eq!(leg.look(), (13_300, Some(13_300), Some(Event::Probed)));
    assert!(leg.state.holds_to_fill());
    leg.flow(13_300);
    // In flight: the initial window and what was acknowledged since, although the kernel would send
    // 133,000 bytes.
    assert_eq!(leg.look(), (13_300, Some(42_500), Some(Event::Raised)));
    assert_eq!(leg.state.verdict(), Some(Verdict::Accepts));
    leg.flow(133_000);
    let (_, cap, _) = leg.look();
    assert_eq!(cap, Some(u64::MAX));
}

#[test]
fn a_lost_probe_is_tried_once_more_and_then_the_client_is_left_alone() {
    let mut leg = Leg::new(None);
    leg.look();
    leg.flow(14_600);
    leg.look();
    leg.lose_probe();
    leg.threshold = Some(2);
    let (size, _, event) = leg.look();
    assert_eq!((size, event), (OWN, Some(Event::ProbeLost)));
    assert_eq!(leg.state.verdict(), Some(Verdict::Doubted));
    assert!(leg.slow_start_again);
    // From here on, what ends slow start is no probe.
    for _ in 0..20 {
        leg.flow(14_600);
        if leg.look().2 == Some(Event::Probed) {
            break;
        }
    }
    assert!(leg.state.is_oversized());
    leg.lose_probe();
    assert_eq!(leg.look().2, Some(Event::ProbeLost));
    assert_eq!(leg.state.verdict(), Some(Verdict::Refuses));
    assert!(!leg.slow_start_again);
    for _ in 0..50 {
        leg.flow(14_600);
        assert_eq!(leg.look().0, OWN);
    }
    let now = Time::ZERO + TimeSpan::from_milliseconds(leg.now);
    assert_eq!(leg.state.poll_timeout(now), None);
}

#[test]
fn probes_that_two_sessions_lose_decide() {
    let mut leg = Leg::new(Some(Verdict::Doubted));
    leg.look();
    leg.flow(14_600);
    assert_eq!(leg.look().2, Some(Event::Probed));
    leg.lose_probe();
    assert_eq!(leg.look().2, Some(Event::ProbeLost));
    assert_eq!(leg.state.verdict(), Some(Verdict::Refuses));
    // A probe that arrives clears the doubt.
    let mut leg = Leg::new(Some(Verdict::Doubted));
    leg.look();
    leg.flow(14_600);
    leg.look();
    leg.flow(13_300);
    assert_eq!(leg.look().2, Some(Event::Raised));
    assert_eq!(leg.state.verdict(), Some(Verdict::Accepts));
}

/// A tail loss probe resends one segment of the client's own size.
#[test]
fn a_probe_whose_answer_is_late_is_not_lost() {
    let mut leg = Leg::new(None);
    leg.look();
    leg.flow(14_600);
    leg.look();
    leg.send_probe();
    leg.segments += 1;
    leg.sent_again += 1;
    assert_eq!(leg.look(), (OWN, None, None));
    leg.acknowledged += 13_300;
    leg.under_way = 0;
    let (size, _, event) = leg.look();
    assert_eq!((size, event), (13_300, Some(Event::Raised)));
    assert!(!leg.slow_start_again);
}

/// The client has everything it requested, and closes, before the leg is read again.
#[test]
fn the_answer_to_a_probe_may_be_in_the_last_reading() {
    for (is_lost, verdict) in [(false, Verdict::Accepts), (true, Verdict::Doubted)] {
        let mut leg = Leg::new(None);
        leg.look();
        leg.flow(14_600);
        assert_eq!(leg.look().2, Some(Event::Probed));
        match is_lost {
            false => leg.flow(13_300),
            true => leg.lose_probe(),
        }
        let (now, sample) = (leg.now(), leg.sample());
        leg.state.handle_end(now, &sample);
        assert_eq!(leg.state.verdict(), Some(verdict));
        let event = leg.state.poll_event().unwrap();
        assert_eq!(event == Event::ProbeLost, is_lost);
    }
    // Without an answer the result is unknown, and no new probe begins.
    for draining in [false, true] {
        let mut leg = Leg::new(None);
        leg.look();
        leg.flow(14_600);
        leg.under_way = u32::from(draining);
        leg.look();
        leg.under_way = u32::from(!draining);
        let (now, sample) = (leg.now(), leg.sample());
        leg.state.handle_end(now, &sample);
        assert_eq!(leg.state.verdict(), None);
        assert_eq!(leg.state.poll_event(), None);
    }
}

#[test]
fn a_probe_waits_until_it_is_alone() {
    let mut leg = Leg::new(None);
    leg.look();
    leg.flow(10_000);
    leg.under_way = 3;
    assert_eq!(leg.look(), (OWN, Some(0), None));
    assert_eq!(leg.look(), (OWN, None, None));
    leg.under_way = 0;
    assert_eq!(leg.look(), (13_300, Some(13_300), Some(Event::Probed)));
}

#[test]
fn a_probe_that_small_writes_cut_up_has_no_result() {
    let mut leg = Leg::new(None);
    leg.look();
    leg.flow(14_600);
    leg.look();
    leg.acknowledged += 13_300;
    leg.segments += 20;
    assert_eq!(leg.look().0, OWN);
    assert_eq!(leg.state.verdict(), None);
}

/// Data in flight does not show the size of the segments that have arrived.
#[test]
fn small_segments_with_more_under_way_say_nothing() {
    let mut leg = Leg::new(None);
    leg.look();
    leg.flow(14_600);
    leg.look();
    leg.acknowledged += 13_300;
    leg.under_way = 2;
    leg.segments += 10 + leg.under_way;
    assert_eq!(leg.look().0, OWN);
    assert_eq!(leg.state.verdict(), None);
}

#[test]
fn what_is_known_of_a_client_spares_the_probe_or_forbids_it() {
    let mut leg = Leg::new(Some(Verdict::Accepts));
    assert_eq!(leg.look(), (13_300, Some(14_600), Some(Event::Raised)));
    let mut leg = Leg::new(Some(Verdict::Refuses));
    for _ in 0..10 {
        leg.flow(14_600);
        assert_eq!(leg.look(), (OWN, None, None));
    }
}

#[test]
fn a_time_out_takes_the_size_back_at_once() {
    let mut leg = Leg::new(Some(Verdict::Accepts));
    leg.look();
    for count in 1..=3 {
        assert!(leg.state.is_oversized());
        leg.timeouts = 1;
        let (size, _, event) = leg.look();
        assert_eq!((size, event), (OWN, Some(Event::FellBack)), "{count}");
        leg.timeouts = 0;
        for _ in 0..100 {
            leg.flow(13_300);
            leg.look();
        }
    }
    // The third return is for good.
    assert_eq!(leg.state.size(), OWN);
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number).into()
}

#[test]
fn verdicts_age_and_the_oldest_goes_first() {
    let at = |hours: u64| Time::ZERO + TimeSpan::from_seconds(hours * 3600);
    let mut verdicts = Verdicts::new(2);
    verdicts.note(address(1), Verdict::Accepts, at(0));
    verdicts.note(address(2), Verdict::Refuses, at(1));
    assert_eq!(verdicts.of(address(1), at(23)), Some(Verdict::Accepts));
    assert_eq!(verdicts.of(address(1), at(24)), None);
    assert_eq!(verdicts.of(address(2), at(6)), Some(Verdict::Refuses));
    assert_eq!(verdicts.of(address(2), at(7)), None);
    verdicts.note(address(1), Verdict::Accepts, at(2));
    verdicts.note(address(3), Verdict::Accepts, at(3));
    assert_eq!(verdicts.of(address(2), at(3)), None);
    assert_eq!(verdicts.iter(at(3)).count(), 2);
}

proptest! {
    #[test]
    fn whatever_is_read_the_size_is_allowed_and_the_cap_lets_a_segment_pass(
        own in 0_u32..10_000,
        known in prop::option::of(prop::sample::select(vec![
            Verdict::Accepts,
            Verdict::Doubted,
            Verdict::Refuses,
        ])),
        samples in prop::collection::vec(
            (
                (0_u64..5000, 0_u64..1 << 24, 0_u32..100),
                (0_u32..2, 0_u32..3, 0_u64..1 << 22, any::<u32>(), 0_u32..3),
            ),
            1..80,
        ),
    ) {
        let sizes: Arc<[u32]> = auto().into();
        let mut state = OversizedSegments::new(Arc::clone(&sizes), own, None, None, known);
        let (mut now, mut acknowledged, mut lost) = (Time::ZERO, 0, 0);
        let mut cap = u64::MAX;
        for ((later, more, segments), (timeouts, again, window, cwnd, under_way)) in samples {
            now += TimeSpan::from_milliseconds(later);
            acknowledged += more;
            lost += again;
            let before = state.size();
            let decision = state.handle_sample(now, &LegSample {
                round_trip_time: Some(TimeSpan::from_milliseconds(later)),
                segment_size: before,
                congestion_window: cwnd,
                peer_window: window,
                unacknowledged: under_way,
                bytes_acknowledged: ByteSize::from_bytes(acknowledged),
                segments_sent: segments,
                segments_retransmitted: lost,
                timeouts_pending: timeouts,
                ..LegSample::default()
            });
            let size = state.size();
            prop_assert!(size == own.max(1) || sizes.contains(&size));
            prop_assert_eq!(decision.segment_size.is_some(), size != before);
            cap = decision.in_flight_cap.map_or(cap, ByteSize::bytes);
            // The cap may be zero only while data is in flight.
            prop_assert!(cap > 0 || under_way > 0);
            // A time-out always returns the leg to the normal size.
            prop_assert!(timeouts == 0 || before == own.max(1) || size == own.max(1));
            if let Some(next) = state.poll_timeout(now) {
                prop_assert!(next > now);
            }
        }
    }

    #[test]
    fn a_memory_is_bounded(notes in prop::collection::vec((0_u32..50, any::<bool>(), 0_u64..9), 0..200)) {
        let mut verdicts = Verdicts::new(8);
        for (client, takes, at) in notes {
            let verdict = if takes { Verdict::Accepts } else { Verdict::Refuses };
            let now = Time::ZERO + TimeSpan::from_seconds(at);
            verdicts.note(address(client), verdict, now);
            prop_assert!(verdicts.len() <= 8);
            prop_assert_eq!(verdicts.iter(now).count(), verdicts.len());
        }
    }
}
