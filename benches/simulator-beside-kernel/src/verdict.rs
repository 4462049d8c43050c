//! Medians of both, their ratios, and the bounds.

use midspan_records::statistics::quantile;
use midspan_records::{By, Record, Records};
use midspan_report::{Alignment, Cell as Entry, Table, stdout_width};

use crate::Run;
use crate::cells::Cell;

/// Largest differences as a share of the kernel's value.
const GOODPUT: f64 = 0.1;
const AGAIN: f64 = 0.25;
const ROUND_TRIP: f64 = 0.1;
/// A difference of the share of retransmissions that is always permitted.
const FEW: f64 = 0.0005;

/// All lines.
#[derive(Debug, Default)]
pub struct Verdict(Vec<Line>);

/// One quantity of one path.
#[derive(Debug)]
struct Line {
    cell: Cell,
    quantity: &'static str,
    unit: &'static str,
    kernel: Option<f64>,
    simulator: Option<f64>,
    /// Whether the bound is met; `None` without a value of the kernel.
    ok: Option<bool>,
    /// Runs of the kernel that count.
    runs: usize,
}

impl Verdict {
    /// Adds the runs of a path. Void runs do not count.
    pub fn add(&mut self, cell: Cell, kernel: &[Run], simulator: &[Run]) {
        let valid: Vec<&Run> = kernel.iter().filter(|run| run.void.is_none()).collect();
        let simulator: Vec<&Run> = simulator.iter().collect();
        let mut push = |quantity, unit, value: &dyn Fn(&Run) -> Option<f64>, most: f64, always| {
            let median = |runs: &[&Run]| {
                let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
                quantile(&values, 0.5)
            };
            let (kernel, simulator) = (median(&valid), median(&simulator));
            let ok = kernel.zip(simulator).map(|(kernel, simulator)| {
                (simulator - kernel).abs() <= (most * kernel).max(always)
            });
            self.0.push(Line {
                cell,
                quantity,
                unit,
                kernel,
                simulator,
                ok,
                runs: valid.len(),
            });
        };
        push("goodput", "bit/s", &|run| Some(run.goodput), GOODPUT, 0.0);
        let again = |run: &Run| (run.segments > 0.0).then(|| run.again / run.segments);
        push("segments sent again", "share", &again, AGAIN, FEW);
        push("round trip", "s", &|run| run.round_trip, ROUND_TRIP, 0.0);
    }

    /// Whether no bound is missed.
    pub fn is_met(&self) -> bool {
        self.0.iter().all(|line| line.ok != Some(false))
    }

    /// The values as records.
    pub fn to_json(&self) -> String {
        let mut records = Records::default();
        for line in &self.0 {
            let name = line.cell.to_string();
            let record = |by, value| {
                Record::new("beside kernel", &name, line.quantity, line.unit, by, value)
            };
            if let Some(value) = line.kernel {
                records.push(record(By::Lab, value));
            }
            if let Some(value) = line.simulator {
                let mut of_simulator = record(By::Simulation, value);
                of_simulator.ok = line.ok;
                records.push(of_simulator);
            }
        }
        records.to_json()
    }

    /// Prints the table.
    pub fn print(&self, control: &str, seconds: u32, seeds: u32) {
        let title = format!(
            "{control} in the simulator beside the kernel: transfers of {seconds} s, medians of \
             {seeds} seeds"
        );
        let mut table = Table::new(&title);
        for heading in ["path", "quantity"] {
            table.add_column(heading, Alignment::Left);
        }
        for heading in ["kernel", "simulator", "simulator / kernel", "runs", "ok"] {
            table.add_column(heading, Alignment::Right);
        }
        for line in &self.0 {
            let shown = |value: Option<f64>| {
                value.map_or_else(
                    || "–".to_owned(),
                    |value| match line.unit {
                        "share" => format!("{:.3} %", value * 100.0),
                        unit => midspan_report::units::format(value, unit),
                    },
                )
            };
            let ratio = line
                .simulator
                .zip(line.kernel.filter(|kernel| *kernel > 0.0));
            let ratio = ratio.map(|(simulator, kernel)| simulator / kernel);
            let ok = match line.ok {
                None => "–",
                Some(true) => "ok",
                Some(false) => "missed",
            };
            table.add_row(vec![
                Entry::new(&line.cell.to_string()),
                Entry::new(line.quantity),
                Entry::new(&shown(line.kernel)),
                Entry::new(&shown(line.simulator)),
                Entry::new(&ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.3}"))),
                Entry::new(&line.runs.to_string()),
                Entry::new(ok),
            ]);
        }
        println!("{}", table.to_text(stdout_width()));
    }
}
