//! Tests of the points. Their measurements would need a quiet machine.

use std::collections::BTreeSet;

use midspan_records::RunKey;

use super::*;
use crate::Paper;
use crate::network::Network;

const PAPERS: [Paper; 5] = Paper::ALL;
const EXTENTS: [Extent; 3] = [Extent::Quick, Extent::Normal, Extent::Full];

fn points_of(paper: Paper, extent: Extent) -> Vec<Point> {
    let effort = LabEffort {
        extent,
        ..LabEffort::default()
    };
    paper.lab_points(&effort).unwrap()
}

#[test]
fn points_and_cases_have_names_of_their_own_and_statements_name_cases_of_their_point() {
    for (paper, extent) in PAPERS.into_iter().flat_map(|p| EXTENTS.map(|e| (p, e))) {
        check_points(&points_of(paper, extent));
    }
}

/// Checks that names are unique, and that each statement names cases of its point.
pub(super) fn check_points(points: &[Point]) {
    let names: BTreeSet<&str> = points.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names.len(), points.len());
    for point in points {
        let cases: BTreeSet<&str> = point.cases.iter().map(|case| case.name).collect();
        assert_eq!(cases.len(), point.cases.len(), "{}", point.name);
        let keys: BTreeSet<RunKey> = (point.cases.iter())
            .map(|case| case.run_key(0).unwrap())
            .collect();
        assert_eq!(keys.len(), point.cases.len(), "{}", point.name);
        for said in &point.statements {
            assert!(cases.contains(said.case), "{said:?}");
            assert!(
                said.against.iter().all(|one| cases.contains(one)),
                "{said:?}"
            );
        }
    }
}

/// The expected duration of all runs, in seconds.
pub(super) fn seconds_of(points: &[Point]) -> f64 {
    let runs = point::runs(points).into_iter();
    runs.map(|(_, case, _)| case.run_seconds()).sum()
}

#[test]
fn what_is_measured_by_default_fits_45_minutes() {
    for paper in PAPERS {
        let seconds = seconds_of(&points_of(paper, Extent::Normal));
        assert!(seconds < 45.0 * 60.0, "{paper:?}: {seconds:.0} s");
        let quick = seconds_of(&points_of(paper, Extent::Quick));
        assert!(quick < 120.0, "{paper:?}: {quick:.0} s");
    }
}

#[test]
fn each_point_is_measured_before_one_is_measured_again() {
    let points = points_of(Paper::Hasegawa, Extent::Normal);
    let repetitions: Vec<u32> = point::runs(&points)
        .iter()
        .map(|(_, _, one)| *one)
        .collect();
    assert!(repetitions.is_sorted(), "{repetitions:?}");
    let cases: usize = points.iter().map(|point| point.cases.len()).sum();
    assert_eq!(repetitions.iter().filter(|one| **one == 0).count(), cases);
}

#[test]
fn an_item_that_is_not_there_is_refused_with_those_that_are() {
    let effort = LabEffort {
        item: Some("figure 99".to_owned()),
        ..LabEffort::default()
    };
    let error = Paper::Tam.lab_points(&effort).unwrap_err().to_string();
    assert!(error.contains("figure 9,"), "{error}");
}

/// A point with two cases, and runs of these with the given goodputs in Mbit/s.
fn point_with(goodputs: [&[f64]; 2]) -> (Point, Vec<Run>) {
    let mut point = points_of(Paper::Tam, Extent::Quick).remove(0);
    point.repetitions = u32::try_from(goodputs[0].len()).unwrap();
    let mut runs = Vec::new();
    for (case, goodputs) in point.cases.iter().zip(goodputs) {
        for (repetition, goodput) in (0..).zip(goodputs) {
            runs.push(Run {
                transfers: vec![Transfer {
                    completion: Some(8.0 / goodput),
                    goodput: goodput * 1e6,
                    p95: None,
                }],
                ..Run::new(&point.name, case.name, repetition)
            });
        }
    }
    (point, runs)
}

fn gain(point: &Point) -> Statement {
    Statement::new(Metric::Goodput, point.cases[1].name, &[point.cases[0].name])
}

