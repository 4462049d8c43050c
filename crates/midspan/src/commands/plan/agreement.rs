//! `midspan plan agreement`: compares the analysis with the simulator on random paths.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use midspan_records::{By, Record, Records};
use midspan_report::units::format;
use midspan_report::{Axis, LinePlot, Series, pivot, stdout_width};
use midspan_reproduce::agreement::{Agreement, Compared, Draw};
use miette::{Context, IntoDiagnostic, miette};

use super::output;
use crate::commands::Outcome;
use crate::plan_arguments::AgreementOptions;
use crate::printing;
use crate::progress::Bar;

/// Bounds for the errors.
const MEDIAN: f64 = 0.10;
const PERCENTILE_90: f64 = 0.25;
/// First line of a file with results.
const HEADER: &str = "# midspan plan agreement: seed, simulated throughput in bit/s";
/// Largest file that is read.
const LARGEST_FILE: u64 = 16 << 20;

/// Simulates the missing paths, predicts all, and prints the errors.
pub fn agreement(options: &AgreementOptions) -> Outcome {
    let began = Instant::now();
    let known = match &options.resume {
        Some(file) => read(file)?,
        None => BTreeMap::new(),
    };
    let (first, last) = options.seeds;
    let missing: Vec<u64> = (first..=last)
        .filter(|seed| !known.contains_key(seed))
        .collect();
    let simulated = simulate(&missing, known, options.resume.as_deref())?;
    let simulations = began.elapsed();
    let began = Instant::now();
    let mut drawn = Vec::new();
    for (&seed, &simulated) in simulated.range(first..=last) {
        let draw = Draw::new(seed);
        let outcome = draw.predict().into_diagnostic()?;
        let compared = Compared {
            seed,
            predicted: outcome.throughput.bits_per_second(),
            simulated,
        };
        drawn.push((draw, compared));
    }
    let analysis = began.elapsed();
    let records = records(&drawn, options.worst);
    if options.output.json {
        printing::line(records.to_json());
    } else {
        let title = format!("Analysis against simulation, seeds {first} to {last}");
        // The predicted and the simulated value of a path are in one row.
        let mut rows = records.records.clone();
        for row in &mut rows {
            row.by = By::Analysis;
        }
        printing::text(pivot(&title, &rows).to_text(stdout_width()));
    }
    printing::note(format_args!(
        "{} paths simulated in {}, {} analysed in {}",
        missing.len(),
        format(simulations.as_secs_f64(), "s"),
        drawn.len(),
        format(analysis.as_secs_f64(), "s"),
    ));
    if let Some(file) = &options.plot {
        let plot = plot(&drawn);
        output::write(file, &plot.to_svg().into_diagnostic()?)?;
    }
    Ok(records.all_ok())
}

