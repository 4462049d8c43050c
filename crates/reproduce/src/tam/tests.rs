#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_records::Record;

use super::*;
use crate::Effort;
use crate::figure::simulate;

#[test]
fn every_item_is_there_and_its_bounds_hold() {
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
    assert!(missed.is_empty(), "{missed:#?}");
}
