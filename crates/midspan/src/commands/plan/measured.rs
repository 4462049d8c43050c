//! `midspan plan --from-…`: a plan from measurements.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path as FilePath, PathBuf};

use midspan_plan::measured::{
    LARGEST_TEXT, Measured, MeasuredError, iperf3, metrics, pcap, ping, ss,
};
use midspan_records::Records;
use midspan_report::{Content, Report, Section, pivot, stdout_width};
use midspan_units::BitRate;
use miette::{Context, IntoDiagnostic};

use super::output;
use crate::commands::Outcome;
use crate::plan_arguments::{MeasuredOptions, ResultOptions};
use crate::printing;

/// Plans from the given measurement.
pub fn measured(
    options: &MeasuredOptions,
    rate: Option<BitRate>,
    results: &ResultOptions,
) -> Outcome {
    let (program, file, found) = read(options)?;
    let [measured, others @ ..] = found.as_slice() else {
        return Ok(false);
    };
    let mut text = vec![format!(
        "{} ({program}, {}){}.",
        measured.name,
        file.display(),
        match others.len() {
            0 => String::new(),
            count => format!(", the busiest of {} connections", count + 1),
        }
    )];
    let plan = measured.plan(program, rate).into_diagnostic()?;
    text.extend(plan.text);
    let tables = [
        pivot("Measured", &plan.measured),
        pivot("By analysis", &plan.predicted),
    ];
    let records = Records {
        records: [plan.measured, plan.predicted].concat(),
    };
    if results.output.json {
        printing::line(records.to_json());
    } else {
        printing::line(format_args!("{}\n", text.join("\n")));
        printing::text(format_args!(
            "{}\n{}",
            tables[0].to_text(stdout_width()),
            tables[1].to_text(stdout_width())
        ));
    }
    output::write_plot(results, &plan.plot, || Report {
        title: format!("Plan from {program}"),
        summary: text.join(" "),
        command: printing::command_line(),
        sections: vec![Section {
            heading: "Measured, and predicted from it".to_owned(),
            text: String::new(),
            content: tables
                .map(Content::Table)
                .into_iter()
                .chain([Content::Lines(plan.plot.clone())])
                .collect(),
        }],
        records: records.clone(),
        ..Report::default()
    })?;
    Ok(true)
}

/// The measurements of the given input, with the program that wrote it.
fn read(options: &MeasuredOptions) -> miette::Result<(&'static str, &PathBuf, Vec<Measured>)> {
    let (program, file, result): (_, _, Result<_, MeasuredError>) =
        if let Some(file) = &options.from_pcap {
            (
                "pcap",
                file,
                open(file).map_err(MeasuredError::Read).and_then(pcap::read),
            )
        } else if let Some(file) = &options.from_ss {
            ("ss", file, text(file).and_then(|text| ss::read(&text)))
        } else if let Some(file) = &options.from_ping {
            (
                "ping",
                file,
                text(file).and_then(|text| Ok(vec![ping::read(&text)?])),
            )
        } else if let Some(file) = &options.from_iperf3 {
            (
                "iperf3",
                file,
                text(file).and_then(|text| Ok(vec![iperf3::read(&text)?])),
            )
        } else if let Some(file) = &options.from_metrics {
            ("metrics", file, metrics::read(&fetched(file)?))
        } else {
            return Err(miette::miette!("give a path or a measurement"));
        };
    let found = result
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot plan from {}", file.display()))?;
    Ok((program, file, found))
}

/// The answer of an admin listener if a URL is given, otherwise the text of a file.
fn fetched(place: &FilePath) -> miette::Result<String> {
    let Some(rest) = place.to_str().and_then(|url| url.strip_prefix("http://")) else {
        return text(place)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot plan from {}", place.display()));
    };
    let (address, page) = rest.split_once('/').unwrap_or((rest, "metrics"));
    let address: std::net::SocketAddr = address.parse().into_diagnostic().wrap_err_with(|| {
        format!("\"{address}\" is no address and port, as in http://127.0.0.1:9464/metrics")
    })?;
    let (status, text) =
        midspan_proxy::client::get(address, &format!("/{page}")).into_diagnostic()?;
    if status != 200 {
        return Err(miette::miette!(
            "{} answers with status {status}",
            place.display()
        ));
    }
    Ok(text)
}

fn open(file: &FilePath) -> io::Result<Box<dyn Read>> {
    Ok(if file.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file)?)
    })
}

/// A text of limited size; bytes that are not UTF-8 are replaced.
fn text(file: &FilePath) -> Result<String, MeasuredError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(LARGEST_TEXT).unwrap_or(u64::MAX);
    open(file)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
