//! A path by analysis, in the simulator and in the lab, side by side.

use midspan_lab::CaseKind;
use midspan_lab::results::case_name;
use midspan_path::{Flow, Order, Path, Workload};
use midspan_plan::{Answer, DataPath, PlanError};
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_records::{By, Quantity, Record, Spread};
use midspan_report::units::format;
use midspan_report::{Alignment, Cell, Table};
use midspan_sim::NoObserver;
use midspan_sweep::{Case, measure};
use midspan_units::TimeSpan;

/// What is compared: the time of a flow of fixed size, the rate of a bulk flow.
fn compared(flow: &Flow) -> &'static Quantity {
    let is_command = matches!(flow.workload, Workload::Command { .. });
    if flow.workload.total_size().is_some() || is_command {
        &COMPLETION_TIME
    } else {
        &GOODPUT
    }
}

/// A flow in a case, by analysis, simulator and lab.
pub struct Comparison {
    /// The flow with its case, as in every table.
    pub name: String,
    /// What is compared.
    pub quantity: &'static Quantity,
    /// By analysis; `None` if it does not support the workload.
    pub analysis: Option<f64>,
    /// In the simulator; `None` if it cannot run the flow.
    pub simulation: Option<Spread>,
    /// In the lab; `None` if the lab was left out.
    pub lab: Option<Record>,
    /// What a reader needs to know.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Computes and simulates a flow, and finds it among the records of the lab.
    ///
    /// # Errors
    /// The analysis refuses the path.
    pub fn new(
        path: &Path,
        flow: &Flow,
        case: CaseKind,
        repetitions: u32,
        lab: &[Record],
    ) -> Result<Self, PlanError> {
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

    /// The values and their differences as records.
    #[must_use]
    pub fn records(&self, path: &Path) -> Vec<Record> {
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

    /// By what share the values differ, pair by pair, with names.
    #[must_use]
    pub fn differences(&self) -> [(&'static str, By, Option<f64>); 3] {
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

/// The flows with their values and the differences, as a table.
#[must_use]
pub fn table(path: &Path, rows: &[Comparison]) -> Table {
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

/// Completion time of one file, or throughput of bulk data; `None` for other workloads.
fn analysed(path: &Path, flow: &Flow, case: CaseKind) -> Result<Option<f64>, PlanError> {
    let data_path = DataPath::of_flow(path, flow)?;
    let proxies = if case == CaseKind::Direct {
        &[][..]
    } else {
        &data_path.proxies
    };
    let answer = Answer::new(&data_path, proxies)?;
    Ok(match flow.workload {
        Workload::Download { size } | Workload::Upload { size } => answer.completion_time(size),
        Workload::BulkDownload { .. } | Workload::BulkUpload { .. } => Some(answer.throughput()),
        Workload::RequestResponse { .. } | Workload::Page { .. } | Workload::Command { .. } => None,
    })
}

/// The median over `repetitions` seeds with the least and the greatest value; or the reason why the
/// simulator cannot run the flow.
fn simulated(
    path: &Path,
    flow: &Flow,
    case: CaseKind,
    repetitions: u32,
) -> Result<Option<Spread>, String> {
    let mut alone = path.clone();
    alone.flows = vec![Flow {
        start: TimeSpan::ZERO,
        ..flow.clone()
    }];
    alone.order = Order::InTurn;
    simulations(
        &alone,
        case != CaseKind::Direct,
        repetitions,
        compared(flow),
    )
    .map(|values| Spread::of(&values))
    .map_err(|error| error.to_string())
}

/// What the simulator measures of a quantity of all flows of a path, with the seeds of the lab's
/// repetitions: that of the path, and those that follow it.
///
/// # Errors
/// The simulator cannot run the path.
pub(crate) fn simulations(
    path: &Path,
    proxies: bool,
    repetitions: u32,
    quantity: &Quantity,
) -> Result<Vec<f64>, midspan_sweep::Error> {
    let mut path = path.clone();
    let case = match proxies {
        true => Case::Midspan,
        false => Case::Direct,
    };
    let seed = path.seed;
    let mut values = Vec::new();
    for repetition in 0..repetitions {
        path.seed = seed.wrapping_add(u64::from(repetition));
        let measures = measure(&path, &case, |_| Ok(None::<NoObserver>), |_, _| ())?;
        let found = measures.iter().filter(|one| one.quantity == quantity);
        values.extend(found.map(|one| one.value));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use midspan_document::Source;

    use super::*;

    /// Linux counts the bytes that ACKs cover, so windows grow with delayed ACKs as with an ACK for each
    /// packet. With b = 2, the analysis would be a quarter lower.
    #[test]
    fn reno_over_a_lossy_path_is_as_fast_by_analysis_as_in_the_simulator() {
        let text = r#"
[[host]]
name = "client"
congestion_control = "reno"
[[host]]
name = "server"
[[link]]
name = "wire"
between = ["client", "server"]
rate = "100 Mbit/s"
delay = "25 ms"
up = { loss = "0.1 %" }
[[flow]]
name = "file"
from = "client"
to = "server"
workload = "bulk-upload"
duration = "200 s"
"#;
        let path = Path::read(&Source::new("wire", text)).unwrap();
        let row = Comparison::new(&path, &path.flows[0], CaseKind::Direct, 5, &[]).unwrap();
        let [(.., difference), ..] = row.differences();
        let difference = difference.unwrap();
        assert!(difference.abs() < 0.08, "{difference:+.3}");
    }
}
