//! `midspan reproduce PAPER --lab`: a paper's evaluation on real kernels.

use midspan_linux::namespace;
use midspan_records::Records;
use midspan_reproduce::Paper;
use midspan_reproduce::laboratory::{
    Extent, LabEffort, LabProgress, Laboratory, Point, laboratory,
};
use miette::IntoDiagnostic;

use super::super::Outcome;
use super::super::choices::cores;
use super::show;
use crate::lab_arguments::ReproduceOptions;
use crate::printing;
use crate::progress::Bar;

/// Measures, prints, writes the figures. Returns `false` if a bound is missed or a run is void.
pub fn reproduce(paper: Paper, options: &ReproduceOptions) -> Outcome {
    let effort = LabEffort {
        extent: extent(options.quick, options.full),
        item: options.item.clone(),
        repetitions: options.repetitions,
        state: options.state.clone(),
        only_finished: options.only_finished,
        threads: options.threads.map_or_else(cores, usize::from),
        ..LabEffort::default()
    };
    let points = paper.lab_points(&effort).into_diagnostic()?;
    // The lab enters its own namespaces, which must happen before any thread starts.
    namespace::isolate().into_diagnostic()?;
    let Laboratory {
        points,
        figures,
        runs,
        void,
        ..
    } = measure(points, &effort)?;
    let records = Records {
        records: figures.records,
    };
    show(paper, options, &records, &figures.figures, &points)?;
    say_void(void, runs);
    Ok(void == 0 && records.all_ok())
}

/// The extent that the options select.
pub const fn extent(quick: bool, full: bool) -> Extent {
    match (quick, full) {
        (true, _) => Extent::Quick,
        (false, true) => Extent::Full,
        (false, false) => Extent::Normal,
    }
}

/// Prints the number of runs that do not count.
pub fn say_void(void: usize, runs: usize) {
    if void > 0 {
        printing::warning(format_args!(
            "{void} of {runs} runs are void and do not count; --state FILE makes them again"
        ));
    }
}

/// Measures the points, and reports the progress.
pub fn measure(points: Vec<Point>, effort: &LabEffort) -> miette::Result<Laboratory> {
    let mut bar = None;
    let measured = laboratory(points, effort, &mut |progress| match progress {
        LabProgress::Planned {
            runs,
            finished,
            seconds,
        } => {
            printing::note(describe(runs, finished, seconds));
            bar = Some(Bar::new((runs - finished) as u64));
        }
        LabProgress::Begin(name) => bar.iter().for_each(|bar| bar.next(name)),
        LabProgress::Note(note) => printing::note(note),
        LabProgress::Say(line) => bar.iter().for_each(|bar| bar.say(line)),
    });
    if let Some(bar) = &bar {
        bar.finish();
    }
    measured.into_diagnostic()
}

/// Prints the number of runs and their duration.
fn describe(runs: usize, finished: usize, seconds: f64) -> String {
    let left = runs - finished;
    let each = seconds / left.max(1) as f64;
    let minutes = seconds / 60.0;
    let found = if finished > 0 {
        format!(" ({finished} more are finished already)")
    } else {
        String::new()
    };
    format!("{left} runs of about {each:.0} s, {minutes:.0} min in all{found}")
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn what_is_to_be_done_is_said_with_its_time() {
        assert_eq!(
            describe(10, 0, 300.0),
            "10 runs of about 30 s, 5 min in all"
        );
        assert_eq!(
            describe(10, 10, 0.0),
            "0 runs of about 0 s, 0 min in all (10 more are finished already)"
        );
    }
}
