//! Outcomes as records and as a table.

use midspan_conformance::results::{Compared, cell};
use midspan_records::{By, Record, Records};
use midspan_report::{Alignment, Cell, Table};

use crate::differences::{self, Verdict};
use crate::gateway::Gateway;
use crate::run::{Outcome, Results};

/// One record for each outcome, with the number of lines that differ from plain routing.
///
/// The item is the case's name; the case is protocol and gateway. The note contains the lines with
/// plain routing, the reasons for a difference, or the differing lines.
#[must_use]
pub fn records(results: &Results) -> Records {
    let mut records = Records::default();
    for outcome in &results.outcomes {
        let case = format!("{} {}", outcome.family.name(), outcome.gateway.name());
        let differing = differences::differing(&outcome.expected, &outcome.seen);
        let value = f64::from(u32::try_from(differing).unwrap_or(u32::MAX));
        let good = matches!(outcome.verdict, Verdict::Same | Verdict::Explained(_));
        let mut record = Record::new(
            outcome.case,
            &case,
            "differing lines",
            "lines",
            By::Lab,
            value,
        )
        .with_ok(good);
        if outcome.gateway == Gateway::Direct {
            record = record.with_note(outcome.seen.lines().join("; "));
        } else if let Some(note) = note(outcome) {
            record = record.with_note(note);
        }
        records.push(record);
    }
    for skipped in &results.skipped {
        let record = Record::new(skipped.case, "all", "skipped", "cases", By::Lab, 1.0);
        records.push(record.with_note(skipped.reason.clone()));
    }
    records
}

/// One row for each case, one column for each gateway.
#[must_use]
pub fn table(results: &Results) -> Table {
    let mut table = Table::new("Real programs, as with plain routing");
    table.add_column("case", Alignment::Left);
    let gateways: Vec<Gateway> = Gateway::ALL
        .into_iter()
        .filter(|gateway| *gateway != Gateway::Direct)
        .filter(|gateway| has(results, *gateway))
        .collect();
    for gateway in &gateways {
        table.add_column(gateway.name(), Alignment::Left);
    }
    let mut names: Vec<&str> = results.outcomes.iter().map(|one| one.case).collect();
    names.dedup();
    for name in names {
        let of_case: Vec<&Outcome> = results
            .outcomes
            .iter()
            .filter(|outcome| outcome.case == name)
            .collect();
        let mut row = vec![Cell::new(name)];
        let void = of_case.iter().find(|one| one.verdict == Verdict::Void);
        for gateway in &gateways {
            let of_gateway = of_case.iter().filter(|one| one.gateway == *gateway);
            let mut cell = cell(of_gateway.map(|one| compared(one)), &mut table);
            if let Some(void) = void {
                cell = Cell::new("VOID");
                let shown = void.seen.lines().join("; ");
                table.add_note(
                    &mut cell,
                    &format!("does not work with plain routing: {shown}"),
                );
            }
            row.push(cell);
        }
        table.add_row(row);
    }
    for skipped in &results.skipped {
        table.add_remark(&format!("{}: skipped, {}", skipped.case, skipped.reason));
    }
    table
}

fn has(results: &Results, gateway: Gateway) -> bool {
    let mut outcomes = results.outcomes.iter();
    outcomes.any(|outcome| outcome.gateway == gateway)
}

fn compared(outcome: &Outcome) -> Compared {
    Compared {
        family: outcome.family,
        is_same: outcome.verdict == Verdict::Same,
        is_different: outcome.verdict == Verdict::Different,
        note: note(outcome),
    }
}

fn note(outcome: &Outcome) -> Option<String> {
    match &outcome.verdict {
        Verdict::Same => None,
        Verdict::Explained(reasons) => Some(reasons.join("; ")),
        Verdict::Different => Some(differences::describe(&outcome.expected, &outcome.seen)),
        Verdict::Void => Some("does not work with plain routing".to_owned()),
    }
}