/// The known results and those of `missing`, computed on all cores; each is appended to `file` at
/// once.
fn simulate(
    missing: &[u64],
    mut known: BTreeMap<u64, f64>,
    file: Option<&Path>,
) -> miette::Result<BTreeMap<u64, f64>> {
    if missing.is_empty() {
        return Ok(known);
    }
    let mut kept = file.map(open).transpose()?;
    let bar = Bar::new(missing.len() as u64);
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let outcome = thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..workers {
            let (sender, next, stopped) = (sender.clone(), &next, &stopped);
            scope.spawn(move || {
                while let Some(&seed) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = Draw::new(seed).simulate();
                    if stopped.load(Ordering::Relaxed) || sender.send((seed, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (seed, result) in results {
            let step = result.into_diagnostic().and_then(|throughput| {
                bar.next(&format!("seed {seed}"));
                known.insert(seed, throughput);
                match &mut kept {
                    Some(file) => writeln!(file, "{seed} {throughput}").into_diagnostic(),
                    None => Ok(()),
                }
            });
            if let Err(error) = step {
                stopped.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    });
    bar.finish();
    outcome.map(|()| known)
}

/// The results in a file; none if the file does not exist yet.
fn read(file: &Path) -> miette::Result<BTreeMap<u64, f64>> {
    if !file.exists() {
        return Ok(BTreeMap::new());
    }
    let place = || format!("cannot continue from {}", file.display());
    let mut text = String::new();
    File::open(file)
        .and_then(|opened| opened.take(LARGEST_FILE).read_to_string(&mut text))
        .into_diagnostic()
        .wrap_err_with(place)?;
    if text.lines().next() != Some(HEADER) {
        return Err(miette!("it was not written by this command")).wrap_err_with(place);
    }
    // A partial last line of an interrupted run is ignored.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(whole.lines().skip(1).filter_map(result).collect())
}

fn result(line: &str) -> Option<(u64, f64)> {
    let (seed, throughput) = line.split_once(' ')?;
    let throughput: f64 = throughput.parse().ok()?;
    Some((seed.parse().ok()?, throughput)).filter(|_| throughput.is_finite())
}

fn open(file: &Path) -> miette::Result<File> {
    let new = !file.exists();
    let mut opened = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot write {}", file.display()))?;
    // A new line also ends a partial line of an interrupted run.
    let begin = if new { HEADER } else { "" };
    writeln!(opened, "{begin}").into_diagnostic()?;
    Ok(opened)
}

fn records(drawn: &[(Draw, Compared)], worst: usize) -> Records {
    let mut records = Records::default();
    let mut group = |case: &str, bounded: bool, keep: &dyn Fn(&Draw) -> bool| {
        let of_group: Vec<Compared> = drawn
            .iter()
            .filter(|(draw, _)| keep(draw))
            .map(|(_, compared)| *compared)
            .collect();
        let Some(found) = Agreement::of(&of_group) else {
            return;
        };
        #[allow(clippy::cast_precision_loss)] // A count of paths.
        let count = of_group.len() as f64;
        let push = |quantity: &str, value: f64, bound: Option<f64>| {
            let record = Record::new("agreement", case, quantity, "share", By::Analysis, value);
            match bound.filter(|_| bounded) {
                Some(bound) => record.with_ok(value < bound),
                None => record,
            }
        };
        let paths = Record::new("agreement", case, "paths", "paths", By::Analysis, count);
        records.records.extend([
            paths,
            push("median error", found.median, Some(MEDIAN)),
            push(
                "90th percentile of the error",
                found.percentile_90,
                Some(PERCENTILE_90),
            ),
            push("bias", found.bias, None),
        ]);
    };
    group("all", true, &|_| true);
    for legs in 1..=4 {
        let case = if legs == 1 {
            "1 leg".to_owned()
        } else {
            format!("{legs} legs")
        };
        group(&case, false, &|draw| draw.legs.len() == legs);
    }
    for (case, variant) in [
        ("Reno", midspan_sim::tcp::Variant::Reno),
        ("NewReno", midspan_sim::tcp::Variant::NewReno),
    ] {
        group(case, false, &|draw| draw.variant == variant);
    }
    let mut by_error: Vec<&(Draw, Compared)> = drawn.iter().collect();
    by_error.sort_by(|a, b| b.1.error().abs().total_cmp(&a.1.error().abs()));
    for (draw, compared) in by_error.into_iter().take(worst) {
        let case = format!(
            "seed {}, {} legs, {:?}",
            compared.seed,
            draw.legs.len(),
            draw.variant
        );
        let push = |quantity: &str, unit: &str, by: By, value: f64| {
            Record::new("worst", &case, quantity, unit, by, value)
        };
        records.records.extend([
            push("predicted", "bit/s", By::Analysis, compared.predicted),
            push("simulated", "bit/s", By::Analysis, compared.simulated),
            push("error", "share", By::Analysis, compared.error()),
        ]);
    }
    records
}

/// The share of paths whose error is at most this large.
fn plot(drawn: &[(Draw, Compared)]) -> LinePlot {
    let mut errors: Vec<f64> = drawn
        .iter()
        .map(|(_, compared)| compared.error().abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    #[allow(clippy::cast_precision_loss)] // Counts of paths.
    let share = |index: usize| (index + 1) as f64 / errors.len() as f64;
    let points = errors
        .iter()
        .enumerate()
        .map(|(index, error)| (*error, share(index)));
    LinePlot {
        title: "Error of the analysis against the simulator".to_owned(),
        x: Axis::new("error", "share"),
        y: Axis::new("paths with at most that error", "share"),
        series: vec![Series {
            name: "paths".to_owned(),
            points: points.collect(),
        }],
    }
}
