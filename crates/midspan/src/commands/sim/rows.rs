//! The rows of a sweep as CSV, JSON and a table.

use midspan_records::{By, Record, statistics};
use midspan_report::units::format_with_spread;
use midspan_report::{pivot, stdout_width};
use midspan_sweep::{Plan, Row};
use miette::IntoDiagnostic;
use serde::Serialize;

use super::case_of;
use crate::printing;

/// Takes rows as soon as they are complete.
pub trait Output {
    /// Takes the rows of one point.
    fn add(&mut self, plan: &Plan, rows: &[Row]) -> miette::Result<()>;
    /// All rows are there.
    fn end(&mut self, title: &str);
    /// Whether nothing is printed before the end.
    fn is_table(&self) -> bool {
        false
    }
}

/// The name of a row: flow, case and swept values.
fn name(plan: &Plan, row: &Row) -> String {
    let mut name = format!("{} {}", row.flow, case_of(row.proxies));
    for (sweep, value) in plan.sweeps.iter().zip(&row.point) {
        name = format!("{name}, {} = {value}", sweep.key());
    }
    name
}

/// One quantity at one point: the mean over the repetitions with its 95 % interval. A point without
/// a result has no number as its value.
fn record(path: &str, plan: &Plan, row: &Row) -> Record {
    let mean = statistics::mean(&row.values);
    let value = mean.map_or(f64::NAN, |mean| mean.value);
    let record = Record::of(path, &name(plan, row), row.quantity, By::Simulation, value);
    match mean.and_then(|mean| mean.interval()) {
        Some((low, high)) => record.with_spread(low, high),
        None => record,
    }
}

/// A line about the first quantity of a flow at a point, for the person who waits.
pub fn line(plan: &Plan, row: &Row) -> Option<String> {
    use midspan_records::quantity::{COMPLETION_TIME, GOODPUT, RETRANSMISSIONS, SHARE_OF_LINK};
    let is_detail = [&GOODPUT, &SHARE_OF_LINK, &RETRANSMISSIONS].contains(&row.quantity);
    if is_detail && row.failure.is_none() && row.quantity != &GOODPUT {
        return None;
    }
    let record = record("", plan, row);
    let name = &record.case;
    match row.reason() {
        Some(reason) if row.quantity == &COMPLETION_TIME || row.values.is_empty() => {
            Some(format!("{name}: {}: {reason}", row.status().name()))
        }
        Some(_) => None,
        None => {
            let value = format_with_spread(record.value, record.low, record.high, &record.unit);
            Some(format!("{name}: {} {value}", record.quantity))
        }
    }
}

/// One line for each quantity at each point.
pub struct Csv;

impl Csv {
    /// Prints the heading.
    pub fn begin(plan: &Plan) -> miette::Result<Self> {
        let columns = [
            "flow", "case", "quantity", "unit", "mean", "low", "high", "runs", "status", "reason",
        ];
        let swept = plan.sweeps.iter().map(|sweep| sweep.key().to_string());
        print([swept.chain(columns.map(str::to_owned)).collect()])?;
        Ok(Self)
    }
}

impl Output for Csv {
    fn add(&mut self, _: &Plan, rows: &[Row]) -> miette::Result<()> {
        print(rows.iter().map(|row| {
            let mean = statistics::mean(&row.values);
            let interval = mean.and_then(|mean| mean.interval());
            let end = |end: Option<f64>| end.map_or_else(String::new, |end| end.to_string());
            let cells = [
                row.flow.clone(),
                case_of(row.proxies).to_string(),
                row.quantity.name.to_string(),
                row.quantity.unit.to_owned(),
                end(mean.map(|mean| mean.value)),
                end(interval.map(|(low, _)| low)),
                end(interval.map(|(_, high)| high)),
                row.values.len().to_string(),
                row.status().name().to_owned(),
                row.reason().unwrap_or_default(),
            ];
            row.point.iter().cloned().chain(cells).collect()
        }))
    }

    fn end(&mut self, _: &str) {}
}

/// Prints lines of comma-separated values.
fn print(lines: impl IntoIterator<Item = Vec<String>>) -> miette::Result<()> {
    let mut table = csv::Writer::from_writer(Vec::new());
    for line in lines {
        table.write_record(&line).into_diagnostic()?;
    }
    let text = table
        .into_inner()
        .map_err(|error| error.into_error())
        .into_diagnostic()?;
    printing::text(String::from_utf8_lossy(&text));
    Ok(())
}

/// One object, with a line for each quantity at each point.
pub struct Json {
    path: String,
    is_first: bool,
}

/// A record with the columns that only sweeps have.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    record: Record,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    runs: usize,
}

impl Json {
    /// Prints the beginning of the object.
    pub fn begin(path: &str) -> Self {
        printing::line("{\"records\": [");
        Self {
            path: path.to_owned(),
            is_first: true,
        }
    }
}

impl Output for Json {
    fn add(&mut self, plan: &Plan, rows: &[Row]) -> miette::Result<()> {
        for row in rows {
            let line = Line {
                record: record(&self.path, plan, row),
                status: row.status().name(),
                reason: row.reason(),
                runs: row.values.len(),
            };
            let text = serde_json::to_string(&line).into_diagnostic()?;
            // Standard output writes whole lines, so a comma stands before the next record.
            let separator = if self.is_first { ' ' } else { ',' };
            printing::line(format_args!("{separator}{text}"));
            self.is_first = false;
        }
        Ok(())
    }

    fn end(&mut self, _: &str) {
        printing::line("]}");
    }
}

/// A table, when all points are there.
pub struct Text {
    path: String,
    records: Vec<Record>,
}

impl Text {
    /// An empty table.
    pub fn begin(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            records: Vec::new(),
        }
    }
}

impl Output for Text {
    fn add(&mut self, plan: &Plan, rows: &[Row]) -> miette::Result<()> {
        self.records.extend(rows.iter().map(|row| {
            let mut record = record(&self.path, plan, row);
            record.note = row
                .reason()
                .map(|why| format!("{}: {why}", row.status().name()));
            record
        }));
        Ok(())
    }

    fn end(&mut self, title: &str) {
        printing::text(pivot(title, &self.records).to_text(stdout_width()));
    }

    fn is_table(&self) -> bool {
        true
    }
}
