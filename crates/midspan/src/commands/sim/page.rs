//! The page of simulated runs: figures of each flow, all numbers, and where they come from.

use std::collections::HashMap;
use std::path::Path as FilePath;

use midspan_document::Sweep;
use midspan_path::Path;
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_records::{By, Record, Records, statistics};
use midspan_report::{
    Axis, BarPlot, Categories, Content, Download, Fact, HeatPlot, Interval, IntervalPlot, LinePlot,
    Method, Panel, PanelPlot, Report, Section, Series, pivot,
};
use midspan_sweep::{Case, Plan, Row, RunRow, column_of};
use midspan_units::si_value;

use super::rows;
use crate::{files, printing};

/// The most figures of one flow. The records have the numbers of all.
const MOST_FIGURES: usize = 24;
/// The most bytes of lines about runs that a page has.
const MOST_BYTES: usize = 20 << 20;
/// If the ratio of the largest to the smallest value is at least this, an axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 20.0;

/// Collects the runs for the page.
pub struct Page {
    runs: rows::RunText,
    is_too_large: bool,
}

impl Page {
    /// A page without runs.
    pub fn begin(plan: &Plan) -> miette::Result<Self> {
        Ok(Self {
            runs: rows::RunText::begin(plan)?,
            is_too_large: false,
        })
    }

    /// Takes the runs of a point.
    pub fn add(&mut self, runs: &[RunRow]) -> miette::Result<()> {
        if self.runs.text().len() < MOST_BYTES {
            self.runs.add(runs)
        } else {
            self.is_too_large = true;
            Ok(())
        }
    }

    /// Writes the page.
    pub fn write(
        self,
        plan: &Plan,
        path: &Path,
        title: &str,
        all: &[Row],
        file: &FilePath,
    ) -> miette::Result<()> {
        let records: Vec<Record> = all
            .iter()
            .map(|row| rows::record(&path.name, plan, row))
            .collect();
        let mut sections = figures(plan, all);
        sections.push(Section {
            heading: "Results".to_owned(),
            text: "Means over the repetitions with their 95 % intervals.".to_owned(),
            content: vec![Content::Table(pivot("", &records))],
        });
        let report = Report {
            title: title.to_owned(),
            command: printing::command_line(),
            sections,
            method: self.method(plan, path),
            records: Records { records },
            downloads: self.downloads(path),
            ..Report::default()
        };
        files::write_report(report, file)
    }

    fn method(&self, plan: &Plan, path: &Path) -> Method {
        let seed = plan.seed.unwrap_or(path.seed);
        let mut facts = vec![
            Fact::new("path", &path.name),
            Fact::new("seed of the first repetition", seed),
            Fact::new("repetitions", plan.repetitions),
        ];
        let swept = plan.sweeps.iter().map(|sweep| {
            let values: Vec<&str> = sweep
                .values()
                .iter()
                .map(|(text, _)| text.as_str())
                .collect();
            Fact::new(sweep.key(), values.join(", "))
        });
        facts.extend(swept);
        let mut notes = vec![
            "All numbers were simulated, without real kernels. The same path, seed and version give the \
             same numbers on every machine."
                .to_owned(),
        ];
        if self.is_too_large {
            notes.push(format!(
                "The page has only the first runs, {} MiB of lines: midspan sim --csv --each-run prints all.",
                MOST_BYTES >> 20
            ));
        }
        Method {
            facts,
            notes,
            ..Method::default()
        }
    }

    fn downloads(&self, path: &Path) -> Vec<Download> {
        let runs = Download {
            name: "runs.csv".to_owned(),
            media_type: "text/csv",
            content: self.runs.text().to_owned(),
        };
        let path = path.to_text().map(Download::path_file);
        std::iter::once(runs).chain(path).collect()
    }
}

