//! What the paper says, and what the three starts do.

use super::simulate;
use crate::Effort;

fn run(item: &str) -> Vec<midspan_records::Record> {
    let effort = Effort {
        item: Some(item.to_owned()),
        ..Effort::quick()
    };
    simulate(&effort, &mut |_| ()).unwrap().records
}

#[test]
fn show() {
    for item in [
        "figure 8",
        "figure 9",
        "figure 10",
        "figure 11",
        "figure 12",
        "starts",
    ] {
        for r in run(item) {
            eprintln!(
                "{} | {} | {} {} | {:.4} | paper {:?} | {:?}",
                r.item, r.case, r.quantity, r.unit, r.value, r.paper, r.ok
            );
        }
    }
}
