use super::*;
use crate::Knowledge;
use crate::automatic_ahead::AheadState;

fn automatic(bbr: bool) -> Automatic {
    let leg = LegSettings::default().left_to_policy();
    let settings = SessionSettings {
        policy: PolicyName::Auto,
        client: leg.clone(),
        server: leg,
        ..SessionSettings::default()
    };
    assert!(settings.is_automatic());
    Automatic::new(settings, Offered { bbr })
}

/// The same policy, with the key that switches sending ahead off.
fn without_sending_ahead() -> Automatic {
    let settings = SessionSettings {
        policy: PolicyName::Auto,
        client: LegSettings {
            sending_ahead: Some(AheadBy::Off),
            ..LegSettings::default().left_to_policy()
        },
        ..SessionSettings::default()
    };
    Automatic::new(settings, Offered::default())
}

fn request() -> Request {
    Request {
        client: "192.0.2.1:1000".parse().unwrap(),
        server: "198.51.100.1:80".parse().unwrap(),
    }
}

/// A download that has brought this many megabytes over a long client leg.
fn sample(session: u64, megabytes: u64, lost: u32) -> SessionSample {
    let milliseconds = |time| Some(TimeSpan::from_milliseconds(time));
    let bytes = ByteSize::from_bytes(megabytes * 1_000_000);
    SessionSample {
        session: SessionId(session),
        request: Some(request()),
        client: LegSample {
            segment_size: 1448,
            round_trip_time: milliseconds(600),
            minimum_round_trip_time: milliseconds(600),
            delivery_rate: BitRate::from_bits_per_second(40_000_000),
            bytes_acknowledged: bytes,
            segments_retransmitted: lost,
            ..LegSample::default()
        },
        server: LegSample {
            segment_size: 1448,
            round_trip_time: milliseconds(400),
            minimum_round_trip_time: milliseconds(400),
            bytes_received: bytes,
            ..LegSample::default()
        },
        ..SessionSample::default()
    }
}

#[test]
fn what_is_configured_is_left_alone() {
    let settings = LegSettings {
        congestion_control: Some("reno".into()),
        pacing_rate: BitRate::from_bits_per_second(1_000_000),
        send_buffer: Buffer::Fixed(ByteSize::from_bytes(1 << 20)),
        ..LegSettings::default()
    };
    assert_eq!(settings.clone().left_to_policy(), settings);
    assert!(!settings.is_automatic());
}

#[test]
fn one_session_teaches_the_next_and_is_forgotten_itself() {
    let mut policy = automatic(true);
    let known = &mut Knowledge::default();
    let first = policy.start(Time::ZERO, &request(), None, known);
    assert_eq!(first.client.congestion_control.as_deref(), Some("cubic"));
    assert_eq!(first.client.pacing_rate, None);
    let mut now = Time::ZERO;
    let mut decisions = Vec::new();
    for turn in 0..20 {
        now += TimeSpan::from_milliseconds(400);
        decisions.push(policy.sample(now, &sample(1, turn, u32::from(turn > 5)), known));
    }
    let of_client = |pick: fn(&LegDecision) -> bool| {
        decisions
            .iter()
            .filter(|decision| pick(&decision.client))
            .count()
    };
    assert_eq!(
        of_client(|decision| decision.congestion_control == Some(BBR)),
        1
    );
    assert_eq!(
        policy.reason(SessionId(1), Leg::Client).name(),
        "long_and_lossy"
    );
    assert_eq!(policy.reason(SessionId(1), Leg::Server).name(), "default");
    // 40 Mbit/s for two round trips of 0.4 s; twice what is in flight for 0.6 s.
    assert_eq!(of_client(|decision| decision.not_sent_limit.is_some()), 1);
    assert_eq!(of_client(|decision| decision.send_buffer.is_some()), 1);
    assert!(of_client(|decision| decision.pacing_rate.is_some()) >= 1);
    assert!(
        decisions
            .iter()
            .all(|decision| decision.server.pacing_rate.is_none())
    );
    policy.end(now, &sample(1, 20, 1), known);
    assert_eq!(policy.sessions(), 0);
    let second = policy.start(now, &request(), None, known);
    assert_eq!(second.client.congestion_control.as_deref(), Some(BBR));
    assert_eq!(second.client.pacing_rate, None);
    assert_eq!(second.client.first_flight, None);
    assert_eq!(second.server.congestion_control.as_deref(), Some("cubic"));
    policy.sample(now, &sample(2, 0, 0), known);
    assert_eq!(policy.reason(SessionId(2), Leg::Client).name(), "learned");
}

#[test]
fn a_large_first_flight_is_spread_unless_all_is_paced() {
    let of = |settings: LegSettings| {
        let settings = SessionSettings {
            client: settings.left_to_policy(),
            ..SessionSettings::default()
        };
        let given = LearnedStart {
            window: 80,
            bound: None,
            rate: None,
            is_lossy: false,
        };
        let mut policy = Automatic::new(settings, Offered::default());
        let start = policy.start(
            Time::ZERO,
            &request(),
            Some(given),
            &mut Knowledge::default(),
        );
        start.client.first_flight.map(|flight| flight.segments)
    };
    assert_eq!(of(LegSettings::default()), Some(80));
    assert_eq!(
        of(LegSettings {
            pacing: Pacing::Auto,
            pacing_by: PacingBy::Input,
            ..LegSettings::default()
        }),
        None
    );
    assert_eq!(
        of(LegSettings {
            pacing_rate: BitRate::from_bits_per_second(1_000_000),
            ..LegSettings::default()
        }),
        None
    );
}

