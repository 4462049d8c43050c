//! `midspan plan --from-…`: a plan from measurements.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path as FilePath, PathBuf};

use midspan_plan::measured::{
    LARGEST_TEXT, Measured, MeasuredError, iperf3, metrics, pcap, ping, ss,
};
use midspan_plan::{Answer, along, at, place};
use midspan_records::{By, Record, Records};
use midspan_report::{Axis, Content, LinePlot, Report, Section, Series, pivot, stdout_width};
use midspan_units::{BitRate, number};
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
    let mut records = Records {
        records: measured_records(program, measured),
    };
    let mut plot = LinePlot {
        title: format!("A proxy on the way of {}", measured.name),
        x: Axis::new("place on the longest part of the way", "share"),
        y: Axis::new("throughput", "bit/s"),
        series: Vec::new(),
    };
    match measured.data_path(rate) {
        Ok(data_path) => {
            let (answers, tenths) = analyse(&data_path)?;
            text.extend(advice(measured, &answers, rate));
            for (case, answer) in &answers {
                records.records.extend(answer.records(&measured.name, case));
            }
            plot.series.push(Series {
                name: "by analysis".to_owned(),
                points: tenths,
            });
            text.extend(
                data_path
                    .assumptions
                    .iter()
                    .map(|what| format!("Assumed: {what}.")),
            );
        }
        Err(error) => text.push(format!("No plan: {error}.")),
    }
    text.extend(
        measured
            .untold
            .iter()
            .map(|what| format!("Not measured: {what}.")),
    );
    let is_measured = |record: &Record| record.by == By::Measurement;
    let (seen, predicted): (Vec<Record>, Vec<Record>) =
        records.records.iter().cloned().partition(is_measured);
    let tables = [pivot("Measured", &seen), pivot("By analysis", &predicted)];
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
    output::write_plot(results, &plot, || Report {
        title: format!("Plan from {program}"),
        summary: text.join(" "),
        command: output::command_line(),
        sections: vec![Section {
            heading: "Measured, and predicted from it".to_owned(),
            text: String::new(),
            content: tables
                .map(Content::Table)
                .into_iter()
                .chain([Content::Lines(plot.clone())])
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
    let address = address.parse().into_diagnostic().wrap_err_with(|| {
        format!("\"{address}\" is no address and port, as in http://127.0.0.1:9464/metrics")
    })?;
    let (status, text) =
        midspan_proxy::admin::client::get(address, &format!("/{page}")).into_diagnostic()?;
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

type Answers = Vec<(String, Answer)>;

/// End to end, at every node in between, and at the best tenth of the longest part; and all tenths.
fn analyse(data_path: &midspan_plan::DataPath) -> miette::Result<(Answers, Vec<(f64, f64)>)> {
    let mut answers = vec![(
        "direct".to_owned(),
        Answer::new(data_path, &[]).into_diagnostic()?,
    )];
    if data_path.nodes.len() > 2 {
        for placement in place(data_path, 1, 16).into_diagnostic()?.placements {
            let nodes = placement
                .positions
                .iter()
                .filter_map(|position| data_path.nodes.get(*position));
            let name = nodes.cloned().collect::<Vec<_>>().join(" and ");
            let answer =
                Answer::new(data_path, &at(data_path, &placement.positions)).into_diagnostic()?;
            answers.push((format!("split at the point of {name}"), answer));
        }
    }
    let tenths = along(data_path).into_diagnostic()?;
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
            midspan_report::units::format(seen, "bit/s"),
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

fn measured_records(program: &str, measured: &Measured) -> Vec<Record> {
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
