//! Tests of the judgement of runs.

use midspan_document::Source;

use super::*;
use crate::emulator::DirectionReport;

/// A link whose frames left late upwards: 99 % within `p99`, nearly all within `tail`, in
/// microseconds.
fn link(frames: u64, p99: u64, tail: u64, kernel_drops: u64) -> LinkReport {
    let span = |microseconds| TimeSpan::from_nanoseconds(microseconds * 1000);
    LinkReport {
        up: DirectionReport {
            lateness: Lateness {
                frames,
                mean: span(p99 / 10),
                p99: span(p99),
                tail: span(tail),
                max: span(tail),
                ..Lateness::default()
            },
            ..DirectionReport::default()
        },
        kernel_drops,
        ..LinkReport::default()
    }
}

fn run(round_trip: u64, link: &LinkReport) -> Disturbance<'_> {
    Disturbance {
        round_trip: TimeSpan::from_milliseconds(round_trip),
        links: vec![("satellite", link)],
        load_before: 0.0,
        stolen: 0.0,
        not_carried: Vec::new(),
    }
}

const PURPOSES: [Purpose; 2] = [Purpose::Measurement, Purpose::Demonstration];

/// The grades for a measurement and for a demonstration.
fn grades(run: &Disturbance<'_>) -> [Grade; 2] {
    PURPOSES.map(|purpose| judge(purpose, run).grade())
}

use Grade::{Rough, Valid, Void};

#[test]
fn lateness_is_judged_against_the_round_trip() {
    // (round trip in ms; p99 and tail in µs; the grades)
    for (round_trip, p99, tail, expected) in [
        // Shorter than 50 ms, both purposes allow 1 ms, and twice that for the tail.
        (0, 1_000, 2_000, [Valid, Valid]),
        (20, 1_000, 2_000, [Valid, Valid]),
        (20, 1_001, 2_000, [Void, Rough]),
        (20, 1_000, 2_001, [Void, Rough]),
        // 0.5 % of 600 ms are 3 ms, 2 % are 12 ms.
        (600, 2_999, 5_999, [Valid, Valid]),
        (600, 3_001, 3_001, [Void, Valid]),
        (600, 2_999, 6_001, [Void, Valid]),
        (600, 11_999, 23_999, [Void, Valid]),
        (600, 12_001, 12_001, [Void, Rough]),
        (600, 500, 24_001, [Void, Rough]),
    ] {
        let link = link(10_000, p99, tail, 0);
        let found = grades(&run(round_trip, &link));
        assert_eq!(found, expected, "{round_trip} ms, {p99} µs, {tail} µs");
    }
}

#[test]
fn one_late_frame_of_a_few_is_no_percentile() {
    let few = link(100, 50_000, 1_000, 0);
    assert_eq!(grades(&run(20, &few)), [Valid, Valid]);
    let more = link(101, 50_000, 1_000, 0);
    assert_eq!(grades(&run(20, &more)), [Void, Rough]);
}

#[test]
fn load_is_allowed_where_the_path_is_long_and_nothing_is_measured() {
    let link = link(10_000, 300, 600, 0);
    for (round_trip, load, stolen, expected) in [
        (20, 0.249, 0.0, [Valid, Valid]),
        (20, 0.26, 0.0, [Void, Rough]),
        (20, 0.0, 0.049, [Valid, Valid]),
        (20, 0.0, 0.051, [Void, Rough]),
        // One of two processors is busy.
        (600, 0.55, 0.0, [Void, Valid]),
        (600, 0.85, 0.0, [Void, Rough]),
        (600, 1.0, 0.0, [Void, Rough]),
        (600, 0.0, 0.35, [Void, Valid]),
        (600, 0.0, 0.4, [Void, Rough]),
    ] {
        let run = Disturbance {
            load_before: load,
            stolen,
            ..run(round_trip, &link)
        };
        assert_eq!(
            grades(&run),
            expected,
            "{round_trip} ms, {load} and {stolen}"
        );
    }
}

#[test]
fn a_lost_frame_is_no_loss_of_the_path() {
    let link = link(10_000, 300, 600, 1);
    assert_eq!(grades(&run(600, &link)), [Void, Rough]);
}

