//! The rows of a sweep as CSV, JSON and a table.

use midspan_records::{By, Record, statistics};
use midspan_report::units::format_with_spread;
use midspan_report::{pivot, stdout_width};
use midspan_sweep::{Plan, Row, RunRow, Status, column_of};
use midspan_units::si_value;
use miette::IntoDiagnostic;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::printing;

/// Takes rows as soon as they are complete.
pub trait Output {
    /// Takes the rows and the runs of one point.
    fn add(&mut self, plan: &Plan, rows: &[Row], runs: &[RunRow]) -> miette::Result<()>;
    /// All rows are there.
    fn end(&mut self, title: &str);
    /// Whether nothing is printed before the end.
    fn is_table(&self) -> bool {
        false
    }
}

/// The name of a row: flow, case and swept values.
fn name(plan: &Plan, row: &Row) -> String {
    let mut name = format!("{} {}", row.flow, row.case);
    for (sweep, value) in plan.sweeps.iter().zip(&row.point) {
        name = format!("{name}, {} = {value}", sweep.key());
    }
    name
}

/// One quantity at one point: the mean over the repetitions with its 95 % interval. A point without
/// a result has no number as its value.
pub fn record(path: &str, plan: &Plan, row: &Row) -> Record {
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

/// Prints nothing: the runs of a part are only stored.
pub struct Nothing;

impl Output for Nothing {
    fn add(&mut self, _: &Plan, _: &[Row], _: &[RunRow]) -> miette::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &str) {}
}

/// For each swept key, the column that has its values as numbers.
type NumberColumns = Vec<Option<String>>;

fn number_columns(plan: &Plan) -> NumberColumns {
    plan.sweeps.iter().map(column_of).collect()
}

/// The swept values of a point: as typed, then as numbers.
fn point_cells(numbers: &NumberColumns, point: &[String]) -> Vec<String> {
    let numbers = numbers.iter().zip(point);
    let numbers = numbers.filter_map(|(column, text)| column.as_ref().and(si_value(text)));
    let numbers = numbers.map(|(value, _)| value.to_string());
    point.iter().cloned().chain(numbers).collect()
}

/// One line for each quantity of each run.
pub struct RunText {
    numbers: NumberColumns,
    text: String,
}

impl RunText {
    /// The heading.
    pub fn begin(plan: &Plan) -> miette::Result<Self> {
        let numbers = number_columns(plan);
        let columns = [
            "flow", "case", "seed", "quantity", "unit", "value", "status", "reason", "commit",
        ];
        let text = lines([heading(plan, &numbers, &columns)])?;
        Ok(Self { numbers, text })
    }

    /// Adds the runs of a point.
    pub fn add(&mut self, runs: &[RunRow]) -> miette::Result<()> {
        let added = lines(runs.iter().flat_map(each_run).map(|run| {
            let value = run
                .value
                .map_or_else(String::new, |value| value.to_string());
            let cells = [
                run.flow.to_owned(),
                run.case,
                run.seed.to_string(),
                run.quantity.to_owned(),
                run.unit.to_owned(),
                value,
                run.status.to_owned(),
                run.reason.unwrap_or_default().to_owned(),
                run.commit.to_owned(),
            ];
            let point = point_cells(&self.numbers, run.values);
            point.into_iter().chain(cells).collect()
        }))?;
        self.text.push_str(&added);
        Ok(())
    }

    /// The lines so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The lines so far, which are forgotten here.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// Prints one line for each quantity of each run.
pub struct RunCsv(RunText);

impl RunCsv {
    /// Prints the heading.
    pub fn begin(plan: &Plan) -> miette::Result<Self> {
        let mut runs = RunText::begin(plan)?;
        printing::text(runs.take());
        Ok(Self(runs))
    }
}

impl Output for RunCsv {
    fn add(&mut self, _: &Plan, _: &[Row], runs: &[RunRow]) -> miette::Result<()> {
        self.0.add(runs)?;
        printing::text(self.0.take());
        Ok(())
    }

    fn end(&mut self, _: &str) {}
}

/// One line for each quantity at each point.
pub struct Csv {
    numbers: NumberColumns,
}

impl Csv {
    /// Prints the heading.
    pub fn begin(plan: &Plan) -> miette::Result<Self> {
        let numbers = number_columns(plan);
        let columns = [
            "flow", "case", "quantity", "unit", "mean", "low", "high", "runs", "status", "reason",
        ];
        printing::text(lines([heading(plan, &numbers, &columns)])?);
        Ok(Self { numbers })
    }
}

impl Output for Csv {
    fn add(&mut self, _: &Plan, rows: &[Row], _: &[RunRow]) -> miette::Result<()> {
        printing::text(lines(rows.iter().map(|row| {
            let mean = statistics::mean(&row.values);
            let interval = mean.and_then(|mean| mean.interval());
            let end = |end: Option<f64>| end.map_or_else(String::new, |end| end.to_string());
            let cells = [
                row.flow.clone(),
                row.case.to_string(),
                row.quantity.name.to_string(),
                row.quantity.unit.to_owned(),
                end(mean.map(|mean| mean.value)),
                end(interval.map(|(low, _)| low)),
                end(interval.map(|(_, high)| high)),
                row.values.len().to_string(),
                row.status().name().to_owned(),
                row.reason().unwrap_or_default(),
            ];
            let point = point_cells(&self.numbers, &row.point);
            point.into_iter().chain(cells).collect()
        }))?);
        Ok(())
    }

