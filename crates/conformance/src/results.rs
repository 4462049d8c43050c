//! Outcomes as records and as a table.

use midspan_records::{By, Record, Records};
use midspan_report::{Alignment, Cell, Table};

use crate::differences::{self, Verdict};
use crate::network::Family;
use crate::run::{Outcome, Results, WITHOUT};

/// One record for each outcome, with the number of events that differ from the expected ones.
///
/// The item is the case's name; the case is protocol and proxy. The note contains the transcript of
/// the run without a proxy, the reasons for a difference, or the differing events.
#[must_use]
pub fn records(results: &Results) -> Records {
    let mut records = Records::default();
    for outcome in &results.outcomes {
        let case = format!("{} {}", outcome.family.name(), outcome.proxy);
        let value = f64::from(u32::try_from(differing(outcome)).unwrap_or(u32::MAX));
        let mut record = Record::new(
            outcome.case,
            &case,
            "differing events",
            "events",
            By::Lab,
            value,
        )
        .with_ok(outcome.verdict != Verdict::Different);
        if outcome.proxy == WITHOUT {
            record = record.with_note(outcome.seen.to_string());
        } else if let Some(note) = note(outcome) {
            record = record.with_note(note);
        }
        records.push(record);
    }
    records
}

/// One row for each case, one column for each proxy.
#[must_use]
pub fn table(results: &Results) -> Table {
    let mut table = Table::new("Sessions as without a proxy");
    table.add_column("case", Alignment::Left);
    let proxies: Vec<&str> = results
        .participants
        .iter()
        .filter(|participant| participant.description.is_ok() && participant.name != WITHOUT)
        .map(|participant| participant.name.as_str())
        .collect();
    for proxy in &proxies {
        table.add_column(proxy, Alignment::Left);
    }
    for case in cases(results) {
        let mut row = vec![Cell::new(case)];
        for proxy in &proxies {
            let outcomes = results.outcomes.iter();
            let outcomes =
                outcomes.filter(|outcome| outcome.case == case && outcome.proxy == *proxy);
            row.push(cell(outcomes.map(Compared::from), &mut table));
        }
        table.add_row(row);
    }
    for participant in &results.participants {
        table.add_remark(&match &participant.description {
            Ok(text) => format!("{}: {text}", participant.name),
            Err(why) => format!("{}: skipped, {why}", participant.name),
        });
    }
    table
}

/// The events of the run without a proxy: one row for each case.
#[must_use]
pub fn baseline(results: &Results) -> Table {
    let mut table = Table::new("What both ends do and see without a proxy");
    for heading in ["case", "client", "server"] {
        table.add_column(heading, Alignment::Left);
    }
    let mut before = None;
    for outcome in results
        .outcomes
        .iter()
        .filter(|outcome| outcome.proxy == WITHOUT)
    {
        let name = match before.replace((outcome.case, &outcome.seen)) {
            Some((case, seen)) if case == outcome.case && *seen == outcome.seen => continue,
            Some((case, _)) if case == outcome.case => {
                format!("{case} ({})", outcome.family.name())
            }
            _ => outcome.case.to_owned(),
        };
        table.add_row(vec![
            Cell::new(&name),
            Cell::new(&crate::transcript::list(&outcome.seen.client)),
            Cell::new(&crate::transcript::list(&outcome.seen.server)),
        ]);
    }
    table
}

fn cases(results: &Results) -> Vec<&'static str> {
    let mut names = Vec::new();
    for outcome in &results.outcomes {
        if !names.contains(&outcome.case) {
            names.push(outcome.case);
        }
    }
    names
}

/// The result over one protocol, compared with the expected one.
#[derive(Debug)]
pub struct Compared {
    /// The protocol.
    pub family: Family,
    /// Nothing differs.
    pub is_same: bool,
    /// Something differs without a reason.
    pub is_different: bool,
    /// The reasons, or what differs.
    pub note: Option<String>,
}

/// The results over both protocols in one cell, with their notes below the table.
pub fn cell(compared: impl IntoIterator<Item = Compared>, table: &mut Table) -> Cell {
    let compared: Vec<Compared> = compared.into_iter().collect();
    let differ = compared.iter().filter(|one| one.is_different);
    let differ: Vec<&str> = differ.map(|one| one.family.name()).collect();
    let text = if compared.is_empty() {
        "–".to_owned()
    } else if differ.is_empty() {
        let is_same = compared.iter().all(|one| one.is_same);
        if is_same { "same" } else { "same, but" }.to_owned()
    } else if differ.len() == compared.len() {
        "DIFFERS".to_owned()
    } else {
        format!("DIFFERS over {}", differ.join(", "))
    };
    let mut cell = Cell::new(&text);
    for note in compared.iter().filter_map(|one| one.note.as_ref()) {
        table.add_note(&mut cell, note);
    }
    cell
}

impl From<&Outcome> for Compared {
    fn from(outcome: &Outcome) -> Self {
        Self {
            family: outcome.family,
            is_same: outcome.verdict == Verdict::Same,
            is_different: outcome.verdict == Verdict::Different,
            note: note(outcome),
        }
    }
}

fn note(outcome: &Outcome) -> Option<String> {
    match &outcome.verdict {
        Verdict::Same => None,
        Verdict::Explained(reasons) => Some(reasons.join("; ")),
        Verdict::Different => Some(differences::describe(&outcome.expected, &outcome.seen)),
    }
}

/// The number of events of both ends and the proxy that differ from the expected ones, compared by
/// position.
fn differing(outcome: &Outcome) -> usize {
    let (expected, seen) = (&outcome.expected, &outcome.seen);
    let ends = [
        (&expected.client, &seen.client),
        (&expected.server, &seen.server),
        (&expected.proxy, &seen.proxy),
    ];
    ends.iter()
        .map(|(expected, seen)| {
            let same = expected
                .iter()
                .zip(seen.iter())
                .filter(|(a, b)| a == b)
                .count();
            expected.len().max(seen.len()) - same
        })
        .sum()
}