#[test]
fn a_run_that_measured_another_case_is_void_for_every_purpose() {
    let link = link(10_000, 300, 600, 0);
    let run = Disturbance {
        not_carried: vec!["the proxy \"gateway\" carried 0 connections of 1".into()],
        ..run(600, &link)
    };
    assert_eq!(grades(&run), [Void, Void]);
    let text = judge(Purpose::Demonstration, &run).to_string();
    assert_eq!(
        text,
        "void: the proxy \"gateway\" carried 0 connections of 1"
    );
}

#[test]
fn the_reason_contains_the_lateness_and_what_is_allowed() {
    let link = link(10_000, 13_000, 30_000, 7);
    let validity = judge(Purpose::Demonstration, &run(600, &link));
    assert!(validity.counts() && !validity.is_valid());
    assert_eq!(
        validity.to_string(),
        "rough: link \"satellite\": the kernel dropped 7 frames that the emulator did not take in \
         time; link \"satellite\" up: frames left late (99 % within 13.00 ms, nearly all within \
         30.00 ms, the latest 30.0 ms; 12.00 ms and twice that are allowed where the round trip is \
         600.0 ms)"
    );
}

#[test]
fn the_slowdown_is_a_share_of_the_round_trip() {
    let late = link(10_000, 12_000, 12_000, 0);
    let slowdown = |run: &Disturbance<'_>| judge(Purpose::Demonstration, run).slowdown();
    // A mean of 1.2 ms on 600 ms.
    assert!((slowdown(&run(600, &late)) - 0.002).abs() < 1e-9);
    // At a load of one half, programs wait 3 ms more.
    let loaded = Disturbance {
        load_before: 0.5,
        ..run(600, &late)
    };
    assert!((slowdown(&loaded) - 0.007).abs() < 1e-9);
    assert!(slowdown(&run(0, &late)).is_finite());
}

#[test]
fn a_delay_matters_where_it_is_a_notable_part_of_the_difference() {
    // 1 % of 4.9 s and of 3.5 s is little of 1.4 s, but most of 0.1 s.
    assert!(!accounts_for(0.01, 4.9, 3.5));
    assert!(accounts_for(0.01, 4.9, 4.8));
    assert!(accounts_for(0.01, 4.8, 4.9));
    assert!(!accounts_for(0.0, 4.9, 4.9));
}

#[test]
fn several_runs_state_each_kind_of_reason_once() {
    let (some, more) = (
        link(10_000, 13_000, 30_000, 0),
        link(10_000, 13_000, 40_000, 0),
    );
    let loaded = Disturbance {
        load_before: 0.9,
        ..run(600, &some)
    };
    let runs = [&loaded, &run(600, &more), &loaded]
        .map(|disturbance| judge(Purpose::Demonstration, disturbance));
    let worst = worst(&runs);
    assert_eq!(worst.len(), 2, "{worst:?}");
    assert!(worst.contains(&Reason::Load(0.9)));
    let late = |reason: &Reason| matches!(reason, Reason::Late { lateness, .. } if lateness.tail == TimeSpan::from_milliseconds(40));
    assert!(worst.iter().any(late), "{worst:?}");
    let remark = remark(&runs).unwrap_or_default();
    assert!(
        remark.contains("40.00 ms") && !remark.contains("30.00 ms"),
        "{remark}"
    );
    assert_eq!(super::remark([&Validity::default()]), None);
}

#[test]
#[allow(clippy::unwrap_used)]
fn the_round_trip_is_the_shortest_of_the_flows() {
    let text = r#"
[[host]]
name = "a"
[[router]]
name = "r"
[[host]]
name = "b"
[[host]]
name = "c"
[[link]]
name = "1"
between = ["a", "r"]
delay = "10 ms"
[[link]]
name = "2"
between = ["r", "b"]
delay = "5 ms"
[[link]]
name = "3"
between = ["r", "c"]
up = { delay = "200 ms" }
down = { delay = "250 ms" }
[[flow]]
name = "far"
from = "a"
to = "c"
workload = "download"
size = "1 KB"
[[flow]]
name = "near"
from = "a"
to = "b"
workload = "upload"
size = "1 KB"
"#;
    let path = Path::read(&Source::new("test.toml", text)).unwrap();
    let of = |flows: &[usize]| round_trip(&path, flows).as_milliseconds();
    assert!((of(&[0]) - 470.0).abs() < 1e-9);
    assert!((of(&[1]) - 30.0).abs() < 1e-9);
    assert!((of(&[0, 1]) - 30.0).abs() < 1e-9);
    assert_eq!(round_trip(&path, &[]), TimeSpan::ZERO);
}
