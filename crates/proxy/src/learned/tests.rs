use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use midspan_policy::oversized_segments::Verdict;
use midspan_policy::{KnowledgeParts, LegSample, PartKey, Request};
use midspan_units::{BitRate, ByteSize, TimeSpan};

use super::*;

/// This number of clients, of which everything is known.
fn known(clients: u32) -> (SharedKnowledge, Remembered) {
    let (mut knowledge, verdicts) = (SharedKnowledge::default(), Remembered::default());
    knowledge.keep_asymmetric_routes(TimeSpan::from_seconds(900));
    let leg = LegSample {
        segment_size: 1448,
        minimum_round_trip_time: Some(TimeSpan::from_milliseconds(500)),
        delivery_rate: BitRate::from_bits_per_second(8_000_000),
        bytes_acknowledged: ByteSize::from_bytes(1_000_000),
        ..LegSample::default()
    };
    for number in 0..clients {
        let client = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        let request = Request {
            client: SocketAddr::new(client, 1000),
            server: "198.51.100.7:80".parse().unwrap(),
        };
        (knowledge.part(PartKey::paths(client)).paths).note(Time::ZERO, client, &leg, false);
        (knowledge.part(PartKey::routes(&request)).routes).prove(Time::ZERO, &request);
        let lasted = TimeSpan::from_seconds(1);
        let gains = &mut knowledge.part(PartKey::gains(&request)).gains;
        gains.note_split(Time::ZERO, &request, &leg, &leg, lasted);
        gains.note_direct(Time::ZERO, &request, leg.bytes_acknowledged, lasted * 2);
        verdicts.note(client, Verdict::Accepts);
    }
    (knowledge, verdicts)
}

fn read(text: &str, (knowledge, verdicts): &(SharedKnowledge, Remembered)) -> Learned {
    let query = Query::read(text).unwrap();
    Learned::read(&query, knowledge, verdicts, Time::ZERO)
}

#[test]
fn answers_follow_each_other_until_all_is_listed() {
    let all = known(700);
    for limit in [1000, 333, 1] {
        let mut learned = Learned::default();
        let mut next = Some("path:".to_owned());
        let mut answers = 0;
        while let Some(after) = next.filter(|_| answers < 10_000) {
            let answer = read(&format!("limit={limit}&after={after}"), &all);
            let rows = answer.paths.len()
                + answer.cold_starts.len()
                + answer.asymmetric_routes.len()
                + answer.gains.len()
                + answer.verdicts.len();
            assert!(rows <= limit);
            next = answer.next.clone();
            learned.append(answer);
            answers += 1;
        }
        let counts = [
            learned.paths.len(),
            learned.asymmetric_routes.len(),
            learned.gains.len(),
            learned.verdicts.len(),
        ];
        assert_eq!(counts, [700; 4], "limit {limit}");
        assert_eq!(learned.verdicts[699].client.to_string(), "10.0.2.187");
    }
}

#[test]
fn a_row_has_values_with_units() {
    let learned = read("prefix=10.0.0.1", &known(3));
    assert_eq!((learned.paths.len(), learned.next), (1, None));
    let path = serde_json::to_value(&learned.paths[0]).unwrap();
    assert_eq!(path["peer"], "10.0.0.1/32");
    assert_eq!(path["rate_bits_per_second"], 8_000_000);
    assert_eq!(path["min_rtt_seconds"], 0.5);
    let route = serde_json::to_value(&learned.asymmetric_routes[0]).unwrap();
    assert_eq!(route["servers"], "198.51.100.0/24");
    assert_eq!(route["left_seconds"], 900.0);
    assert_eq!(learned.gains[0].ratio, Some(2.0));
    assert_eq!(learned.verdicts[0].oversized_segments, "takes");
    assert_eq!(learned.gain.len(), 1);
}

#[test]
fn all_that_was_learned_is_forgotten() {
    let (knowledge, verdicts) = known(700);
    let hosts = Hosts::with_prefix("10.0.0.0/24".parse().unwrap());
    let forgotten = forget(&hosts, &knowledge, &verdicts);
    let expected = ForgottenCounts {
        paths: 256,
        asymmetric_routes: 256,
        gains: 256,
        verdicts: 256,
        ..ForgottenCounts::default()
    };
    assert_eq!(forgotten, expected);
    assert_eq!(
        forget(&hosts, &knowledge, &verdicts),
        ForgottenCounts::default()
    );
    assert_eq!(forget(&Hosts::ALL, &knowledge, &verdicts).paths, 444);
    let rest = read("", &(knowledge, verdicts));
    // What the metrics count stays.
    assert_eq!((rest.gain.len(), rest.gain[0].split_flows), (1, 700));
    let rest = Learned {
        gain: Vec::new(),
        ..rest
    };
    assert_eq!(rest, Learned::default());
}

/// The longest time for which the relay's threads wait, with a full memory. It is printed
/// (`--nocapture`); the limit is generous, because tests share the machine.
#[test]
fn a_full_memory_is_read_and_forgotten_in_parts() {
    let (knowledge, _) = known(60_000);
    let mut longest = std::time::Duration::ZERO;
    let mut after = None;
    loop {
        let start = Instant::now();
        let (some, _) = knowledge.list(
            AT_A_TIME,
            |part, most| part.paths.known(Time::ZERO, &Hosts::ALL, after, most),
            |path| path.peer,
        );
        longest = longest.max(start.elapsed());
        match some.last() {
            Some(last) => after = Some(last.peer),
            None => break,
        }
    }
    println!("longest read: {longest:?}");
    assert!(longest.as_secs() < 1);
    let mut longest = std::time::Duration::ZERO;
    let mut start = Instant::now();
    knowledge.forget(&Hosts::ALL, AT_A_TIME, |_| {
        longest = longest.max(start.elapsed());
        start = Instant::now();
    });
    println!("longest part that is forgotten: {longest:?}");
    assert!(longest.as_secs() < 1);
}
