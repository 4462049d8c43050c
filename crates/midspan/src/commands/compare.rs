//! `midspan compare PATH`: analysis, simulator and lab side by side.

use std::time::Duration;

use midspan_lab::results::case_name;
use midspan_lab::{Case, Plan as LabPlan, flow_records};
use midspan_linux::namespace;
use midspan_path::{Flow, Order, Path};
use midspan_plan::{Answer, Way};
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_records::{By, Quantity, Record, Records, Spread};
use midspan_report::units::format;
use midspan_report::{Alignment, Cell, Table, stdout_width};
use midspan_sim::NoObserver;
use midspan_sweep::measure;
use miette::IntoDiagnostic;

use super::lab::run_with_progress;
use super::{Outcome, choose_flows};
use crate::commands::plan::load;
use crate::plan_arguments::CompareOptions;
use crate::printing;

/// Computes, simulates, measures and prints.
pub fn compare(options: &CompareOptions) -> Outcome {
    let mut path = load(&options.path, &options.set)?;
    choose_flows(&mut path, &options.flows)?;
    // The lab first: it enters its own namespaces, which must happen before any thread starts.
    let (lab, valid) = if options.without_lab {
        (Vec::new(), true)
    } else {
        lab(&path, options)?
    };
    let mut rows = Vec::new();
    for flow in &path.flows {
        for case in [Case::Direct, Case::Midspan] {
            if case == Case::Midspan && path.proxies_of(flow).is_empty() {
                continue;
            }
            rows.push(Row::new(&path, flow, case, options.repetitions, &lab)?);
        }
    }
    if options.output.json {
        let records = Records {
            records: rows.iter().flat_map(|row| row.records(&path)).collect(),
        };
        printing::line(records.to_json());
    } else {
        printing::text(table(&path, &rows).to_text(stdout_width()));
    }
    Ok(valid)
}

/// The lab's results, and whether every run was valid.
fn lab(path: &Path, options: &CompareOptions) -> miette::Result<(Vec<Record>, bool)> {
    let cases = if path.proxies().next().is_some() {
        vec![Case::Direct, Case::Midspan]
    } else {
        vec![Case::Direct]
    };
    let plan = LabPlan {
        path: path.clone(),
        cases,
        repetitions: options.repetitions,
        limit: Duration::from_secs(options.limit),
        thin: None,
        discarded: None,
    };
    namespace::isolate().into_diagnostic()?;
    let measurements = run_with_progress(&plan)?;
    let valid = measurements.iter().all(|run| run.validity.is_valid());
    Ok((flow_records(&plan, &measurements), valid))
}

/// What is compared: the time of a flow of fixed size, the rate of a bulk flow.
fn compared(flow: &Flow) -> &'static Quantity {
    if flow.workload.total_size().is_some() {
        &COMPLETION_TIME
    } else {
        &GOODPUT
    }
}

/// A flow in a case, by analysis, simulator and lab.
struct Row {
    name: String,
    quantity: &'static Quantity,
    analysis: Option<f64>,
    simulation: Option<Spread>,
    lab: Option<Record>,
    notes: Vec<String>,
}

impl Row {
    fn new(
        path: &Path,
        flow: &Flow,
        case: Case,
        repetitions: u32,
        lab: &[Record],
    ) -> miette::Result<Self> {
        let quantity = compared(flow);
        let name = case_name(flow, case);
        let mut notes = Vec::new();
        if path.order == Order::Together {
            notes.push("alone by analysis and simulation, together with others in the lab".into());
        }
        let mut row = Self {
            quantity,
            analysis: analysed(path, flow, case)?,
            simulation: None,
            lab: lab
                .iter()
                .find(|record| record.case == name && record.quantity == quantity.name)
                .cloned(),
            name,
            notes,
        };
        if row.analysis.is_none() {
            row.notes
                .push("the analysis supports only transfers of one file and bulk data".into());
        }
        match simulated(path, flow, case, repetitions) {
            Ok(found) => row.simulation = found,
            Err(reason) => row.notes.push(format!("not simulated: {reason}")),
        }
        Ok(row)
    }

