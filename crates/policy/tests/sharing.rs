//! How sessions of one network affect each other through the policy that decides for them.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::narrow_leg::NarrowClient;
use midspan_policy::narrow_session::NarrowSession;
use midspan_policy::oversized_segments::{OversizedStart, SegmentSizes};
use midspan_policy::{
    AccessLink, Admission, Automatic, Decision, Knowledge, KnowledgeParts, LegSample, LegSettings,
    Offered, Policy, Request, SessionId, SessionSample, SessionSettings, Start,
};
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

const STEP: TimeSpan = TimeSpan::from_milliseconds(100);

fn request(number: u8) -> Request {
    Request {
        client: SocketAddr::from(([192, 0, 2, number], 1000)),
        server: "198.51.100.1:80".parse().unwrap(),
    }
}

fn settings() -> SessionSettings {
    let leg = LegSettings::default().left_to_policy();
    SessionSettings {
        client: leg.clone(),
        server: leg,
        ..SessionSettings::default()
    }
}

/// A download over a long leg with this round-trip time in ms; more data waits.
fn sample(number: u8, milliseconds: u64, acknowledged: u64) -> SessionSample {
    let span = |time| Some(TimeSpan::from_milliseconds(time));
    SessionSample {
        session: SessionId(number.into()),
        request: Some(request(number)),
        client: LegSample {
            segment_size: 1448,
            round_trip_time: span(560 + milliseconds),
            minimum_round_trip_time: span(560),
            bytes_acknowledged: ByteSize::from_bytes(acknowledged),
            not_sent: ByteSize::from_bytes(100_000),
            ..LegSample::default()
        },
        ..SessionSample::default()
    }
}

#[test]
fn those_that_share_a_queue_are_held_back_until_one_is_alone() {
    let mut policy = Automatic::new(settings(), Offered::default());
    let known = &mut Knowledge::default();
    let mut now = Time::ZERO;
    let mut rates = [None; 3];
    let mut acknowledged = 0;
    let mut run =
        |policy: &mut Automatic, turns: u32, sessions: u8, rates: &mut [Option<BitRate>; 3]| {
            for _ in 0..turns {
                now += STEP;
                // 8 Mbit/s each.
                acknowledged += 100_000;
                for number in 0..sessions {
                    let decision = policy.sample(now, &sample(number, 300, acknowledged), known);
                    let rate = &mut rates[usize::from(number)];
                    *rate = decision.client.pacing_rate.or(*rate);
                }
            }
        };
    run(&mut policy, 30, 2, &mut rates);
    for rate in &rates[..2] {
        let rate = rate.unwrap().bits_per_second();
        assert!((4_000_000..8_000_000).contains(&rate), "{rate}");
    }
    assert_eq!(rates[2], None);
    // A third session comes, and leaves less for each.
    run(&mut policy, 30, 3, &mut rates);
    assert!(rates[2].is_some());
    // One session is left, and has the link for itself.
    run(&mut policy, 60, 1, &mut rates);
    assert_eq!(rates[0], BitRate::from_bits_per_second(u64::MAX));
}

/// Counts the samples it gets.
struct Counting(std::sync::Arc<std::sync::atomic::AtomicU32>);

impl Policy for Counting {
    fn admit(&mut self, _: Time, _: &Request) -> Admission {
        Admission::Bypass
    }

    fn start(
        &mut self,
        _: Time,
        _: &Request,
        _: Option<LearnedStart>,
        _: &mut dyn KnowledgeParts,
    ) -> Start {
        Start::default()
    }

    fn sample(&mut self, _: Time, _: &SessionSample, _: &mut dyn KnowledgeParts) -> Decision {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Decision::default()
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        Some(STEP)
    }
}

#[test]
fn a_narrow_leg_is_paced_at_its_link_and_its_policy_gets_only_due_samples() {
    let shown = std::sync::Arc::default();
    let known = &mut Knowledge::default();
    let access = AccessLink {
        downstream: "8 Mbit/s".parse().ok(),
        upstream: "32 kbit/s".parse().ok(),
        oversized_segments: SegmentSizes::Auto,
        ..AccessLink::default()
    };
    let inner = Box::new(Counting(std::sync::Arc::clone(&shown)));
    let client = NarrowClient {
        access,
        segment_size: 1448,
        window: 65_536,
        window_scale: 7,
        sizes: SegmentSizes::Auto
            .sizes(access.downstream, access.upstream)
            .into(),
        start: OversizedStart::Probe,
        verdict: None,
        ahead: None,
        bound: None,
    };
    let mut session = NarrowSession::new(inner, client, None);
    let start = session.start(Time::ZERO, &request(1), None, known);
    assert_eq!(start.client.pacing_rate, access.downstream);
    for turn in 0..1000 {
        let now = Time::ZERO + TimeSpan::from_milliseconds(turn);
        session.sample(now, &sample(1, 0, turn * 1000), known);
    }
    assert_eq!(shown.load(std::sync::atomic::Ordering::Relaxed), 10);
}
