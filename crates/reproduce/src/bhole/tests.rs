//! The tables as in `docs/papers/bhole.md`.

use super::*;
use crate::Effort;
use crate::figure::simulate;

/// The records of `step`.
fn table(step: Step) -> Vec<Record> {
    let mut tables = Tables::default();
    step(&mut tables).unwrap();
    assert_eq!(tables.retransmissions, 0, "nothing is lost in these tables");
    assert_eq!(tables.bytes_beyond_window, 0);
    tables.records
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn row(records: &[Record], case: &str) -> Vec<u64> {
    records
        .iter()
        .filter(|record| record.quantity == "packets" && record.case.starts_with(case))
        .map(|record| record.value as u64)
        .collect()
}

/// Checks that all records of a table are within [`CLOSE`] of the paper.
fn assert_close(records: &[Record], count: usize) {
    assert_eq!(records.len(), count);
    for record in records {
        assert!(
            (record.value - record.paper.unwrap()).abs() <= 2.0,
            "{record:?}"
        );
        assert_eq!(record.ok, Some(true), "{record:?}");
    }
}

#[test]
fn table_1_without_congestion() {
    assert_close(&table(Tables::table_1), 2);
}

#[test]
fn table_4_by_position() {
    assert_close(&table(Tables::table_4), 8);
}

#[test]
fn table_5_by_service_time() {
    let records = table(Tables::table_5);
    assert_close(&records[..1], 1);
    // Acknowledged first, as §II describes it: the service time hardly matters.
    let hidden = row(&records, "acknowledged first");
    assert_eq!(hidden, [2851; 6]);
    assert!(hidden[0].abs_diff(2850) <= 2);
    // Served first: the service time adds to the round trip. The paper lies between the two.
    for (index, (service, paper)) in TABLE_5.into_iter().enumerate() {
        let case = table_5_case(service, LocalAck::AfterService, 1);
        let served_first = case.run().unwrap().got;
        assert!(
            hidden[index] + 2 >= paper && paper >= served_first,
            "{service} us: {served_first}"
        );
    }
    assert_eq!(records.last().unwrap().ok, Some(true));
}

#[test]
fn table_5_falls_by_3_percent_when_served_first() {
    let records = table(Tables::table_5_served_first);
    let mean = row(&records, "served first");
    assert_eq!(mean, [2837, 2825, 2808, 2790, 2769, 2745]);
    assert!(mean[5] * 100 >= mean[0] * 96);
    let fall = records.last().unwrap();
    assert_eq!((fall.quantity.as_str(), fall.ok), ("fall", Some(true)));
}

#[test]
fn table_6_grows_with_the_buffer_and_saturates() {
    let records = table(Tables::table_6);
    assert_close(&records[..1], 1);
    let row = row(&records, "C_max");
    assert_eq!(row, [675, 1342, 2051, 2800, 2851, 2851]);
    assert!(row.windows(2).all(|pair| pair[0] <= pair[1]));
    assert!(records[2..].iter().all(|record| record.ok == Some(true)));
}

#[test]
fn figure_9_each_node_more_is_better() {
    let records = table(Tables::figure_9);
    let row = row(&records, "");
    assert_eq!(row, [2396, 4846, 5852, 5871]);
    assert!(row.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(records[1..].iter().all(|record| record.ok == Some(true)));
}

#[test]
fn every_table_is_there_and_nothing_is_lost() {
    let mut told = Vec::new();
    let out = simulate(FIGURES, &Effort::quick(), &mut |step| {
        told.push(step.to_owned())
    })
    .unwrap();
    let records = out.records;
    assert_eq!(told.len(), 8);
    let figures: Vec<&str> = out
        .figures
        .iter()
        .map(|figure| figure.item.as_str())
        .collect();
    let expected: Vec<String> = (3..=9).map(|number| format!("figure {number}")).collect();
    assert_eq!(figures, expected);
    for (item, count) in [
        ("table 1", 2),
        ("table 2", 2),
        ("table 3", 2),
        ("table 4", 8),
        ("table 5", 15),
        ("table 6", 7),
        ("figure 9", 4),
        ("all tables", 3),
    ] {
        let found = records.iter().filter(|record| record.item == item).count();
        assert_eq!(found, count, "{item}");
    }
    let lost = records.iter().filter(|record| record.case == "the others");
    for record in lost {
        assert_eq!((record.value, record.ok), (0.0, Some(true)), "{record:?}");
    }
}

#[test]
fn a_row_that_falls_or_still_grows_is_marked() {
    let marks = |values: [u64; 3]| {
        let mut row = values.map(|value| packets("", "", value, None));
        grows(&mut row);
        saturates(&mut row);
        row.map(|record| record.ok)
    };
    assert_eq!(marks([1, 2, 2]), [None, Some(true), Some(true)]);
    assert_eq!(marks([2, 1, 1]), [None, Some(false), Some(true)]);
    assert_eq!(marks([1, 2, 3]), [None, Some(true), Some(false)]);
}

#[test]
fn tables_2_and_3_with_momentary_congestion() {
    let mut tables = Tables::default();
    tables.table_2().unwrap();
    tables.table_3().unwrap();
    // TCP, then PTS, with congestion in the first and in the second half.
    assert_eq!(row(&tables.records, ""), [173, 304, 173, 288]);
    assert!(tables.records.iter().all(|record| record.ok == Some(true)));
    assert!(tables.congestion_repairs > 0, "congestion loses packets");
    assert_eq!(tables.figures.len(), 2);
    // cwnd of TCP and of the two connections of PTS; congestion takes it down to one packet.
    for figure in &tables.figures {
        let names: Vec<&str> = figure
            .plot
            .series
            .iter()
            .map(|series| series.name.as_str())
            .collect();
        assert_eq!(names, ["TCP", "PTS connection-1", "PTS connection-2"]);
        let least = |index: usize| {
            let points = figure.plot.series[index]
                .points
                .iter()
                .filter(|(at, _)| *at > 1.0);
            points.map(|(_, cwnd)| *cwnd).fold(f64::INFINITY, f64::min)
        };
        let congested = if figure.item == "figure 4" {
            [0, 1]
        } else {
            [0, 2]
        };
        assert!(
            congested.iter().all(|index| least(*index) < 2.0),
            "{}",
            figure.item
        );
        let other = if figure.item == "figure 4" { 2 } else { 1 };
        assert!(
            least(other) > 2.0,
            "{}: the other connection is not affected",
            figure.item
        );
    }
}

#[test]
fn an_item_brings_its_table_and_its_figure() {
    for item in ["table 4", "figure 6"] {
        let effort = Effort {
            item: Some(item.into()),
            ..Effort::quick()
        };
        let out = simulate(FIGURES, &effort, &mut |_| {}).unwrap();
        assert!(out.records.iter().all(|record| record.item == "table 4"));
        assert_eq!((out.records.len(), out.figures.len()), (8, 1));
    }
}
