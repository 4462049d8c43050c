//! Tests of the points. Their measurements would need a quiet machine.

use std::collections::BTreeSet;

use midspan_policy::PolicyName;

use super::super::point;
use super::super::tests::{check_points, seconds_of};
use super::*;

fn points_of(extent: Extent, item: Option<&str>, transfers: &[&str]) -> Vec<Point> {
    let effort = LabEffort {
        extent,
        item: item.map(str::to_owned),
        transfers: transfers.iter().map(|name| (*name).to_owned()).collect(),
        ..LabEffort::default()
    };
    points(&effort).unwrap()
}

fn items(points: &[Point]) -> BTreeSet<&str> {
    points.iter().map(|point| point.item).collect()
}

#[test]
fn points_are_sound_and_fit_their_time() {
    for extent in [Extent::Quick, Extent::Normal, Extent::Full] {
        let points = points_of(extent, None, &[]);
        check_points(&points);
        let minutes = seconds_of(&points) / 60.0;
        match extent {
            Extent::Quick => assert!(minutes < 3.0, "{minutes}"),
            Extent::Normal => assert!(minutes < 45.0, "{minutes}"),
            Extent::Full => assert_eq!(items(&points).len(), 12),
        }
    }
}

#[test]
fn every_path_is_measured_by_default_and_the_first_round_has_them_all() {
    let points = points_of(Extent::Normal, None, &[]);
    assert_eq!(items(&points).len(), 12);
    let runs = point::runs(&points);
    let first = runs
        .iter()
        .take_while(|(_, _, repetition)| *repetition == 0);
    let first: BTreeSet<&str> = first.map(|(point, _, _)| point.item).collect();
    assert_eq!(first, items(&points));
}

#[test]
fn a_path_and_transfers_can_be_chosen() {
    let points = points_of(Extent::Quick, Some("maritime"), &[]);
    assert_eq!(items(&points), BTreeSet::from(["maritime"]));
    // A transfer that would take too long by default is measured if it is requested.
    let points = points_of(Extent::Normal, Some("maritime"), &["10 MB"]);
    assert_eq!(points.len(), 1);
    let wrong = LabEffort {
        transfers: vec!["2 MB".to_owned()],
        ..LabEffort::default()
    };
    let error = super::points(&wrong).unwrap_err().to_string();
    assert!(error.contains("upload 10 MB"), "{error}");
    let wrong = LabEffort {
        item: Some("mars".to_owned()),
        ..LabEffort::default()
    };
    let error = super::points(&wrong).unwrap_err().to_string();
    assert!(error.contains("geo-1e-3, wifi,"), "{error}");
}

#[test]
fn midspan_has_no_hand_set_value_and_only_the_learned_one_a_lesson() {
    for point in points_of(Extent::Full, None, &[]) {
        for case in &point.cases {
            let (_, proxy) = case.path.proxies().next().unwrap();
            let is_ours = case.kind == CaseKind::Midspan;
            assert_eq!(proxy.policy == PolicyName::Auto, is_ours, "{}", case.name);
            assert_eq!(case.discarded.is_some(), case.name == LEARNED);
            if is_ours {
                assert_eq!(proxy.client_leg, proxy.server_leg);
                assert_eq!(proxy.client_leg.initial_window, None);
            }
        }
    }
}

#[test]
fn uploads_of_10_mb_take_under_a_minute() {
    let points = points_of(Extent::Full, None, &["upload 10 MB"]);
    assert!(!points.is_empty());
    let points = points_of(Extent::Full, None, &[]);
    let long = points
        .iter()
        .filter(|point| point.name.ends_with("upload 10 MB"));
    let names: Vec<&str> = long.map(|point| point.item).collect();
    assert!(
        names.contains(&"wireless") && !names.contains(&"maritime"),
        "{names:?}"
    );
}

