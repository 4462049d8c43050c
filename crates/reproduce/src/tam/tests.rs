#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use super::*;

#[test]
fn every_item_is_there_and_its_bounds_hold() {
    let out = simulate(&Effort::quick(), &mut |_| {}).unwrap();
    let mut items: Vec<&str> = FIGURES.iter().map(|(item, _)| *item).collect();
    items.extend(RECORDS.iter().map(|(item, _)| *item));
    items.push("loss both ways");
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
