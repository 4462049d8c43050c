//! `midspan sim PATH --trace … --pcap …`: traces of one run.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path as FilePath, PathBuf};

use midspan_path::Path;
use midspan_records::{By, Record, Records};
use midspan_sim::trace::{BurstWatch, Capture, Histogram, Kind, Trace};
use midspan_sim::{PathScenario, ScenarioError};
use midspan_sweep::{Case, Error, measure};
use midspan_units::{TimeSpan, number};
use miette::{Context, IntoDiagnostic};

use crate::files::{Replacement, of_case};
use crate::lab_arguments::{SimOptions, TraceKind};

type Output = BufWriter<File>;
type Watchers = (
    Option<(Option<Trace<Output>>, Option<Capture<Output>>)>,
    Option<BurstWatch>,
);

/// Runs a path once in each case, and writes the requested traces.
pub fn run(
    path: &Path,
    cases: &[Case],
    options: &SimOptions,
    records: &mut Records,
) -> miette::Result<()> {
    fs::create_dir_all(&options.output_directory)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot make {}", options.output_directory.display()))?;
    for case in cases {
        let mut files = Files::new(path, options, case);
        let mut ended = Vec::new();
        let measures = measure(
            path,
            case,
            |made| files.watchers(made).map(Some),
            |watchers, _| ended.push(watchers),
        )?;
        files.check()?;
        for one in measures {
            let name = format!("{} {case}", path.flows[one.flow].name);
            let of = By::Simulation;
            records.push(Record::of(&path.name, &name, one.quantity, of, one.value));
        }
        for (number, (tables, bursts)) in ended.into_iter().enumerate() {
            let (trace, capture) = tables.unwrap_or_default();
            if let Some(trace) = trace {
                trace.finish().into_diagnostic()?;
            }
            if let Some(capture) = capture {
                capture.finish().into_diagnostic()?;
            }
            if let Some(watch) = bursts {
                files.write_bursts(number, watch, records)?;
            }
        }
        files.commit()?;
    }
    Ok(())
}

/// The files of one case.
struct Files<'a> {
    path: &'a Path,
    options: &'a SimOptions,
    case: &'a Case,
    scenario: usize,
    /// The first file that could not be created.
    error: Option<miette::Report>,
    /// The files that appear under their names when all are complete.
    replacements: Vec<(PathBuf, Replacement)>,
}

impl<'a> Files<'a> {
    const fn new(path: &'a Path, options: &'a SimOptions, case: &'a Case) -> Self {
        Self {
            path,
            options,
            case,
            scenario: 0,
            error: None,
            replacements: Vec::new(),
        }
    }

    fn check(&mut self) -> miette::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// All files are complete.
    fn commit(self) -> miette::Result<()> {
        for (file, replacement) in self.replacements {
            replacement
                .commit()
                .into_diagnostic()
                .wrap_err_with(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// `midspan-2`: the case and the number of the scenario, if there are several.
    fn prefix(&self, scenario: usize) -> String {
        let case = of_case(&self.case.to_string());
        if scenario == 0 {
            case
        } else {
            format!("{case}-{}", scenario + 1)
        }
    }

    fn create(&mut self, file: &FilePath) -> Option<Output> {
        match Replacement::begin(file) {
            Ok((replacement, made)) => {
                self.replacements.push((file.to_owned(), replacement));
                Some(BufWriter::new(made))
            }
            Err(error) => {
                let report = miette::miette!("cannot write {}: {error}", file.display());
                self.error.get_or_insert(report);
                None
            }
        }
    }

    fn watchers(&mut self, made: &PathScenario) -> Result<Watchers, Error> {
        let refused = |error: ScenarioError| Error::Scenario {
            path: self.path.name.clone(),
            error,
        };
        let prefix = self.prefix(self.scenario);
        let mut outputs = Kind::ALL.map(|_| None);
        for (kind, output) in Kind::ALL.into_iter().zip(&mut outputs) {
            if self.options.trace.contains(&TraceKind::from(kind)) {
                let name = format!("{prefix}-{}.csv", kind.name());
                *output = self.create(&self.options.output_directory.join(name));
            }
        }
        let capture = self.options.pcap.as_ref().map(|file| {
            // One file for each case and scenario, whose name contains both.
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let ending = file.extension().unwrap_or_default().to_string_lossy();
            file.with_file_name(format!("{stem}-{prefix}.{ending}"))
        });
        let capture = capture.and_then(|file| self.create(&file));
        self.scenario += 1;
        let trace = Trace::new(&made.scenario, |kind| {
            outputs.get_mut(kind as usize).and_then(Option::take)
        });
        let capture = capture.map(|output| Capture::new(&made.scenario, output));
        let wanted = [TraceKind::Bursts, TraceKind::Forward];
        let bursts = wanted
            .iter()
            .any(|kind| self.options.trace.contains(kind))
            .then(|| BurstWatch::new(&made.scenario, TimeSpan::ZERO));
        Ok((
            Some((
                Some(trace.map_err(refused)?),
                capture.transpose().map_err(refused)?,
            )),
            bursts.transpose().map_err(refused)?,
        ))
    }

    /// The distributions of bursts and forward data, as files; p99.9 and maximum as records.
    fn write_bursts(
        &mut self,
        number: usize,
        mut watch: BurstWatch,
        records: &mut Records,
    ) -> miette::Result<()> {
        let legs: Vec<(String, usize)> = watch
            .connections()
            .map(|(flow, leg)| (flow.to_owned(), leg))
            .collect();
        let case = self.case;
        for kind in [TraceKind::Bursts, TraceKind::Forward] {
            if !self.options.trace.contains(&kind) {
                continue;
            }
            let (name, quantity) = match kind {
                TraceKind::Bursts => ("bursts", "burst"),
                _ => ("forward", "forward data"),
            };
            let file = format!("{}-{name}.csv", self.prefix(number));
            let output = self.create(&self.options.output_directory.join(file));
            self.check()?;
            let mut text = String::from("flow,leg,segments,count\n");
            for (connection, (flow, leg)) in legs.iter().enumerate() {
                let histogram = match kind {
                    TraceKind::Bursts => watch.bursts(connection),
                    _ => watch.forward_data(connection),
                };
                let Some(histogram) = histogram.filter(|histogram| histogram.count() > 0) else {
                    continue;
                };
                for (segments, count) in histogram.iter() {
                    text += &format!(
                        "\"{}\",{leg},{segments},{count}\n",
                        flow.replace('"', "\"\"")
                    );
                }
                let case = format!("{flow} {case}, leg {leg}");
                push(records, &self.path.name, &case, quantity, histogram);
            }
            if let Some(mut output) = output {
                output.write_all(text.as_bytes()).into_diagnostic()?;
                output.flush().into_diagnostic()?;
            }
        }
        Ok(())
    }
}

fn push(records: &mut Records, path: &str, case: &str, quantity: &str, histogram: &Histogram) {
    let values = [
        ("p99.9", histogram.quantile(999)),
        ("largest", histogram.largest()),
    ];
    for (which, value) in values {
        if let Some(value) = value {
            let quantity = format!("{which} {quantity}");
            records.push(Record::new(
                path,
                case,
                &quantity,
                "segments",
                By::Simulation,
                number(value),
            ));
        }
    }
}