#[test]
fn a_ratio_may_be_slower_by_a_share_or_by_a_time() {
    use super::super::run::Run;
    let mut point = points_of(Extent::Normal, Some("lan"), &["100 KB"]).remove(0);
    point.repetitions = 1;
    let verdict = |direct: f64, ours: f64| {
        let run = |case: &str, time: f64| Run {
            transfers: vec![super::super::Transfer {
                completion: Some(time),
                goodput: 0.0,
                p95: None,
            }],
            ..Run::new(&point.name, case, 0)
        };
        let runs = [run(DIRECT_CUBIC, direct), run(COLD, ours)];
        let mut said = point.statements.iter();
        let said = said.find(|said| said.case == COLD && said.against == [DIRECT_CUBIC]);
        said.unwrap().record(&point, &runs).unwrap().ok
    };
    assert_eq!(verdict(1.0, 1.019), Some(true));
    assert_eq!(verdict(1.0, 1.021), Some(false));
    // The bound allows one millisecond more than ten.
    assert_eq!(verdict(0.010, 0.0109), Some(true));
    assert_eq!(verdict(0.010, 0.0112), Some(false));
}

#[test]
fn of_two_that_are_compared_with_the_faster_counts() {
    use super::super::run::Run;
    let mut point = points_of(Extent::Full, Some("lan"), &["100 KB"]).remove(0);
    point.repetitions = 1;
    let run = |case: &str, time: f64| Run {
        transfers: vec![super::super::Transfer {
            completion: Some(time),
            goodput: 0.0,
            p95: None,
        }],
        ..Run::new(&point.name, case, 0)
    };
    let runs = [
        run(HAPROXY_CUBIC, 4.0),
        run(HAPROXY_BBR, 2.0),
        run(COLD, 3.0),
    ];
    let said = point.statements.iter().find(|said| said.against.len() == 2);
    let record = said.unwrap().record(&point, &runs).unwrap();
    assert_eq!((record.value, record.ok), (1.5, Some(false)));
}

#[test]
fn the_report_has_a_chart_for_each_transfer_and_the_targets() {
    use midspan_records::{By, Record};

    use crate::Simulated;
    use crate::laboratory::Laboratory;

    let mut points = points_of(Extent::Normal, Some("lan"), &["100 KB"]);
    points.extend(points_of(
        Extent::Normal,
        Some("geo-0"),
        &["100 KB", "1 MB"],
    ));
    let quantity = super::super::Metric::Completion.quantity();
    let record = |point: &super::super::Point, case: &str, value| {
        Record::of(
            point.item,
            &format!("{}, {case}", point.name),
            &quantity,
            By::Lab,
            value,
        )
    };
    let records = points
        .iter()
        .flat_map(|point| [record(point, DIRECT_CUBIC, 2.0), record(point, COLD, 1.0)])
        .collect();
    let laboratory = Laboratory {
        points,
        figures: Simulated {
            records,
            figures: Vec::new(),
        },
        judged: Vec::new(),
        runs: 6,
        void: 1,
    };
    let report = report(&laboratory, "midspan lab paths".to_owned());
    let charts: Vec<_> = report.sections[0]
        .content
        .iter()
        .filter_map(|content| match content {
            midspan_report::Content::Bars(plot) => Some((
                plot.title.as_str(),
                plot.groups.len(),
                plot.series
                    .iter()
                    .map(|series| series.name.as_str())
                    .collect::<Vec<_>>(),
            )),
            _ => None,
        })
        .collect();
    let cases = vec![DIRECT_CUBIC, COLD];
    assert_eq!(charts, [("100 KB", 2, cases.clone()), ("1 MB", 1, cases)]);
    let html = report.to_html().unwrap();
    assert!(html.contains("1 of 6 runs are void"), "{html}");
    let files: Vec<&str> = (report.downloads.iter())
        .map(|file| file.name.as_str())
        .collect();
    assert!(files.contains(&"geo-0-1-MB.toml"), "{files:?}");
    let seeds = "seed of the first repetition";
    assert!(report.method.facts.iter().any(|fact| fact.name == seeds));
}