    fn end(&mut self, _: &str) {}
}

/// The columns of the swept keys, as typed and as numbers, before `columns`.
fn heading(plan: &Plan, numbers: &NumberColumns, columns: &[&str]) -> Vec<String> {
    let keys = plan.sweeps.iter().map(|sweep| sweep.key().to_owned());
    keys.chain(numbers.iter().flatten().cloned())
        .chain(columns.iter().copied().map(str::to_owned))
        .collect()
}

/// One quantity of one flow of one run, or the reason why the flow has none.
#[derive(Clone, Serialize)]
struct RunLine<'a> {
    #[serde(skip)]
    values: &'a [String],
    flow: &'a str,
    /// Of the oracle, with the best overlay route: "oracle=fra/sin".
    case: String,
    seed: u64,
    quantity: &'a str,
    unit: &'a str,
    value: Option<f64>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    commit: &'a str,
}

/// The lines of one flow of one run.
fn each_run(run: &RunRow) -> Vec<RunLine<'_>> {
    let line = RunLine {
        values: &run.point,
        flow: &run.flow,
        case: match &run.route {
            Some(route) => format!("{}={route}", run.case),
            None => run.case.to_string(),
        },
        seed: run.seed,
        quantity: "",
        unit: "",
        value: None,
        status: Status::Failed.name(),
        reason: None,
        commit: &run.commit,
    };
    match &run.outcome {
        Err(reason) => vec![RunLine {
            reason: Some(reason),
            ..line
        }],
        Ok(measures) => {
            let measured = measures.iter().map(|one| RunLine {
                quantity: &one.quantity.name,
                unit: one.quantity.unit,
                value: Some(one.value),
                status: Status::Ok.name(),
                ..line.clone()
            });
            measured.collect()
        }
    }
}

/// Lines of comma-separated values.
fn lines(cells: impl IntoIterator<Item = Vec<String>>) -> miette::Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    for line in cells {
        table.write_record(&line).into_diagnostic()?;
    }
    let text = table
        .into_inner()
        .map_err(|error| error.into_error())
        .into_diagnostic()?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One object, with a line for each quantity at each point.
pub struct Json {
    path: String,
    each_run: bool,
    numbers: NumberColumns,
    is_first: bool,
}

/// A line with the values of the swept keys.
#[derive(Serialize)]
struct AtPoint<L> {
    #[serde(flatten)]
    line: L,
    /// As typed.
    #[serde(skip_serializing_if = "Map::is_empty")]
    point: Map<String, Value>,
    /// In SI base units, bit/s, bytes, or as shares.
    #[serde(skip_serializing_if = "Map::is_empty")]
    numbers: Map<String, Value>,
}

impl<L> AtPoint<L> {
    fn new(plan: &Plan, numbers: &NumberColumns, point: &[String], line: L) -> Self {
        let swept = || plan.sweeps.iter().map(|sweep| sweep.key().to_owned());
        let typed = point.iter().map(|text| Value::from(text.as_str()));
        let numbers = swept().zip(numbers).zip(point);
        let numbers = numbers.filter_map(|((key, column), text)| {
            column.as_ref()?;
            Some((key, Value::from(si_value(text)?.0)))
        });
        Self {
            line,
            point: swept().zip(typed).collect(),
            numbers: numbers.collect(),
        }
    }
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
    pub fn begin(plan: &Plan, path: &str, each_run: bool) -> Self {
        let name = if each_run { "runs" } else { "records" };
        printing::line(format_args!("{{\"{name}\": ["));
        Self {
            path: path.to_owned(),
            each_run,
            numbers: number_columns(plan),
            is_first: true,
        }
    }

    fn print(&mut self, line: &impl Serialize) -> miette::Result<()> {
        let text = serde_json::to_string(line).into_diagnostic()?;
        // Standard output writes whole lines, so a comma stands before the next record.
        let separator = if self.is_first { ' ' } else { ',' };
        printing::line(format_args!("{separator}{text}"));
        self.is_first = false;
        Ok(())
    }
}

impl Output for Json {
    fn add(&mut self, plan: &Plan, rows: &[Row], runs: &[RunRow]) -> miette::Result<()> {
        if self.each_run {
            let mut lines = runs.iter().flat_map(each_run);
            return lines.try_for_each(|run| {
                let line = AtPoint::new(plan, &self.numbers, run.values, run);
                self.print(&line)
            });
        }
        rows.iter().try_for_each(|row| {
            let line = Line {
                record: record(&self.path, plan, row),
                status: row.status().name(),
                reason: row.reason(),
                runs: row.values.len(),
            };
            let line = AtPoint::new(plan, &self.numbers, &row.point, line);
            self.print(&line)
        })
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
    fn add(&mut self, plan: &Plan, rows: &[Row], _: &[RunRow]) -> miette::Result<()> {
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