/// A section with figures for each flow that has results.
fn figures(plan: &Plan, all: &[Row]) -> Vec<Section> {
    let mut flows: Vec<&str> = Vec::new();
    for row in all.iter().filter(|row| !row.values.is_empty()) {
        if !flows.contains(&row.flow.as_str()) {
            flows.push(&row.flow);
        }
    }
    let mut sections: Vec<Section> = flows
        .iter()
        .map(|flow| Flow::new(plan, all, flow).section())
        .collect();
    // Without a swept key, one chart compares the flows.
    if plan.sweeps.is_empty() {
        let bars = [&COMPLETION_TIME, &GOODPUT].map(|quantity| {
            let rows = all.iter().filter(|row| row.quantity == quantity);
            let records: Vec<Record> = rows.map(|row| record(row, &row.flow)).collect();
            bars(&quantity.name, &records)
        });
        let bars = bars.into_iter().filter(|plot| !plot.groups.is_empty());
        sections.insert(
            0,
            Section {
                heading: "All flows".to_owned(),
                text: String::new(),
                content: bars.map(Content::Bars).collect(),
            },
        );
    }
    sections.retain(|section| !section.content.is_empty());
    sections
}

/// The mean of a row, in the group `group`.
fn record(row: &Row, group: &str) -> Record {
    let case = row.case.to_string();
    let mean = statistics::mean(&row.values);
    let value = mean.map_or(f64::NAN, |mean| mean.value);
    let record = Record::of(group, &case, row.quantity, By::Simulation, value);
    match mean.and_then(|mean| mean.interval()) {
        Some((low, high)) => record.with_spread(low, high),
        None => record,
    }
}

/// A chart of records with their groups and cases.
fn bars(quantity: &str, records: &[Record]) -> BarPlot {
    BarPlot::from_records(quantity, quantity, records, |record| {
        Some((record.item.clone(), record.case.clone()))
    })
}

/// The rows of a flow's most important quantity.
struct Flow<'a> {
    plan: &'a Plan,
    name: &'a str,
    rows: Vec<&'a Row>,
    quantity: &'a str,
    unit: &'a str,
}

impl<'a> Flow<'a> {
    fn new(plan: &'a Plan, all: &'a [Row], name: &'a str) -> Self {
        let own = || all.iter().filter(|row| row.flow == name);
        let has_end = own().any(|row| row.quantity == &COMPLETION_TIME && !row.values.is_empty());
        let quantity = if has_end { &COMPLETION_TIME } else { &GOODPUT };
        Self {
            plan,
            name,
            rows: own().filter(|row| row.quantity == quantity).collect(),
            quantity: &quantity.name,
            unit: quantity.unit,
        }
    }

    fn section(&self) -> Section {
        let mut content = match self.plan.sweeps.as_slice() {
            [] => self
                .distribution()
                .into_iter()
                .map(Content::Lines)
                .collect(),
            [sweep] if column_of(sweep).is_some() => vec![Content::Intervals(self.lines())],
            [_] => vec![Content::Bars(self.bars())],
            _ => {
                let multiples = self.multiples().map(Content::Panels);
                multiples.into_iter().chain(self.heat_maps()).collect()
            }
        };
        let left_out = content.len().saturating_sub(MOST_FIGURES);
        content.truncate(MOST_FIGURES);
        Section {
            heading: self.name.to_owned(),
            text: match left_out {
                0 => String::new(),
                count => {
                    format!("{count} more figures are not drawn; the table has their numbers.")
                }
            },
            content,
        }
    }

    /// The empirical distribution over the repetitions.
    fn distribution(&self) -> Option<LinePlot> {
        let series = self
            .rows
            .iter()
            .filter(|row| row.values.len() > 1)
            .map(|row| Series {
                name: row.case.to_string(),
                points: steps(&row.values),
            });
        let series: Vec<Series> = series.collect();
        (!series.is_empty()).then(|| LinePlot {
            title: format!("{}: share of the repetitions", self.quantity),
            x: Axis::new(self.quantity, self.unit),
            y: Axis::new("share of the repetitions with at most this value", "share"),
            series,
        })
    }

