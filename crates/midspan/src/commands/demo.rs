//! `midspan demo`: downloads over a satellite path, without and with Midspan.

use std::time::Duration;

use midspan_lab::proxies::midspan::as_installed;
use midspan_lab::results::{ROUGH, UNCERTAIN, case_name};
use midspan_lab::{
    Case, CaseKind, Measurement, Presentation, Purpose, comparison_records, flow_records, validity,
};
use midspan_linux::namespace;
use midspan_path::{Flow, Path};
use midspan_records::quantity::COMPLETION_TIME;
use midspan_records::{Record, Records};
use midspan_report::{TextBar, TextBars, pivot, stdout_width};
use miette::IntoDiagnostic;

use super::Outcome;
use super::lab::{run_with_progress, write_report};
use crate::lab_arguments::DemoOptions;
use crate::printing;

/// The built-in path.
const PATH: &str = "geo";
/// The flow of the sentence, chosen before anything is measured.
const FLOW: &str = "1 MB";
const TITLE: &str = "Downloads over a GEO satellite path, end to end and through Midspan";
/// Share of the processors used by other programs from which on the user should know.
const BUSY: f64 = 0.2;

/// Downloads over the built-in GEO path, end to end and through Midspan.
pub fn demo(options: &DemoOptions) -> Outcome {
    let midspan = if options.forward {
        CaseKind::MidspanForward
    } else {
        CaseKind::Midspan
    };
    let mut path = Path::load(PATH)?;
    as_installed(&mut path);
    let kinds = [CaseKind::Direct, midspan];
    introduce(&path, &kinds);
    namespace::isolate().into_diagnostic()?;
    let measurements = run_with_progress(
        &path,
        &Case::of_kinds(&kinds, &path, Duration::from_secs(120)).into_diagnostic()?,
        options.repetitions,
        Purpose::Demonstration,
    )?;
    let flows = flow_records(&path, &measurements);
    let comparisons = comparison_records(&path, &measurements, None);
    let sentence = sentence(&flows, &comparisons, midspan);
    let remark = validity::remark(measurements.iter().map(|run| &run.validity));
    let records = Records {
        records: flows.iter().chain(&comparisons).cloned().collect(),
    };
    if options.output.json {
        printing::line(records.to_json());
        printing::note(&sentence);
    } else {
        let width = stdout_width();
        let picture = picture(&path, &flows, midspan).to_text(width);
        printing::text(format_args!("\n{sentence}\n\n{picture}\n"));
        if let Some(remark) = &remark {
            printing::text(format_args!("{remark}\n\n"));
        }
        printing::text(pivot(TITLE, &flows).to_text(width));
        let ratios = pivot("Midspan against the others (below 1: faster)", &comparisons);
        printing::text(format_args!("\n{}", ratios.to_text(width)));
    }
    let presentation = Presentation {
        path: &path,
        title: TITLE,
        command: printing::command_line(),
        measurements: &measurements,
        traces: &[],
        records: &records,
    };
    write_report(&presentation, &options.html)?;
    let failures = failures(&measurements);
    for failure in &failures {
        printing::warning(format_args!("Midspan failed: {failure}"));
    }
    Ok(failures.is_empty())
}

/// What is measured, and how.
fn introduce(path: &Path, kinds: &[CaseKind]) {
    printing::note(format_args!(
        "Real downloads from a real web server, over an emulated path on this machine.\n{}",
        path.description
    ));
    for kind in kinds {
        printing::note(format_args!("  {}", kind.description()));
    }
    printing::note(
        "Midspan runs as installed: policy = \"auto\" and no value set by hand. It has no control \
         group, and\nit is started again for each download, so it has not learned anything about \
         the path.",
    );
    let load = midspan_lab::other_load();
    if load > BUSY {
        printing::note(format_args!(
            "This machine is busy: other programs use {:.0} % of the processors. Some numbers may \
             be rough.",
            load * 100.0
        ));
    }
}

/// The completion time of a flow under a case.
fn time<'a>(flows: &'a [Record], name: &str) -> Option<&'a Record> {
    flows
        .iter()
        .find(|record| record.case == name && record.quantity == COMPLETION_TIME.name)
}

fn is_rough(record: &Record, mark: &str) -> bool {
    record.note.as_ref().is_some_and(|note| note.contains(mark))
}

/// The result in one sentence.
fn sentence(flows: &[Record], comparisons: &[Record], midspan: CaseKind) -> String {
    let of = |case: CaseKind| time(flows, &format!("{FLOW} {case}"));
    let (Some(with), Some(without)) = (of(midspan), of(CaseKind::Direct)) else {
        return format!("The download of {FLOW} was not measured.");
    };
    let ratio = format!("{FLOW} {midspan} / {}", CaseKind::Direct);
    let ratio = comparisons.iter().find(|record| record.case == ratio);
    let mark = match ratio {
        Some(ratio) if is_rough(ratio, UNCERTAIN) => " (rough)",
        _ => "",
    };
    format!(
        "{FLOW} over a satellite: in {:.1} s with Midspan instead of {:.1} s without it{mark}.",
        with.value, without.value
    )
}

/// The completion time of each flow, without and with Midspan.
fn picture(path: &Path, flows: &[Record], midspan: CaseKind) -> TextBars {
    let bar = |flow: &Flow, case: CaseKind, label: &str| {
        let record = time(flows, &case_name(flow, case))?;
        let mark = if is_rough(record, ROUGH) {
            " (rough)"
        } else {
            ""
        };
        Some(TextBar {
            label: label.to_owned(),
            value: record.value,
            shown: format!("{:.1} s{mark}", record.value),
        })
    };
    let groups = path.flows.iter().map(|flow| {
        let bars = [(CaseKind::Direct, "without"), (midspan, "Midspan")];
        let bars = bars
            .into_iter()
            .filter_map(|(case, label)| bar(flow, case, label));
        (flow.name.clone(), bars.collect())
    });
    TextBars {
        groups: groups.collect(),
    }
}

/// What Midspan did wrong, each fault once.
fn failures(measurements: &[Measurement]) -> Vec<String> {
    let void = measurements
        .iter()
        .map(|run| &run.validity)
        .filter(|validity| !validity.counts());
    validity::worst(void)
        .iter()
        .filter(|reason| matches!(reason, validity::Reason::NotCarried(_)))
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use midspan_records::By;

    use super::*;

    fn record(case: &str, quantity: &str, value: f64) -> Record {
        Record::new(PATH, case, quantity, "s", By::Lab, value)
    }

    #[test]
    fn the_sentence_is_true_for_a_gain_and_for_a_loss() {
        let times = |with, without| {
            [
                record("1 MB direct", "completion time", without),
                record("1 MB midspan", "completion time", with),
                record("1 MB midspan", "goodput", 7.0),
            ]
        };
        assert_eq!(
            sentence(&times(1.94, 4.85), &[], CaseKind::Midspan),
            "1 MB over a satellite: in 1.9 s with Midspan instead of 4.8 s without it."
        );
        let ratio = record("1 MB midspan / direct", "completion time ratio", 1.02)
            .with_note(format!("median of 3; {UNCERTAIN}"));
        assert_eq!(
            sentence(&times(5.0, 4.9), &[ratio], CaseKind::Midspan),
            "1 MB over a satellite: in 5.0 s with Midspan instead of 4.9 s without it (rough)."
        );
        let missing = sentence(&times(5.0, 4.9), &[], CaseKind::MidspanForward);
        assert_eq!(missing, "The download of 1 MB was not measured.");
    }
}
