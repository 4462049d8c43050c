//! `midspan sim PATH`: flows in virtual time, one point or a sweep, optionally with traces.

mod traces;

use midspan_document::Sweep;
use midspan_lab::CaseKind;
use midspan_records::{By, Record, Records, statistics};
use midspan_report::{pivot, stdout_width};
use midspan_sweep::{Plan, Row};
use miette::{IntoDiagnostic, miette};

use super::Outcome;
use super::choices::{cores, overrides};
use crate::lab_arguments::SimOptions;
use crate::printing;
use crate::progress::Bar;

/// Runs a path in the simulator, without its proxies and with them.
pub fn sim(options: &SimOptions) -> Outcome {
    let plan = Plan {
        source: midspan_path::source(&options.path)?,
        overrides: overrides(&options.set)?,
        sweeps: options
            .sweep
            .iter()
            .map(|text| Sweep::parse("--sweep", text))
            .collect::<Result<_, _>>()?,
        flows: options.flows.clone(),
        repetitions: options.repetitions,
        seed: options.seed,
        threads: options.threads.map_or_else(cores, usize::from),
    };
    let path = plan.path()?;
    let mut records = Records::default();
    if options.traces() {
        if !plan.sweeps.is_empty() || plan.repetitions > 1 {
            return Err(miette!(
                help = "set what is to be traced with --set",
                "a trace is of one run: leave out --sweep and --repetitions"
            ));
        }
        traces::run(&path, options, &mut records)?;
    } else {
        let bar = Bar::new(plan.runs()? as u64);
        let rows = plan.run(|| bar.advance());
        bar.finish();
        let rows = rows?;
        if options.csv {
            printing::text(csv(&plan, &rows).into_diagnostic()?);
            return Ok(true);
        }
        for row in &rows {
            records.push(record(&path.name, &plan, row));
        }
    }
    if options.output.json {
        printing::line(records.to_json());
    } else {
        let title = format!("Simulated flows over the path \"{}\"", path.name);
        printing::text(pivot(&title, &records.records).to_text(stdout_width()));
    }
    Ok(true)
}

const fn case_of(proxies: bool) -> CaseKind {
    if proxies {
        CaseKind::Midspan
    } else {
        CaseKind::Direct
    }
}

/// One quantity at one point: the mean over the repetitions with its 95 % interval.
fn record(path: &str, plan: &Plan, row: &Row) -> Record {
    let mut case = format!("{} {}", row.flow, case_of(row.proxies));
    for (sweep, value) in plan.sweeps.iter().zip(&row.point) {
        case = format!("{case}, {} = {value}", sweep.key());
    }
    let mean = statistics::mean(&row.values);
    let value = mean.map_or(f64::NAN, |mean| mean.value);
    let record = Record::of(path, &case, row.quantity, By::Simulation, value);
    let record = match mean.and_then(|mean| mean.interval()) {
        Some((low, high)) => record.with_spread(low, high),
        None => record,
    };
    match row.note {
        Some(note) => record.with_note(note),
        None => record,
    }
}

/// One line for each quantity at each point.
fn csv(plan: &Plan, rows: &[Row]) -> Result<String, csv::Error> {
    let mut table = csv::Writer::from_writer(Vec::new());
    for sweep in &plan.sweeps {
        table.write_field(sweep.key())?;
    }
    table.write_record([
        "flow", "case", "quantity", "unit", "mean", "low", "high", "runs",
    ])?;
    for row in rows {
        let mean = statistics::mean(&row.values);
        let interval = mean.and_then(|mean| mean.interval());
        let end = |end: Option<f64>| end.map_or_else(String::new, |end| end.to_string());
        for value in &row.point {
            table.write_field(value)?;
        }
        table.write_record([
            &row.flow,
            &case_of(row.proxies).to_string(),
            row.quantity.name.as_ref(),
            row.quantity.unit,
            &end(mean.map(|mean| mean.value)),
            &end(interval.map(|(low, _)| low)),
            &end(interval.map(|(_, high)| high)),
            &row.values.len().to_string(),
        ])?;
    }
    let text = table.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
