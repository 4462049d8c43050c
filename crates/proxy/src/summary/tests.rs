use std::time::{Duration, Instant};

use midspan_relay::observation::{
    Direction, EndedFigures, Ending, HeldBy, LegReading, Limit, Moved, ReportedPhase,
};
use midspan_units::TimeSpan;

use super::*;

fn held(limit: Limit) -> HeldBy {
    let mut held = HeldBy::default();
    *match limit {
        Limit::Link => &mut held.link,
        Limit::Loss => &mut held.loss,
        Limit::Window => &mut held.window,
        Limit::Source => &mut held.source,
        Limit::Buffer => &mut held.buffer,
    } = 1.0;
    held
}

/// A download: its number, its client, its rate in bit/s, and what holds it back.
fn session(id: u64, client: &str, rate: u64, limit: Limit) -> Figures {
    let leg = |round_trip_time| LegReading {
        acknowledged: 99_000,
        retransmitted: 1000,
        round_trip_time: Some(TimeSpan::from_milliseconds(round_trip_time)),
        minimum_round_trip_time: Some(TimeSpan::from_milliseconds(10)),
        ..LegReading::default()
    };
    Figures {
        id,
        listener: "lan".into(),
        client: format!("{client}:{}", 1000 + id).parse().unwrap(),
        server: "192.0.2.1:443".parse().unwrap(),
        destination: None,
        phase: ReportedPhase::Relaying,
        age: TimeSpan::from_seconds(id),
        start: Some(true),
        bytes_to_client: 1_000_000 - id,
        bytes_to_server: 10,
        moved: Some(Moved {
            rate_to_client: rate,
            rate_to_server: 8,
            direction: Direction::ToClient,
            held_by: Some(held(limit)),
        }),
        client_leg: leg(10 * id),
        server_leg: leg(10),
    }
}

fn some() -> Vec<Figures> {
    vec![
        session(1, "10.0.0.1", 3_000_000, Limit::Window),
        session(2, "10.0.0.2", 5_000_000, Limit::Link),
        session(3, "[::ffff:10.0.0.1]", 1_000_000, Limit::Link),
        session(4, "[2001:db8::1]", 2_000_000, Limit::Source),
    ]
}

#[test]
fn sessions_of_drained_clients_are_counted_at_their_listener() {
    let drained = |listener: &str, prefix: &str| (listener.to_owned(), prefix.parse().unwrap());
    let rows = count_drained(
        &some(),
        &[
            drained("lan", "10.0.0.1/32"),
            drained("lan", "10.0.0.0/8"),
            drained("lan", "2001:db8::/32"),
            drained("lan", "192.0.2.0/24"),
            drained("web", "10.0.0.0/8"),
        ],
    );
    let left: Vec<Option<u64>> = rows.iter().map(|row| row.sessions).collect();
    assert_eq!(left, [2, 3, 1, 0, 0].map(Some));
    assert_eq!(
        (&*rows[1].listener, &*rows[1].clients),
        ("lan", "10.0.0.0/8")
    );
}

fn asked(text: &str) -> Summed {
    asked_of(some(), text)
}

fn asked_of(sessions: Vec<Figures>, text: &str) -> Summed {
    let survey = Survey {
        sessions,
        ended: vec![
            ended(7, "10.0.0.1", 50),
            ended(8, "10.0.0.2", 90),
            ended(9, "10.0.0.1", 70),
        ],
        ..Survey::default()
    };
    let now = Time::ZERO + TimeSpan::from_seconds(100);
    sum(&survey, &Query::read(text).unwrap(), now, totals)
}

/// A session that ended at this second.
fn ended(id: u64, client: &str, second: u64) -> EndedFigures {
    EndedFigures {
        id,
        listener: "lan".into(),
        client: format!("{client}:1000").parse().unwrap(),
        server: "192.0.2.1:443".parse().unwrap(),
        destination: None,
        ending: Ending::ResetByClient,
        at: Time::ZERO + TimeSpan::from_seconds(second),
        lasted: TimeSpan::from_seconds(3),
        bytes_to_client: 1000,
        bytes_to_server: 10,
    }
}

/// The counters of two listeners, of which one has no session.
fn totals() -> BTreeMap<String, ListenerTotals> {
    let mut lan = ListenerTotals {
        opened: 40,
        bytes_to_client: 9_000_000,
        ..ListenerTotals::default()
    };
    lan.ended[Ending::Closed.index()] = 30;
    lan.ended[Ending::ResetByClient.index()] = 6;
    [
        ("guests".to_owned(), ListenerTotals::default()),
        ("lan".to_owned(), lan),
    ]
    .into()
}

#[test]
fn listeners_have_rows_with_and_without_sessions() {
    let summed = asked("by=listener");
    let names: Vec<&str> = (summed.listeners.iter())
        .map(|row| row.listener.as_str())
        .collect();
    assert_eq!(names, ["lan", "guests"]);
    let row = &summed.listeners[0];
    assert_eq!((row.sessions, row.opened, row.failed), (4, 40, 6));
    assert_eq!(row.figures.rate_to_client_bits_per_second, Some(11_000_000));
    assert_eq!(row.figures.bytes_to_client, 9_000_000);
    assert_eq!(summed.listeners[1].figures.held, None);
    assert!(summed.clients.is_empty() && summed.ended.is_empty());
    // Only sessions of these clients; the counters are of all.
    let row = &asked("by=listener&client=10.0.0.2").listeners[0];
    assert_eq!((row.sessions, row.opened), (1, 40));
}

