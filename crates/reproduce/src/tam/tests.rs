#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_records::Record;

use super::*;
use crate::Effort;
use crate::figure::simulate;

/// Bounds that are known to be missed: item, case, and quantity. `docs/papers/tam.md` has the reasons.
const MISSED: [(&str, &str, &str); 2] = [
    (
        "figure 9, Linux hosts",
        "100 kbit/s up, queue of 200, cubic",
        "ratio of goodputs",
    ),
    (
        "figure 9, Linux hosts",
        "50 kbit/s up, queue of 200, cubic",
        "ratio of goodputs",
    ),
];

#[test]
fn every_item_is_there_and_only_known_bounds_are_missed() {
    let out = simulate(FIGURES, &Effort::quick(), &mut |_| {}).unwrap();
    let simulated = FIGURES.iter().filter(|figure| figure.simulation.is_some());
    let items: Vec<&str> = simulated.flat_map(|figure| figure.items).copied().collect();
    for item in items {
        let count = out
            .records
            .iter()
            .filter(|record| record.item == item)
            .count();
        assert!(count > 1, "{item}");
    }
    let missed: Vec<&Record> = out
        .records
        .iter()
        .filter(|record| record.ok == Some(false))
        .collect();
    let names: Vec<_> = (missed.iter())
        .map(|record| {
            (
                record.item.as_str(),
                record.case.as_str(),
                record.quantity.as_str(),
            )
        })
        .collect();
    assert_eq!(names, MISSED, "{missed:#?}");
}
