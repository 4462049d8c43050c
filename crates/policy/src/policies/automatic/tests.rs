use super::*;
use crate::Knowledge;
use crate::automatic_ahead::AheadState;
use crate::learned_start::SERVER_WINDOWS;

/// A policy that decides everything at each reading.
fn automatic(bbr: bool) -> Automatic {
    let leg = LegSettings::default().left_to_policy();
    let settings = SessionSettings {
        policy: PolicyName::Auto,
        client: leg.clone(),
        server: leg,
        ..SessionSettings::default()
    };
    assert!(settings.is_automatic());
    let offered = Offered {
        bbr,
        receive_window: ByteSize::from_bytes(8 << 20),
        least_timeout: true,
    };
    Automatic {
        watches_losses: false,
        ..Automatic::new(settings, offered)
    }
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
fn a_lost_session_holds_no_other_one_back() {
    let mut policy = automatic(true);
    let known = &mut Knowledge::default();
    let mut busy = sample(1, 1, 0);
    busy.client.unacknowledged = 1000;
    policy.sample(Time::ZERO, &busy, known);
    let client = request().client.ip();
    assert!(!known.loads.is_alone(Time::ZERO, client, None));
    assert_eq!((policy.sessions(), known.shared.len()), (1, 1));
    policy.lose(SessionId(1));
    crate::forget_running(known, client, SessionId(1));
    assert!(known.loads.is_alone(Time::ZERO, client, None));
    assert_eq!((policy.sessions(), known.shared.len()), (0, 0));
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
    // 40 Mbit/s for two round trips of 0.4 s (after slow start); twice what is in flight for 0.6 s.
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
fn a_short_leg_has_a_shorter_least_timeout_once() {
    let mut policy = automatic(true);
    let known = &mut Knowledge::default();
    let milliseconds = TimeSpan::from_milliseconds;
    let mut short = sample(1, 1, 0);
    short.server.minimum_round_trip_time = Some(milliseconds(40));
    let first = policy.sample(Time::ZERO, &short, known);
    assert_eq!(first.server.least_timeout, Some(milliseconds(80)));
    assert_eq!(first.client.least_timeout, None);
    let next = policy.sample(Time::ZERO + milliseconds(100), &short, known);
    assert_eq!(next.server.least_timeout, None);
    // Before Linux 6.15, and where the operator has chosen the congestion control.
    let mut without = without_sending_ahead();
    let decision = without.sample(Time::ZERO, &short, known);
    assert_eq!(decision.server.least_timeout, None);
}

#[test]
fn a_new_client_of_a_lossy_network_begins_with_bbr() {
    let mut policy = automatic(true);
    let known = &mut Knowledge::default();
    let from = |client: &str| Request {
        client: client.parse().unwrap(),
        ..request()
    };
    let now = Time::ZERO;
    for number in 1..=8 {
        let of = |lost| SessionSample {
            request: Some(from(&format!("192.0.2.{number}:1000"))),
            client: LegSample {
                segments_sent: 700,
                ..sample(number, 1, lost).client
            },
            ..sample(number, 1, lost)
        };
        let new = policy.start(now, &from("192.0.2.99:1000"), None, known);
        assert_eq!(new.client.congestion_control.as_deref(), Some("cubic"));
        policy.sample(now, &of(0), known);
        policy.sample(now, &of(5), known);
        policy.end(now, &of(5), known);
    }
    let new = policy.start(now, &from("192.0.2.99:1000"), None, known);
    assert_eq!(new.client.congestion_control.as_deref(), Some(BBR));
    let other = policy.start(now, &from("192.0.3.99:1000"), None, known);
    assert_eq!(other.client.congestion_control.as_deref(), Some("cubic"));
    let begun = SessionSample {
        request: Some(from("192.0.2.99:1000")),
        ..sample(99, 0, 0)
    };
    policy.sample(now, &begun, known);
    assert_eq!(policy.reason(SessionId(99), Leg::Client).name(), "learned");
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
        let client = std::net::SocketAddr::from(([192, 0, 2, number], 1000));
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

/// An upload that has taken this many megabytes over a long server leg.
fn upload(session: u64, megabytes: u64, lost: u32) -> SessionSample {
    let SessionSample { client, server, .. } = sample(session, megabytes, lost);
    SessionSample {
        client: server,
        server: client,
        ..sample(session, megabytes, lost)
    }
}

/// The next upload to a server begins with what an earlier one has shown, on the leg to this server.
#[test]
fn an_upload_teaches_the_next_one_to_its_server() {
    for bbr in [true, false] {
        let mut policy = automatic(bbr);
        let known = &mut Knowledge::default();
        let first = policy.server_start(Time::ZERO, &request(), &SERVER_WINDOWS, known);
        assert_eq!(first.congestion_control.as_deref(), Some("cubic"));
        assert_eq!((first.initial_window, first.first_flight), (None, None));
        let mut now = Time::ZERO;
        for turn in 0..20 {
            now += TimeSpan::from_milliseconds(400);
            policy.sample(now, &upload(1, turn, u32::from(turn > 5)), known);
        }
        policy.end(now, &upload(1, 20, 1), known);
        let next = policy.server_start(now, &request(), &SERVER_WINDOWS, known);
        let control = if bbr { "bbr" } else { "cubic" };
        assert_eq!(next.congestion_control.as_deref(), Some(control));
        // Half of 40 Mbit/s times 600 ms are 1,035 segments.
        assert_eq!(next.initial_window, Some(320));
        let flight = next.first_flight.unwrap();
        assert_eq!(flight.segments, 320);
        assert_eq!(flight.rate, BitRate::from_bits_per_second(40_000_000));
        // Where there are no windows to choose from, only the congestion control is left.
        let without = policy.server_start(now, &request(), &[], known);
        assert_eq!(without.congestion_control.as_deref(), Some(control));
        assert_eq!((without.initial_window, without.first_flight), (None, None));
        let other = Request {
            server: "198.51.100.2:80".parse().unwrap(),
            ..request()
        };
        let unknown = policy.server_start(now, &other, &SERVER_WINDOWS, known);
        assert_eq!(unknown.congestion_control.as_deref(), Some("cubic"));
        assert_eq!(unknown.initial_window, None);
    }
}

/// A download of which these bytes had arrived, and whose server may send this much.
fn download(received: u64, window: u64) -> SessionSample {
    let mut sample = sample(1, 0, 0);
    sample.server.bytes_received = ByteSize::from_bytes(received);
    sample.server.advertised_window = window;
    sample
}

/// The receive window that the next session has open, after a download that filled the kernel's windows.
fn opened(settings: &dyn Fn(&mut Automatic)) -> Option<u64> {
    let mut policy = automatic(true);
    settings(&mut policy);
    let known = &mut Knowledge::default();
    let start = |policy: &mut Automatic, known: &mut Knowledge| {
        let start = policy.start(Time::ZERO, &request(), None, known);
        assert_eq!(start.client.receive_window, None);
        start.server.receive_window.map(ByteSize::bytes)
    };
    let fixed = LegStart::from(&policy.settings.server).receive_window;
    assert_eq!(start(&mut policy, known), fixed.map(ByteSize::bytes));
    let mut now = Time::ZERO;
    for (received, window) in [
        (0, 65_535),
        (65_535, 86_000),
        (151_000, 242_000),
        (393_000, 1),
    ] {
        policy.sample(now, &download(received, window), known);
        now += TimeSpan::from_milliseconds(400);
    }
    policy.end(now, &download(393_000, 1), known);
    start(&mut policy, known)
}

#[test]
fn a_download_that_filled_the_window_opens_the_next_one() {
    // 242,000 bytes arrived in the last round trip.
    assert_eq!(opened(&|_| {}), Some(484_000));
    let of_machine = |bytes| {
        opened(&|policy: &mut Automatic| {
            policy.offered.receive_window = ByteSize::from_bytes(bytes);
        })
    };
    assert_eq!(of_machine(300_000), Some(300_000));
    // An old kernel, or a limit that leaves less than the path carries.
    assert_eq!(of_machine(65_535), None);
    assert_eq!(of_machine(0), None);
    let with_window =
        |window| opened(&|policy: &mut Automatic| policy.settings.server.receive_window = window);
    assert_eq!(with_window(Some(ReceiveWindow::Auto)), Some(484_000));
    assert_eq!(with_window(Some(ReceiveWindow::Off)), None);
    let fixed = ReceiveWindow::Fixed(ByteSize::from_bytes(3_000_000));
    assert_eq!(with_window(Some(fixed)), Some(3_000_000));
    // A buffer of a fixed size stays as it is.
    let buffer = Buffer::Fixed(ByteSize::from_bytes(1 << 20));
    let with_buffer =
        opened(&|policy: &mut Automatic| policy.settings.server.receive_buffer = buffer);
    assert_eq!(with_buffer, None);
}

#[test]
fn a_short_leg_changes_between_two_usual_readings_and_nothing_else_does() {
    let mut policy = Automatic {
        watches_losses: true,
        ..automatic(true)
    };
    let known = &mut Knowledge::default();
    let milliseconds = TimeSpan::from_milliseconds;
    let session = SessionId(1);
    let mut interval = policy.sampling_interval(session).unwrap();
    assert_eq!(interval, milliseconds(20));
    let (mut now, mut changed, mut others) = (Time::ZERO, None, Vec::new());
    for reading in 1_u32..=10 {
        now += interval;
        let mut sample = sample(1, 0, reading);
        sample.client.minimum_round_trip_time = Some(milliseconds(4));
        sample.client.round_trip_time = Some(milliseconds(4));
        sample.client.bytes_acknowledged = ByteSize::from_bytes(u64::from(reading) * 66 * 1448);
        let decision = policy.sample(now, &sample, known).client;
        if decision.congestion_control.is_some() {
            changed.get_or_insert(now);
        }
        if decision.least_timeout.is_some() {
            others.push(now);
        }
        interval = policy.sampling_interval(session).unwrap();
    }
    // The first loss may be the end of slow start.
    assert_eq!(changed, Some(Time::ZERO + milliseconds(60)));
    assert_eq!(others, [Time::ZERO + milliseconds(100)]);
    // It has changed, so it is read as usual.
    assert_eq!(interval, milliseconds(100));
    assert_eq!(policy.reason(session, Leg::Client).name(), "lossy");
}

#[test]
fn a_leg_in_recovery_is_read_often_and_changes_when_it_is_over() {
    let mut policy = Automatic {
        watches_losses: true,
        ..automatic(true)
    };
    let known = &mut Knowledge::default();
    let mut now = Time::ZERO;
    let mut changes = Vec::new();
    // From the reading at 100 ms on, until before 160 ms, the client leg is in recovery.
    for _ in 0..7 {
        let interval = policy.sampling_interval(SessionId(1)).unwrap();
        now += interval;
        let time = now.nanoseconds() / 1_000_000;
        let mut sample = sample(1, 1, u32::from(time >= 100));
        sample.client.is_recovering = (100..160).contains(&time);
        let decision = policy.sample(now, &sample, known);
        changes.push((time, decision.client.congestion_control));
    }
    let expected = [20, 100, 120, 140, 160, 200, 300].map(|at| (at, (at == 160).then_some(BBR)));
    assert_eq!(changes, expected);
    let reason = policy.reason(SessionId(1), Leg::Client);
    assert_eq!(reason.name(), "long_and_lossy");
}