#[test]
fn ended_sessions_come_newest_first() {
    let numbers = |text: &str| -> Vec<u64> { asked(text).ended.iter().map(|row| row.id).collect() };
    assert_eq!(numbers("by=ended"), [8, 9, 7]);
    assert_eq!(numbers("by=ended&limit=1"), [8]);
    assert_eq!(numbers("by=ended&client=10.0.0.1"), [9, 7]);
    assert_eq!(numbers("by=session"), [0; 0]);
    let row = &asked("by=ended").ended[0];
    assert_eq!(
        (row.how.as_str(), row.ended_seconds),
        ("reset_by_client", 10.0)
    );
}

#[test]
fn sessions_of_a_client_are_added_up() {
    let summed = asked("");
    let clients: Vec<String> = summed
        .clients
        .iter()
        .map(|row| row.client.to_string())
        .collect();
    assert_eq!(clients, ["10.0.0.2", "10.0.0.1", "2001:db8::1"]);
    let row = &summed.clients[1];
    let figures = &row.figures;
    assert_eq!(row.sessions, 2);
    assert_eq!(figures.rate_to_client_bits_per_second, Some(4_000_000));
    assert_eq!(figures.bytes_to_client, 1_999_996);
    // The faster session counts three times as much.
    assert_eq!(figures.held, Some(Limit::Window));
    assert!((figures.held_by.unwrap().link - 0.25).abs() < 0.001);
    assert_eq!(figures.client_leg.rtt_seconds, Some(0.01));
    assert_eq!(figures.client_leg.retransmitted_ratio, Some(0.01));
    assert_eq!(figures.start.as_deref(), Some("learned"));
    assert_eq!((summed.matched.sessions, summed.matched.clients), (4, 3));
    assert_eq!(summed.rates, Some((11_000_000, 32)));
    assert!(summed.sessions.is_empty());
    assert_eq!(summed.legs.client.rtt_median_seconds, Some(0.02));
    assert_eq!(summed.legs.client.rtt_95_seconds, Some(0.04));
}

#[test]
fn rows_have_the_requested_order() {
    let ids = |query: &str| -> Vec<u64> {
        let sessions = asked(&format!("by=session&{query}")).sessions;
        sessions.iter().map(|row| row.id).collect()
    };
    assert_eq!(ids("sort=rate"), [2, 1, 4, 3]);
    assert_eq!(ids("sort=bytes"), [1, 2, 3, 4]);
    assert_eq!(ids("sort=rtt"), [4, 3, 2, 1]);
    assert_eq!(ids("sort=sessions&limit=2"), [4, 3]);
    // Equal values: by number, so that rows keep their places.
    assert_eq!(ids("sort=retransmitted"), [1, 2, 3, 4]);
    assert_eq!(ids("sort=rate&limit=1"), [2]);
    assert_eq!(ids("client=10.0.0.0/30&sort=rate"), [2, 1, 3]);
    assert_eq!(ids("client=2001:db8::/32"), [4]);
    assert_eq!(ids("client=192.0.2.0/24"), [0; 0]);
    let one = &asked("by=session&client=10.0.0.2").sessions[0];
    assert_eq!(one.client.to_string(), "10.0.0.2:1002");
    assert_eq!(one.figures.direction.as_deref(), Some("to_client"));
}

#[test]
fn unknown_values_are_none() {
    let mut new = session(9, "10.0.0.9", 0, Limit::Link);
    new.moved = None;
    new.client_leg = LegReading::default();
    let summed = asked_of(vec![new], "");
    assert_eq!(summed.rates, None);
    let figures = &summed.clients[0].figures;
    assert_eq!(figures.rate_to_client_bits_per_second, None);
    assert_eq!((figures.held, figures.held_by), (None, None));
    assert_eq!(figures.client_leg, LegRow::default());
    // Without sessions, the rate is 0, not unknown.
    assert_eq!(asked_of(Vec::new(), "").rates, Some((0, 0)));
}

#[test]
fn a_row_is_read_as_it_was_written() {
    let rows = asked("by=session").sessions;
    let text = serde_json::to_string(&rows).unwrap();
    assert!(text.contains("\"held\":\"window\""), "{text}");
    let again: Vec<SessionRow> = serde_json::from_str(&text).unwrap();
    assert_eq!(again, rows);
}

/// 50,000 sessions of 10,000 clients. Its time is printed (`--nocapture`); the limit is generous,
/// because tests share the machine.
#[test]
fn many_sessions_are_sorted() {
    let sessions: Vec<Figures> = (0..50_000)
        .map(|id| {
            let client = format!("10.{}.{}.1", id % 100, id / 100 % 100);
            session(id, &client, id * 7919 % 50_021, Limit::Link)
        })
        .collect();
    for query in ["by=client", "by=session&sort=rtt&limit=1000"] {
        let sessions = sessions.clone();
        let start = Instant::now();
        let summed = asked_of(sessions, query);
        let took = start.elapsed();
        let query = Query::read(query).unwrap();
        println!("{query}: {took:?}");
        assert_eq!(
            (summed.matched.sessions, summed.matched.clients),
            (50_000, 10_000)
        );
        assert_eq!(summed.clients.len() + summed.sessions.len(), query.limit);
        assert!(took < Duration::from_secs(10));
    }
}
