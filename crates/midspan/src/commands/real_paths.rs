//! `midspan lab paths`: Midspan without hand-set values compared with others, on real paths.

use midspan_linux::namespace;
use midspan_records::Records;
use midspan_report::stdout_width;
use midspan_reproduce::laboratory::real_paths::{
    Chosen, choices, grid, points, report, summary, targets, times,
};
use midspan_reproduce::laboratory::{LabEffort, Laboratory};
use miette::{IntoDiagnostic, WrapErr};

use super::Outcome;
use super::reproduce::lab::{extent, measure, say_void};
use crate::files;
use crate::lab_arguments::RealPathsOptions;
use crate::printing;

/// Measures and prints. Returns `false` if a target is missed or a run is void.
pub fn real_paths(options: &RealPathsOptions) -> Outcome {
    let effort = LabEffort {
        extent: extent(options.quick, options.full),
        item: options.item.clone(),
        transfers: options.transfers.clone(),
        repetitions: options.repetitions,
        state: options.state.clone(),
        only_finished: options.only_finished,
        // There is no simulation for comparison.
        threads: 1,
    };
    let points = match (options.grid, &options.by_hand) {
        (true, _) => grid(&effort),
        (false, None) => points(&effort, &Chosen::default()),
        (false, Some(file)) => {
            // A state file that does not exist would be a new one, with nothing chosen.
            std::fs::File::open(file)
                .into_diagnostic()
                .wrap_err_with(|| {
                    format!(
                        "cannot read {}, which --by-hand names: `lab paths --grid --state` writes it",
                        file.display()
                    )
                })?;
            Chosen::read(file).and_then(|chosen| points(&effort, &chosen))
        }
    };
    let points = points.into_diagnostic()?;
    // The lab enters its own namespaces, which must happen before any thread starts.
    namespace::isolate().into_diagnostic()?;
    let laboratory = measure(points, &effort)?;
    let page = options
        .html
        .as_ref()
        .map(|file| (report(&laboratory, printing::command_line()), file));
    let Laboratory {
        points,
        figures,
        judged,
        runs,
        void,
    } = laboratory;
    let records = Records {
        records: figures.records,
    };
    if options.output.json {
        printing::line(records.to_json());
    } else {
        let width = stdout_width();
        printing::text(times(&points, &records.records).to_text(width));
        if options.grid {
            let choices = choices(&points, &records.records);
            printing::text(format_args!("\n{}", choices.to_text(width)));
        }
        if !judged.is_empty() {
            printing::text(format_args!("\n{}", targets(&judged).to_text(width)));
        }
    }
    if let Some((page, file)) = page {
        files::write_report(page, file)?;
    }
    if !options.grid {
        printing::note(summary(&judged));
    }
    say_void(void, runs);
    Ok(void == 0 && records.all_ok())
}