    fn records(&self, path: &Path) -> Vec<Record> {
        let new = |quantity: &str, unit: &str, by: By, value: f64| {
            let mut record = Record::new(&path.name, &self.name, quantity, unit, by, value);
            record.note = (!self.notes.is_empty()).then(|| self.notes.join("; "));
            record
        };
        let mut records = Vec::new();
        records.extend(
            self.analysis
                .map(|value| new(&self.quantity.name, self.quantity.unit, By::Analysis, value)),
        );
        records.extend(self.simulation.map(|spread| {
            new(
                &self.quantity.name,
                self.quantity.unit,
                By::Simulation,
                spread.median,
            )
            .with_spread(spread.least, spread.greatest)
        }));
        records.extend(self.lab.clone());
        for (quantity, by, difference) in self.differences() {
            records.extend(difference.map(|value| new(quantity, "share", by, value)));
        }
        records
    }

    fn differences(&self) -> [(&'static str, By, Option<f64>); 3] {
        let lab = self.lab.as_ref().map(|record| record.value);
        let simulation = self.simulation.map(|spread| spread.median);
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)? - 1.0);
        [
            (
                "analysis against simulation",
                By::Analysis,
                ratio(self.analysis, simulation),
            ),
            (
                "analysis against lab",
                By::Analysis,
                ratio(self.analysis, lab),
            ),
            (
                "simulation against lab",
                By::Simulation,
                ratio(simulation, lab),
            ),
        ]
    }
}

/// Completion time of one file, or throughput of bulk data; `None` for other workloads.
fn analysed(path: &Path, flow: &Flow, case: Case) -> miette::Result<Option<f64>> {
    let way = Way::of_flow(path, flow).into_diagnostic()?;
    let proxies = if case == Case::Direct {
        &[][..]
    } else {
        &way.proxies
    };
    let answer = Answer::new(&way, proxies).into_diagnostic()?;
    use midspan_path::Workload;
    Ok(match flow.workload {
        Workload::Download { size } | Workload::Upload { size } => answer.completion_time(size),
        Workload::BulkDownload { .. } | Workload::BulkUpload { .. } => Some(answer.throughput()),
        Workload::RequestResponse { .. } | Workload::Page { .. } => None,
    })
}

/// The median over `repetitions` seeds with the least and the greatest value; or the reason why the
/// simulator cannot run the flow.
fn simulated(
    path: &Path,
    flow: &Flow,
    case: Case,
    repetitions: u32,
) -> Result<Option<Spread>, String> {
    let mut alone = path.clone();
    alone.flows = vec![Flow {
        start: midspan_units::TimeSpan::ZERO,
        ..flow.clone()
    }];
    alone.order = Order::InTurn;
    let wanted = compared(flow);
    let mut values = Vec::new();
    for repetition in 0..repetitions {
        alone.seed = path.seed.wrapping_add(u64::from(repetition));
        let proxies = case != Case::Direct;
        let measures = measure(&alone, proxies, |_| Ok(None::<NoObserver>), |_, _| ())
            .map_err(|error| error.to_string())?;
        let found = measures.iter().filter(|one| one.quantity == wanted);
        values.extend(found.map(|one| one.value));
    }
    Ok(Spread::of(&values))
}

fn table(path: &Path, rows: &[Row]) -> Table {
    let mut table = Table::new(&format!(
        "The path \"{}\" by analysis, in the simulator and in the lab",
        path.name
    ));
    for heading in ["flow", "quantity"] {
        table.add_column(heading, Alignment::Left);
    }
    for heading in [
        "analysis",
        "simulation",
        "lab",
        "analysis / simulation",
        "analysis / lab",
        "simulation / lab",
    ] {
        table.add_column(heading, Alignment::Right);
    }
    for row in rows {
        let shown = |value: Option<f64>| {
            value.map_or_else(|| "–".to_owned(), |value| format(value, row.quantity.unit))
        };
        let mut name = Cell::new(&row.name);
        for note in &row.notes {
            table.add_note(&mut name, note);
        }
        let mut cells = vec![
            name,
            Cell::new(&row.quantity.name),
            Cell::new(&shown(row.analysis)),
            Cell::new(&shown(row.simulation.map(|spread| spread.median))),
            Cell::new(&shown(row.lab.as_ref().map(|record| record.value))),
        ];
        cells.extend(row.differences().map(|(_, _, difference)| {
            Cell::new(&difference.map_or_else(
                || "–".to_owned(),
                |share| format!("{:+.0} %", share * 100.0),
            ))
        }));
        table.add_row(cells);
    }
    table
}