#[test]
fn what_went_ahead_of_a_window_is_remembered_unless_it_is_off() {
    let leg = AcceptedLeg {
        round_trip: TimeSpan::from_milliseconds(600),
        window: 65_536,
        window_scale: 7,
        segment_size: 1448,
    };
    let client = request().client.ip();
    let known = &mut Knowledge::default();
    let mut policy = automatic(true);
    assert!(policy.sends_ahead());
    // The key alone, under another policy.
    let mut settings = SessionSettings::default();
    assert!(!settings.sends_ahead() && !settings.is_automatic());
    settings.client.sending_ahead = Some(AheadBy::Auto);
    assert!(settings.sends_ahead() && settings.is_automatic());
    let state = |ahead: Option<AutomaticAhead>| ahead.map(|ahead| ahead.state());
    let first = policy.ahead(Time::ZERO, client, &leg, known);
    assert_eq!(state(first), Some(AheadState::Watching));
    let mut last = sample(1, 20, 0);
    last.ahead.is_taken = true;
    policy.sample(Time::ZERO, &last, known);
    policy.end(Time::ZERO, &last, known);
    let second = policy.ahead(Time::ZERO, client, &leg, known);
    assert_eq!(state(second), Some(AheadState::Ahead));
    let other = IpAddr::from([192, 0, 2, 9]);
    let stranger = policy.ahead(Time::ZERO, other, &leg, known);
    assert_eq!(state(stranger), Some(AheadState::Watching));
    let mut off = without_sending_ahead();
    assert_eq!(off.ahead(Time::ZERO, client, &leg, known), None);
}

/// The sessions of one client, or of one network of clients, do not go ahead next to each other.
#[test]
fn a_session_goes_ahead_only_while_it_is_alone() {
    let known = &mut Knowledge::default();
    let mut policy = automatic(true);
    let running = |number: u8, segments: u32| {
        let mut sample = sample(number.into(), 1, 0);
        let client = SocketAddr::from(([192, 0, 2, number], 1000));
        sample.request = Some(Request {
            client,
            ..request()
        });
        sample.client.unacknowledged = segments;
        sample
    };
    let allowed = |policy: &mut Automatic, sample: &SessionSample, known: &mut Knowledge| {
        let decision = policy.sample(Time::ZERO, sample, known);
        assert_eq!(decision.server.ahead_allowed, None);
        decision.client.ahead_allowed
    };
    let leg = AcceptedLeg {
        round_trip: TimeSpan::from_milliseconds(600),
        window: 65_536,
        window_scale: 7,
        segment_size: 1448,
    };
    // A client that has taken data ahead before.
    let mut before = running(9, 0);
    before.ahead.is_taken = true;
    policy.sample(Time::ZERO, &before, known);
    policy.end(Time::ZERO, &before, known);
    let new = |policy: &mut Automatic, known: &mut Knowledge| {
        let client = IpAddr::from([192, 0, 2, 9]);
        let ahead = policy.ahead(Time::ZERO, client, &leg, known).unwrap();
        ahead.state() == AheadState::Ahead
    };
    assert!(new(&mut policy, known));
    assert_eq!(allowed(&mut policy, &running(1, 100), known), Some(true));
    assert!(!new(&mut policy, known));
    assert_eq!(allowed(&mut policy, &running(2, 100), known), Some(false));
    assert_eq!(allowed(&mut policy, &running(1, 100), known), Some(false));
    // On a short leg, nothing is decided.
    let mut short = running(3, 100);
    short.client.minimum_round_trip_time = Some(TimeSpan::from_milliseconds(149));
    assert_eq!(allowed(&mut policy, &short, known), None);
    // The other session ends.
    policy.end(Time::ZERO, &running(2, 100), known);
    assert_eq!(allowed(&mut policy, &running(1, 100), known), Some(true));
}

#[test]
fn a_start_on_a_long_leg_is_bounded_by_the_relay() {
    let offered = crate::learned_start::windows(640);
    let known = &mut Knowledge::default();
    let mut policy = automatic(true);
    let start = |policy: &mut Automatic, request: &Request, known: &mut Knowledge| {
        let start = policy.window(Time::ZERO, request, &offered, known);
        start.map(|start| (start.window, start.bound))
    };
    // Nothing is known of the network.
    let neighbour = Request {
        client: "192.0.2.77:1000".parse().unwrap(),
        ..request()
    };
    assert_eq!(start(&mut policy, &request(), known), Some((80, None)));
    let last = sample(1, 20, 0);
    policy.sample(Time::ZERO, &last, known);
    policy.end(Time::ZERO, &last, known);
    // Half of what 40 Mbit/s carry in 600 ms is more than the largest window.
    assert_eq!(start(&mut policy, &request(), known), Some((640, None)));
    let cold = start(&mut policy, &neighbour, known);
    assert_eq!(cold, Some((640, Some(80))));
    // The next one shares with it.
    let cold = start(&mut policy, &neighbour, known);
    assert_eq!(cold, Some((640, Some(40))));
    assert_eq!(policy.window(Time::ZERO, &neighbour, &[], known), None);
    let mut off = without_sending_ahead();
    assert_eq!(start(&mut off, &neighbour, known), Some((40, None)));
}

#[test]
fn without_bbr_nothing_changes_to_it() {
    let mut policy = automatic(false);
    let known = &mut Knowledge::default();
    let mut now = Time::ZERO;
    for turn in 0..20_u32 {
        now += TimeSpan::from_milliseconds(400);
        let decision = policy.sample(now, &sample(1, u64::from(turn), turn), known);
        assert_eq!(decision.client.congestion_control, None);
    }
    policy.end(now, &sample(1, 20, 20), known);
    let start = policy.start(now, &request(), None, known);
    assert_eq!(start.client.congestion_control.as_deref(), Some("cubic"));
}
