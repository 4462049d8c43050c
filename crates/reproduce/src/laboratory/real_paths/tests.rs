//! Tests of the points. Their measurements would need a quiet machine.

use std::collections::BTreeSet;

use midspan_policy::PolicyName;
use midspan_records::Store;

use super::super::run::Run;
use super::super::tests::{check_points, seconds_of};
use super::super::{RUNS, point};
use super::*;

fn points_of(extent: Extent, item: Option<&str>, transfers: &[&str]) -> Vec<Point> {
    let effort = LabEffort {
        extent,
        item: item.map(str::to_owned),
        transfers: transfers.iter().map(|name| (*name).to_owned()).collect(),
        ..LabEffort::default()
    };
    points(&effort, &Chosen::default()).unwrap()
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
    let error = super::points(&wrong, &Chosen::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("upload 10 MB"), "{error}");
    let wrong = LabEffort {
        item: Some("mars".to_owned()),
        ..LabEffort::default()
    };
    let error = super::points(&wrong, &Chosen::default())
        .unwrap_err()
        .to_string();
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
fn uploads_are_measured_where_the_upstream_is_bad() {
    let points = points_of(Extent::Full, None, &[]);
    let of = |transfer: &str| -> BTreeSet<&str> {
        let with = (points.iter()).filter(|point| point.name.ends_with(transfer));
        with.map(|point| point.item).collect()
    };
    assert_eq!(of("upload 1 MB"), BTreeSet::from(UPLOADS));
    assert_eq!(of("upload 10 MB"), BTreeSet::from(UPLOADS));
}

#[test]
fn what_fits_into_the_first_flight_is_shown_once_and_the_rest_is_judged_six_times() {
    for point in points_of(Extent::Full, None, &[]) {
        let is_judged = point.statements.iter().any(|said| said.bound.is_some());
        assert_eq!(is_judged, !point.name.ends_with(" 10 KB"), "{}", point.name);
        assert_eq!(point.repetitions, if is_judged { 6 } else { 1 });
    }
}

#[test]
fn the_grid_has_all_judged_points_and_its_best_values_are_haproxy_s() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("grid.jsonl");
    let grid = grid(&LabEffort::default()).unwrap();
    check_points(&grid);
    let judged = points_of(Extent::Full, None, &[]);
    let judged = judged.iter().filter(|point| point.repetitions == 6);
    let names = |points: &[Point]| -> Vec<String> {
        points.iter().map(|point| point.name.clone()).collect()
    };
    assert_eq!(
        names(&grid),
        judged.map(|point| point.name.clone()).collect::<Vec<_>>()
    );
    let mut store: Store<Run> = Store::open(&file, RUNS).unwrap();
    for (name, best) in [
        ("geo-0, 1 MB", "BBR × 400"),
        ("lte, upload 1 MB", "CUBIC × 50"),
    ] {
        let point = grid.iter().find(|point| point.name == name).unwrap();
        for (_, case, repetition) in point.runs() {
            let time = if case.name == best { 1.0 } else { 2.0 };
            let run = Run {
                transfers: vec![super::super::Transfer {
                    completion: Some(time),
                    goodput: 0.0,
                    p95: None,
                }],
                ..Run::new(&point.name, case.name, repetition)
            };
            store.put(&case.run_key(repetition).unwrap(), run).unwrap();
        }
    }
    let effort = LabEffort {
        extent: Extent::Full,
        ..LabEffort::default()
    };
    let points = super::points(&effort, &Chosen::read(&file).unwrap()).unwrap();
    let legs = |name: &str| {
        let point = points.iter().find(|point| point.name == name).unwrap();
        let mut cases = point.cases.iter();
        let case = cases.find(|case| case.kind == CaseKind::Haproxy).unwrap();
        let (_, proxy) = case.path.proxies().next().unwrap();
        [&proxy.client_leg, &proxy.server_leg].map(|leg| {
            let control = leg.congestion_control.clone();
            (control.unwrap(), leg.initial_window)
        })
    };
    let of = |control: &str, windows: [Option<u32>; 2]| {
        windows.map(|window| (control.to_owned(), window))
    };
    assert_eq!(legs("geo-0, 1 MB"), of("bbr", [Some(400), None]));
    assert_eq!(legs("lte, upload 1 MB"), of("cubic", [None, Some(50)]));
    // Where the grid was not measured, the assumed values.
    assert_eq!(legs("geo-0, 100 KB"), of("cubic", [Some(200), None]));
}

#[test]
fn the_grid_leaves_out_windows_that_make_no_difference() {
    let grid = grid(&LabEffort::default()).unwrap();
    let windows_of = |name: &str| -> Vec<&str> {
        let point = grid.iter().find(|point| point.name == name).unwrap();
        point.cases.iter().map(|case| case.name).collect()
    };
    // 14, 70, 691 and 6907 segments.
    assert_eq!(
        windows_of("geo-0, page"),
        ["CUBIC × 10", "CUBIC × 50", "BBR × 10", "BBR × 50"]
    );
    assert_eq!(windows_of("geo-0, 100 KB").len(), 6);
    assert_eq!(windows_of("geo-0, 1 MB").len(), 12);
    assert_eq!(windows_of("geo-0, upload 10 MB").len(), 12);
}

#[test]
fn a_ratio_may_be_slower_by_a_share_or_by_a_time() {
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
        let runs = [
            run(DIRECT_CUBIC, direct),
            run(DIRECT_BBR, 2.0 * direct),
            run(COLD, ours),
        ];
        let mut said = point.statements.iter();
        let said = said.find(|said| said.case == COLD && said.against.contains(&DIRECT_CUBIC));
        said.unwrap().record(&point, &runs).unwrap().ok
    };
    assert_eq!(verdict(1.0, 1.009), Some(true));
    assert_eq!(verdict(1.0, 1.011), Some(false));
    // The bound allows one millisecond more than ten.
    assert_eq!(verdict(0.010, 0.0109), Some(true));
    assert_eq!(verdict(0.010, 0.0112), Some(false));
}

#[test]
fn of_two_that_are_compared_with_the_faster_counts() {
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
    let runs = [run(DIRECT_CUBIC, 4.0), run(DIRECT_BBR, 2.0), run(COLD, 3.0)];
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
