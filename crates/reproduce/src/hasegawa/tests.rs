//! The results in the paper's text, and those of the three ways to start.

use midspan_records::Record;

use super::FIGURES;
use crate::Effort;
use crate::figure::simulate;

fn run(item: &str) -> Vec<Record> {
    let effort = Effort {
        item: Some(item.to_owned()),
        ..Effort::quick()
    };
    simulate(FIGURES, &effort, &mut |_| ()).unwrap().records
}

fn all_hold(records: &[Record], least: usize) {
    let judged = records.iter().filter(|record| record.ok.is_some());
    assert!(judged.count() >= least);
    for record in records {
        assert_ne!(record.ok, Some(false), "{record:?}");
    }
}

#[test]
fn throughput_and_acks_are_the_papers() {
    all_hold(&run("figure 8"), 9);
    all_hold(&run("figure 11"), 3);
}

#[test]
fn sending_ahead_gains_what_the_paper_says() {
    all_hold(&run("figure 10"), 3);
}

#[test]
fn windows_and_flights_of_figure_12_are_the_papers() {
    for record in run("figure 12") {
        assert_eq!(Some(record.value), record.paper, "{record:?}");
    }
}

#[test]
fn only_the_syn_ack_breaks_where_fragments_are_dropped() {
    let records = run("starts");
    all_hold(&records, 54);
    let value = |case: &str, quantity: &str| {
        let found = records
            .iter()
            .find(|record| record.case == case && record.quantity == quantity);
        found.map(|record| record.value)
    };
    let broken = |way: &str, fragments: &str| {
        value(
            &format!("{way}, 1 MB, 500 ms, {fragments}"),
            "broken downloads",
        )
    };
    assert_eq!(broken("SYN/ACK", "fragments are dropped"), Some(1.0));
    assert_eq!(broken("SYN/ACK", "fragments pass"), Some(0.0));
    assert_eq!(
        broken("duplicate start", "fragments are dropped"),
        Some(0.0)
    );
    // A duplicate start sends the beginnings of two windows twice at most. A probe that arrives
    // costs no data.
    let again = |way: &str| value(&format!("{way}, 10 MB, 0 ms, fragments pass"), "sent again");
    assert_eq!(again("probe"), Some(0.0));
    assert!(again("duplicate start").is_some_and(|bytes| bytes > 0.0 && bytes <= 2.0 * 1448.0));
    // With all three starts, throughput is three times that with normal segments.
    let time = |way: &str| {
        value(
            &format!("{way}, 10 MB, 0 ms, fragments pass"),
            "completion time",
        )
    };
    let normal = time("normal segments").unwrap();
    for way in ["probe", "SYN/ACK", "duplicate start"] {
        assert!(time(way).is_some_and(|time| normal > 2.7 * time), "{way}");
    }
}