#[test]
fn a_bound_is_missed_only_where_the_whole_interval_is_beyond_it() {
    let (point, runs) = point_with([&[1.0, 2.0, 4.0], &[2.0, 3.0, 4.0]]);
    let ratio = |bound: Statement| bound.record(&point, &runs).unwrap();
    // The ratios are 2, 1.5 and 1.
    let met = ratio(gain(&point).at_least(1.5));
    assert_eq!((met.value, met.low, met.high), (1.5, Some(1.0), Some(2.0)));
    assert_eq!(met.ok, Some(true));
    assert_eq!(ratio(gain(&point).at_least(1.6)).ok, None);
    assert_eq!(ratio(gain(&point).at_least(2.1)).ok, Some(false));
    assert_eq!(ratio(gain(&point).at_most(1.4)).ok, None);
    assert_eq!(ratio(gain(&point).at_most(0.9)).ok, Some(false));
}

#[test]
fn a_void_run_leaves_its_pair_out() {
    let (point, mut runs) = point_with([&[1.0, 2.0], &[4.0, 6.0]]);
    runs[0].void = Some("void: noise".to_owned());
    let record = gain(&point).record(&point, &runs).unwrap();
    assert_eq!(record.value, 3.0);
    runs.iter_mut()
        .for_each(|run| run.void = Some("void".to_owned()));
    assert_eq!(gain(&point).record(&point, &runs), None);
}

#[test]
fn records_of_lab_simulation_and_analysis_stand_side_by_side() {
    use midspan_records::By;
    let (point, runs) = point_with([&[1.0, 2.0], &[4.0, 6.0]]);
    let (told, _) = figures::tell(&[point], &runs, 1);
    let count = |by| told.records.iter().filter(|record| record.by == by).count();
    // Two simulations, of goodput not thinned and thinned; one analysis, because the analysis does
    // not support thinning.
    assert_eq!((count(By::Simulation), count(By::Analysis)), (2, 1));
    assert!(count(By::Lab) >= 4);
    assert_eq!(told.figures.len(), 1);
    assert_eq!(told.figures[0].plot.series.len(), 2);
}

/// A run that an earlier build stored. Renaming a type, a field, a point or a case must not make
/// the run unfindable; if it does, `serde(rename)` keeps the stored name.
#[test]
fn a_stored_run_of_an_earlier_build_is_found() {
    let line = concat!(
        r#"{"run":"lab 1","key":"eadabef99df46ed11f5eeffc2f90bb94f578326cf5f0a50913a3b1aa1ead0109","#,
        r#""row":{"point":"a","arm":"b","repetition":2,"void":null,"#,
        r#""transfers":[{"completion":8.0,"goodput":1000000.0,"p95":null}],"#,
        r#""acks":700.0,"overflows":1.0,"retransmissions":2.0,"timeouts":0.0,"#,
        r#""wire":{"burst":3.0,"longest":4.0,"dropped":5.0}}}"#,
        "\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs");
    std::fs::write(&file, line).unwrap();
    const SMALL: Network = Network::new(
        "small",
        r#"
        seed = 7
        [[host]]
        name = "client"
        [[proxy]]
        name = "gateway"
        policy = "auto"
        [[host]]
        name = "server"
        [[link]]
        name = "narrow"
        between = ["client", "gateway"]
        rate = "8 Mbit/s"
        delay = "10 ms"
        [[link]]
        name = "wide"
        between = ["gateway", "server"]
        [[flow]]
        name = "file"
        from = "client"
        to = "server"
        workload = "download"
        size = "1 MB"
        "#,
    );
    let path = SMALL.path(&[]).unwrap();
    let case = Case::midspan("named otherwise", path, 10.0).with_thin(midspan_lab::ThinOptions {
        pass: true,
        ack_first: None,
    });
    let store: Store<Run> = Store::open(&file, RUNS).unwrap();
    let key = case.run_key(2).unwrap();
    let run = store.get(&key);
    let run = run.unwrap_or_else(|| panic!("{} {:?}", key.digest(), store.note()));
    assert_eq!((run.acks, run.wire.dropped), (700.0, 5.0));
    assert_eq!(run.transfers[0].completion, Some(8.0));
    assert_eq!(store.get(&case.run_key(1).unwrap()), None);
}
