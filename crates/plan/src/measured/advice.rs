//! The plan from a measurement.

use midspan_records::{By, Record};
use midspan_report::{Axis, LinePlot, Series, units};
use midspan_units::{BitRate, number};

use super::Measured;
use crate::{Answer, DataPath, PlanError, along, at, place};

/// The plan from a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPlan {
    /// The advice, its assumptions, and what was not measured, in single sentences.
    pub text: Vec<String>,
    /// The measured values.
    pub measured: Vec<Record>,
    /// The values that the analysis predicts.
    pub predicted: Vec<Record>,
    /// The predicted throughput with a proxy, against the proxy's place on the longest part.
    pub plot: LinePlot,
}

impl Measured {
    /// Plans from this measurement, which `program` made. `rate` is that of its slowest link, if the
    /// user stated it. If the measurement is not enough for the analysis, the text has the reason.
    ///
    /// # Errors
    /// The analysis refuses the measured path.
    pub fn plan(&self, program: &str, rate: Option<BitRate>) -> Result<MeasuredPlan, PlanError> {
        let mut text = Vec::new();
        let mut predicted = Vec::new();
        let mut plot = LinePlot {
            title: format!("A proxy on the way of {}", self.name),
            x: Axis::new("place on the longest part of the way", "share"),
            y: Axis::new("throughput", "bit/s"),
            series: Vec::new(),
        };
        match self.data_path(rate) {
            Ok(data_path) => {
                let (answers, tenths) = analyse(&data_path)?;
                text.extend(advice(self, &answers, rate));
                for (case, answer) in &answers {
                    predicted.extend(answer.records(&self.name, case));
                }
                plot.series.push(Series {
                    name: "by analysis".to_owned(),
                    points: tenths,
                });
                let assumptions = data_path.assumptions.iter();
                text.extend(assumptions.map(|what| format!("Assumed: {what}.")));
            }
            Err(error) => text.push(format!("No plan: {error}.")),
        }
        let untold = self.untold.iter();
        text.extend(untold.map(|what| format!("Not measured: {what}.")));
        Ok(MeasuredPlan {
            text,
            measured: measured_records(self, program),
            predicted,
            plot,
        })
    }
}

type Answers = Vec<(String, Answer)>;

/// End to end, at every node in between, and at the best tenth of the longest part; and all tenths.
fn analyse(data_path: &DataPath) -> Result<(Answers, Vec<(f64, f64)>), PlanError> {
    let mut answers = vec![("direct".to_owned(), Answer::new(data_path, &[])?)];
    if data_path.nodes.len() > 2 {
        for placement in place(data_path, 1, 16)?.placements {
            let nodes = placement
                .positions
                .iter()
                .filter_map(|position| data_path.nodes.get(*position));
            let name = nodes.cloned().collect::<Vec<_>>().join(" and ");
            let answer = Answer::new(data_path, &at(data_path, &placement.positions))?;
            answers.push((format!("split at the point of {name}"), answer));
        }
    }
    let tenths = along(data_path)?;
    let points = tenths
        .iter()
        .map(|tenth| (tenth.share, tenth.answer.throughput()))
        .collect();
    if let Some(best) = tenths
        .into_iter()
        .max_by(|a, b| a.answer.throughput().total_cmp(&b.answer.throughput()))
    {
        let case = format!("split at {:.0} % of {}", best.share * 100.0, best.link);
        answers.push((case, best.answer));
    }
    Ok((answers, points))
}

fn advice(measured: &Measured, answers: &Answers, rate: Option<BitRate>) -> Vec<String> {
    let Some((_, direct)) = answers.first() else {
        return Vec::new();
    };
    let predicted = direct.outcome.throughput;
    let mut text = vec![match measured.throughput {
        Some(seen) => format!(
            "It reached {}; the analysis expects {predicted} for one connection alone, bound by {}.",
            units::format(seen, "bit/s"),
            direct.limit()
        ),
        None => format!(
            "The analysis expects {predicted}, bound by {}.",
            direct.limit()
        ),
    }];
    if let Some([window, buffer]) = measured.limited {
        let mut push_share = |share: f64, what: &str| {
            if share > 0.05 {
                text.push(format!(
                    "For {:.0} % of the time, the sender waited for {what}.",
                    share * 100.0
                ));
            }
        };
        push_share(window, "the receiver's window");
        push_share(buffer, "room in its own send buffer");
    }
    let best = answers
        .iter()
        .skip(1)
        .max_by(|a, b| a.1.throughput().total_cmp(&b.1.throughput()));
    if let Some((case, best)) = best {
        let gain = best.outcome.throughput.ratio(predicted).unwrap_or(1.0);
        let caution = if rate.is_none() && gain > 1.05 {
            ", if the slowest link can carry this"
        } else {
            ""
        };
        text.push(if gain < 1.05 {
            "A proxy would hardly help: let this traffic pass untouched.".to_owned()
        } else {
            format!(
                "With a proxy, the analysis expects {gain:.1} times the throughput \
                 ({case}){caution}."
            )
        });
    }
    text
}

fn measured_records(measured: &Measured, program: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut push = |case: &str, quantity: &str, unit: &str, value: Option<f64>| {
        let record =
            |value| Record::new(&measured.name, case, quantity, unit, By::Measurement, value);
        records.extend(value.map(record));
    };
    push(program, "throughput", "bit/s", measured.throughput);
    push(program, "highest rate seen", "bit/s", measured.peak);
    push(
        program,
        "mean round-trip time",
        "s",
        measured.mean_round_trip,
    );
    push(
        program,
        "segment size",
        "bytes",
        measured.segment.map(f64::from),
    );
    push(
        program,
        "packets per ACK",
        "packets",
        measured.packets_per_ack,
    );
    let window = measured.receive_window.map(number);
    push(program, "receive window", "bytes", window);
    for stretch in &measured.stretches {
        let case = if measured.stretches.len() > 1 {
            format!("{program}, up to {}", stretch.end)
        } else {
            program.to_owned()
        };
        push(&case, "round-trip time", "s", stretch.round_trip);
        push(&case, "loss", "share", stretch.loss);
    }
    records
}