    /// The quantity over the swept key.
    fn lines(&self) -> IntervalPlot {
        let sweep = &self.plan.sweeps[0];
        let (axis, y) = self.axes();
        let places = |case: &'a Case| {
            let rows = self.rows.iter().filter(move |row| row.case == *case);
            rows.filter_map(|row| Some((place(row)?, *row)))
        };
        let (mut series, mut intervals) = (Vec::new(), Vec::new());
        for case in self.cases() {
            let points: Vec<(f64, f64)> = places(case)
                .map(|(x, row)| {
                    (
                        x,
                        statistics::mean(&row.values).map_or(f64::NAN, |mean| mean.value),
                    )
                })
                .collect();
            if points.is_empty() {
                continue;
            }
            series.push(Series {
                name: case.to_string(),
                points,
            });
            let own = places(case).filter_map(|(x, row)| {
                let (low, high) = statistics::mean(&row.values)?.interval()?;
                Some(Interval { x, low, high })
            });
            intervals.push(own.collect());
        }
        IntervalPlot {
            lines: LinePlot {
                title: format!("{} by {}", self.quantity, sweep.key()),
                x: axis,
                y,
                series,
            },
            intervals,
        }
    }

    /// The cases that have rows, in their order.
    fn cases(&self) -> Vec<&'a Case> {
        let mut cases: Vec<&'a Case> = Vec::new();
        for row in &self.rows {
            if !cases.contains(&&row.case) {
                cases.push(&row.case);
            }
        }
        cases
    }

    /// The axis of the first swept key, and that of the quantity.
    fn axes(&self) -> (Axis, Axis) {
        let sweep = &self.plan.sweeps[0];
        let mut values = sweep.values().iter();
        let unit = values.find_map(|(text, _)| Some(si_value(text)?.1));
        let places: Vec<f64> = self.rows.iter().filter_map(|row| place(row)).collect();
        let means = self.rows.iter().map(|row| statistics::mean(&row.values));
        let means: Vec<f64> = means.flatten().map(|mean| mean.value).collect();
        let scaled = |axis: Axis, values: &[f64]| {
            if spread(values) >= LOGARITHMIC_FROM {
                axis.on_a_logarithmic_scale()
            } else {
                axis
            }
        };
        let x = Axis::new(sweep.key(), unit.unwrap_or_default());
        let y = Axis::new(self.quantity, self.unit);
        (scaled(x, &places), scaled(y, &means))
    }

    /// The quantity over the first swept key: a chart for each combination of the values of the second and
    /// the third key. `None` if there are no such keys, or the first one's values are no numbers.
    fn multiples(&self) -> Option<PanelPlot> {
        let [first, second, more @ ..] = self.plan.sweeps.as_slice() else {
            return None;
        };
        if column_of(first).is_none() || more.len() > 1 {
            return None;
        }
        let texts = |sweep: &Sweep| -> Vec<String> {
            let values = sweep.values().iter();
            values.map(|(text, _)| text.clone()).collect()
        };
        let columns = texts(second);
        let rows: Vec<Vec<String>> = match more.first() {
            Some(third) => texts(third).into_iter().map(|value| vec![value]).collect(),
            None => vec![Vec::new()],
        };
        let combinations = rows.iter().flat_map(|row| {
            columns
                .iter()
                .map(move |column| [&[column.clone()][..], &row[..]].concat())
        });
        let panels = combinations.map(|values| {
            let named = self.plan.sweeps.iter().skip(1).zip(&values);
            let names: Vec<String> = named
                .map(|(sweep, value)| format!("{} = {value}", sweep.key()))
                .collect();
            Panel {
                name: names.join(", "),
                series: self.series_at(&values),
            }
        });
        let (x, y) = self.axes();
        Some(PanelPlot {
            title: format!("{} by {}", self.quantity, first.key()),
            x,
            y,
            columns: columns.len(),
            panels: panels.collect(),
        })
    }

    /// The means over the first swept key in each case, where the other keys have these values.
    fn series_at(&self, values: &[String]) -> Vec<Series> {
        let here = |row: &&&Row| row.point.get(1..) == Some(values);
        let of_case = |case: &Case| Series {
            name: case.to_string(),
            points: self
                .rows
                .iter()
                .filter(here)
                .filter(|row| row.case == *case)
                .filter_map(|row| Some((place(row)?, statistics::mean(&row.values)?.value)))
                .collect(),
        };
        let all = self.cases().into_iter().map(of_case);
        all.filter(|series| !series.points.is_empty()).collect()
    }

    /// The quantity at each value of a swept key whose values are no numbers.
    fn bars(&self) -> BarPlot {
        let records = self.rows.iter().map(|row| {
            let group = row.point.first().map_or("", String::as_str);
            record(row, group)
        });
        bars(self.quantity, &records.collect::<Vec<_>>())
    }

    /// The quantity over the first two swept keys, for each combination of the values of the others: in each
    /// case, and the ratio of each to the first case.
    fn heat_maps(&self) -> Vec<Content> {
        let names = |index: usize| Categories {
            label: self.plan.sweeps[index].key().to_owned(),
            names: self.plan.sweeps[index]
                .values()
                .iter()
                .map(|(text, _)| text.clone())
                .collect(),
        };
        let (x, y) = (names(0), names(1));
        let cases = self.cases();
        let mut means: HashMap<(&[String], &Case), f64> = HashMap::new();
        let mut others: Vec<&[String]> = Vec::new();
        for row in &self.rows {
            if let Some(mean) = statistics::mean(&row.values) {
                means.insert((&row.point, &row.case), mean.value);
            }
            let rest = row.point.get(2..).unwrap_or_default();
            if !others.contains(&rest) {
                others.push(rest);
            }
        }
        let at = |column: &String, row: &String, rest: &[String], case: &Case| {
            let mut point = vec![column.clone(), row.clone()];
            point.extend_from_slice(rest);
            means.get(&(point.as_slice(), case)).copied()
        };
        let mut plots = Vec::new();
        for rest in others {
            let keys = self.plan.sweeps.iter().skip(2).zip(rest);
            let suffix: String = keys
                .map(|(sweep, value)| format!(", {} = {value}", sweep.key()))
                .collect();
            let map =
                |title: String, unit: &str, value: &dyn Fn(&String, &String) -> Option<f64>| {
                    let of_row =
                        |row: &String| x.names.iter().map(|column| value(column, row)).collect();
                    HeatPlot {
                        title: format!("{title}{suffix}"),
                        x: x.clone(),
                        y: y.clone(),
                        unit: unit.to_owned(),
                        values: y.names.iter().map(of_row).collect(),
                    }
                };
            let of_case = |case: &&Case| {
                let title = format!("{}, {case}", self.quantity);
                map(title, self.unit, &|column, row| at(column, row, rest, case))
            };
            let ratio = |(case, first): (&&Case, &&Case)| {
                let title = format!("{}, {case} divided by {first}", self.quantity);
                map(title, "", &|column, row| {
                    Some(at(column, row, rest, case)? / at(column, row, rest, first)?)
                })
            };
            let ratios = cases.iter().skip(1).zip(std::iter::repeat(&cases[0]));
            let maps = cases.iter().map(of_case).chain(ratios.map(ratio));
            let has_values = |plot: &HeatPlot| plot.values.iter().flatten().any(Option::is_some);
            plots.extend(maps.filter(has_values).map(Content::Heat));
        }
        plots
    }
}

/// The position of a row on the axis of the first swept key.
fn place(row: &Row) -> Option<f64> {
    Some(si_value(row.point.first()?)?.0)
}

/// The corners of the distribution function of `values`.
fn steps(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let steps = sorted.iter().zip(0_u32..);
    steps
        .flat_map(|(&value, index)| {
            let below = f64::from(index);
            [(value, below / count), (value, (below + 1.0) / count)]
        })
        .collect()
}

/// The ratio of the largest to the smallest value; 0 unless all are above 0.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    if least > 0.0 && least.is_finite() {
        most / least
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_by_a_step_at_each_value() {
        assert_eq!(
            steps(&[3.0, 1.0]),
            [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]
        );
    }

    #[test]
    fn only_positive_values_have_a_ratio() {
        assert!((spread(&[2.0, 50.0]) - 25.0).abs() < 1e-9);
        assert!(spread(&[0.0, 50.0]) < 1.0);
        assert!(spread(&[]) < 1.0);
    }
}
