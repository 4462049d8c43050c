//! The results of the real paths as tables.

use midspan_lab::CaseKind;
use midspan_policy::LegSettings;
use midspan_records::Record;
use midspan_report::units::format_with_spread;
use midspan_report::{Alignment, Cell, Table};

use super::super::{Judged, Point};
use super::HAPROXY;
use super::grid::{completion, ranked};

/// Completion times: a row for each transfer on a path, a column for each case.
#[must_use]
pub fn times(points: &[Point], records: &[Record]) -> Table {
    let mut table = Table::new(
        "Completion times (s): medians, with the least and the greatest; with a proxy, both ends send with CUBIC",
    );
    let mut cases: Vec<&str> = Vec::new();
    for case in points.iter().flat_map(|point| &point.cases) {
        if !cases.contains(&case.name) {
            cases.push(case.name);
        }
    }
    table.add_column("path and transfer", Alignment::Left);
    for case in &cases {
        table.add_column(case, Alignment::Right);
    }
    let has_values = cases.contains(&HAPROXY);
    if has_values {
        table.add_column("HAProxy's legs", Alignment::Left);
    }
    for point in points {
        let mut row = vec![Cell::new(&point.name)];
        for case in &cases {
            let of_point = point.cases.iter().find(|of_point| of_point.name == *case);
            let found = of_point.and_then(|case| completion(point, case, records));
            let mut cell = Cell::new(&found.map_or_else(String::new, thousandths));
            if let Some(note) = found.and_then(|record| record.note.as_ref()) {
                table.add_note(&mut cell, note);
            }
            row.push(cell);
        }
        if has_values {
            row.push(Cell::new(&values_of_haproxy(point)));
        }
        table.add_row(row);
    }
    table
}

/// Congestion control and initial window of HAProxy's legs towards the client and towards the server.
fn values_of_haproxy(point: &Point) -> String {
    let leg = |leg: &LegSettings| {
        let control = leg.congestion_control.as_deref().unwrap_or("kernel");
        let window = leg.initial_window.unwrap_or(10);
        format!("{} × {window}", control.to_uppercase())
    };
    let haproxy = (point.cases.iter()).find(|case| case.kind == CaseKind::Haproxy);
    let proxy = haproxy.and_then(|case| case.path.proxies().next());
    proxy.map_or_else(String::new, |(_, proxy)| {
        format!("{}, {}", leg(&proxy.client_leg), leg(&proxy.server_leg))
    })
}

/// HAProxy's hand-set values: the best and the worst at each point, with their completion times.
#[must_use]
pub fn choices(points: &[Point], records: &[Record]) -> Table {
    let mut table = Table::new("HAProxy's best hand-set values, towards the receiver");
    for heading in ["path and transfer", "best", "second", "worst"] {
        table.add_column(heading, Alignment::Left);
    }
    for point in points {
        let ranked = ranked(point, records);
        let of = |one: Option<&(&str, f64)>| {
            one.map_or_else(String::new, |(name, time)| format!("{name}: {time:.3} s"))
        };
        let row = [of(ranked.first()), of(ranked.get(1)), of(ranked.last())];
        let row = row.iter().map(|text| Cell::new(text));
        table.add_row([Cell::new(&point.name)].into_iter().chain(row).collect());
    }
    table
}

/// Times, with their unit in the title, and ratios.
fn thousandths(record: &Record) -> String {
    let digits = |value: f64| format!("{value:.3}");
    match (record.low, record.high) {
        (Some(low), Some(high)) => {
            format!(
                "{} ({}–{})",
                digits(record.value),
                digits(low),
                digits(high)
            )
        }
        _ => digits(record.value),
    }
}

/// The targets and their results.
#[must_use]
pub fn targets(judged: &[Judged]) -> Table {
    let mut table = Table::new("Targets");
    for heading in ["path and transfer", "what", "asked"] {
        table.add_column(heading, Alignment::Left);
    }
    table.add_column("median (interval)", Alignment::Right);
    table.add_column("", Alignment::Left);
    for one in judged {
        let said = &one.statement;
        let others = said.against.join(" or ");
        let what = if others.is_empty() {
            format!("{}: {}", said.case, said.metric.quantity().name)
        } else {
            format!("{} / {others}", said.case)
        };
        let asked = said
            .bound
            .map_or_else(String::new, |bound| bound.to_string());
        let mut middle = Cell::new("");
        if let Some(record) = &one.record {
            let text = if others.is_empty() {
                format_with_spread(record.value, record.low, record.high, &record.unit)
            } else {
                thousandths(record)
            };
            middle = Cell::new(&text);
            if let Some(note) = &record.note {
                let interval = note
                    .split_once("; ")
                    .map_or(note.as_str(), |(_, rest)| rest);
                table.add_note(&mut middle, interval);
            }
        }
        table.add_row(vec![
            Cell::new(&one.point),
            Cell::new(&what),
            Cell::new(&asked),
            middle,
            Cell::new(verdict(one)),
        ]);
    }
    table
}

/// Open if the interval contains the bound and the median is beyond it, and if there is no valid
/// measurement.
fn verdict(one: &Judged) -> &'static str {
    match one.record.as_ref().map(|record| record.ok) {
        Some(Some(true)) => "met",
        Some(Some(false)) => "MISSED",
        Some(None) => "open",
        None => "open: not measured",
    }
}

/// How many targets are met, missed and open, in a sentence.
#[must_use]
pub fn summary(judged: &[Judged]) -> String {
    let count = |ok: Option<bool>| {
        let of = |one: &&Judged| one.record.as_ref().and_then(|record| record.ok) == ok;
        judged.iter().filter(of).count()
    };
    format!(
        "{} targets: {} met, {} missed, {} open",
        judged.len(),
        count(Some(true)),
        count(Some(false)),
        count(None)
    )
}
