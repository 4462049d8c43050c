//! `midspan plan agreement`: compares the analysis with the simulator on random paths.

use std::time::Instant;

use midspan_records::By;
use midspan_report::units::format;
use midspan_report::{pivot, stdout_width};
use midspan_reproduce::agreement::{Simulations, plot, records};
use miette::IntoDiagnostic;

use super::output;
use crate::commands::Outcome;
use crate::commands::choices::cores;
use crate::plan_arguments::AgreementOptions;
use crate::printing;
use crate::progress::Bar;

/// Simulates the missing paths, predicts all, and prints the errors.
pub fn agreement(options: &AgreementOptions) -> Outcome {
    let began = Instant::now();
    let (first, last) = options.seeds;
    let mut simulations = Simulations::open(options.state.as_deref()).into_diagnostic()?;
    if let Some(note) = simulations.note() {
        printing::note(note);
    }
    let missing = simulations.missing(first..=last);
    if !missing.is_empty() {
        let bar = Bar::new(missing.len() as u64);
        let run = simulations.run(&missing, cores(), |seed| bar.next(&format!("seed {seed}")));
        bar.finish();
        run.into_diagnostic()?;
    }
    let simulated = began.elapsed();
    let began = Instant::now();
    let drawn = simulations.compare(first..=last).into_diagnostic()?;
    let analysed = began.elapsed();
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
        format(simulated.as_secs_f64(), "s"),
        drawn.len(),
        format(analysed.as_secs_f64(), "s"),
    ));
    if let Some(file) = &options.plot {
        let plot = plot(&drawn);
        output::write(file, &plot.to_svg().into_diagnostic()?)?;
    }
    Ok(records.all_ok())
}
