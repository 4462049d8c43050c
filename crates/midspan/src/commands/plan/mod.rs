//! `midspan plan`: the analysis of a path.

mod agreement;
mod buffers;
mod measured;
mod output;
mod place;
mod whatif;

use std::time::Instant;

use midspan_path::Path;
use midspan_plan::{DataPathPlan, Plan, limit_name};
use midspan_records::Records;
use midspan_report::units::format;
use midspan_report::{
    Alignment, Axis, Cell, Content, LinePlot, Report, Section, Series, Table, stdout_width,
};
use midspan_units::number;
use miette::{IntoDiagnostic, miette};

use self::output::write;
use super::Outcome;
use super::choices::overrides;
use crate::plan_arguments::{PlanCommand, PlanOptions, PlanPathOptions};
use crate::printing;

/// Runs one of the commands.
pub fn plan(options: &PlanOptions) -> Outcome {
    match &options.command {
        None => whole(&options.path),
        Some(PlanCommand::Place(options)) => place::place(options),
        Some(PlanCommand::Buffers(options)) => buffers::buffers(options),
        Some(PlanCommand::Whatif(options)) => whatif::whatif(options),
        Some(PlanCommand::Agreement(options)) => agreement::agreement(options),
    }
}

/// The given path, with the values of `--set`.
pub fn load(name: &str, set: &[String]) -> miette::Result<Path> {
    Ok(Path::load_with(name, &overrides(set)?)?)
}

fn whole(options: &PlanPathOptions) -> Outcome {
    let Some(name) = &options.path else {
        return measured::measured(&options.measured, options.rate, &options.results);
    };
    let path = load(name, &options.set)?;
    let began = Instant::now();
    let plan = Plan::new(&path).into_diagnostic()?;
    let took = format(began.elapsed().as_secs_f64(), "s");
    printing::note(format_args!("{} analysed in {took}", plan.name));
    let records = Records {
        records: plan.records(),
    };
    if let Some(file) = &options.config {
        let text = configuration(&plan, options.proxy.as_deref())?;
        if file.as_os_str() == "-" {
            printing::text(text);
            return Ok(true);
        }
        write(file, &text)?;
    }
    let tables: Vec<Table> = plan.data_paths.iter().flat_map(tables).collect();
    if options.results.output.json {
        printing::line(records.to_json());
    } else {
        printing::text(plan.text());
        let texts: Vec<String> = tables
            .iter()
            .map(|table| table.to_text(stdout_width()))
            .collect();
        printing::text(texts.join("\n"));
    }
    let plots: Vec<LinePlot> = plan.data_paths.iter().map(progress).collect();
    if let (Some(file), Some(plot)) = (&options.results.plot, plots.first()) {
        write(file, &plot.to_svg().into_diagnostic()?)?;
    }
    if let Some(file) = &options.results.html {
        let content = tables
            .into_iter()
            .map(Content::Table)
            .chain(plots.into_iter().map(Content::Lines));
        let report = Report {
            title: format!("Plan of the path \"{}\"", plan.name),
            summary: plan.text(),
            command: output::command_line(),
            sections: vec![Section {
                heading: "Results of the analysis".to_owned(),
                text: String::new(),
                content: content.collect(),
            }],
            records,
            ..Report::default()
        };
        write(file, &report.to_html().into_diagnostic()?)?;
    }
    Ok(true)
}

fn configuration(plan: &Plan, proxy: Option<&str>) -> miette::Result<String> {
    let known = plan.proxies();
    let node = match (proxy, known.as_slice()) {
        (Some(node), _) => node,
        (None, [only]) => only,
        (None, []) => {
            return Err(miette!(
                "the path \"{}\" has no proxy between the hosts of its flows: \
                 add a [[proxy]] between them",
                plan.name
            ));
        }
        (None, several) => {
            return Err(miette!(
                "the path has several proxies: choose one with --proxy ({})",
                several.join(", ")
            ));
        }
    };
    plan.configuration(node).ok_or_else(|| {
        miette!(
            "there is no proxy \"{node}\"; the path has {}",
            known.join(", ")
        )
    })
}

/// The tables of one direction.
fn tables(data_path: &DataPathPlan) -> Vec<Table> {
    let mut tables = vec![end_to_end(data_path)];
    if data_path.split.is_some() {
        tables.push(legs(data_path));
        tables.push(proxies(data_path));
    }
    tables
}

fn table(title: &str, words: &[&str], numbers: &[&str]) -> Table {
    let mut table = Table::new(title);
    for heading in words {
        table.add_column(heading, Alignment::Left);
    }
    for heading in numbers {
        table.add_column(heading, Alignment::Right);
    }
    table
}

fn end_to_end(data_path: &DataPathPlan) -> Table {
    let mut table = table(
        &format!("{}, end to end", data_path.data_path.name()),
        &["connection", "bound by"],
        &["throughput", "coupling loss", "100 KB", "1 MB", "10 MB"],
    );
    for (case, answer) in data_path.cases() {
        let bound = if answer.legs.len() > 1 {
            format!("{} on {}", answer.limit(), answer.slowest_leg())
        } else {
            answer.limit().to_owned()
        };
        let mut row = vec![
            Cell::new(case),
            Cell::new(&bound),
            Cell::new(&format(answer.throughput(), "bit/s")),
            Cell::new(&format(answer.outcome.coupling_loss(), "share")),
        ];
        row.extend(answer.completion.map(|time| {
            Cell::new(&time.map_or_else(|| "never".to_owned(), |time| format(time, "s")))
        }));
        table.add_row(row);
    }
    table
}

fn legs(data_path: &DataPathPlan) -> Table {
    let mut table = table(
        "Legs",
        &["leg", "connection", "bound by"],
        &["rate", "round trip", "loss", "by itself", "in the chain"],
    );
    for (case, answer) in data_path.cases().into_iter().skip(1) {
        for ((name, chained), outcome) in answer
            .leg_names
            .iter()
            .zip(&answer.legs)
            .zip(&answer.outcome.legs)
        {
            let section = &chained.leg.section;
            table.add_row(vec![
                Cell::new(name),
                Cell::new(case),
                Cell::new(limit_name(outcome.isolated.limit)),
                Cell::new(&format(section.rate(), "bit/s")),
                Cell::new(&format(section.round_trip(), "s")),
                Cell::new(&format(section.loss(), "share")),
                Cell::new(&format(
                    outcome.isolated.throughput.bits_per_second(),
                    "bit/s",
                )),
                Cell::new(&format(outcome.throughput.bits_per_second(), "bit/s")),
            ]);
        }
    }
    table
}

fn proxies(data_path: &DataPathPlan) -> Table {
    let mut table = table(
        "Proxies: what they need",
        &["proxy"],
        &[
            "receive buffer",
            "send buffer",
            "pacing rate",
            "k",
            "packets per ACK",
            "segment",
        ],
    );
    for advice in &data_path.advice {
        let pacing = advice.pacing.map_or_else(
            || "none".to_owned(),
            |pacing| format(number(pacing.rate.bits_per_second()), "bit/s"),
        );
        table.add_row(vec![
            Cell::new(&advice.node),
            Cell::new(&format(number(advice.receive_buffer.bytes()), "bytes")),
            Cell::new(&format(number(advice.send_buffer.bytes()), "bytes")),
            Cell::new(&pacing),
            Cell::new(&format!("{:.2}", advice.acks.k)),
            Cell::new(&advice.acks.packets_per_ack.to_string()),
            Cell::new(&format(f64::from(advice.acks.segment.segment), "bytes")),
        ]);
    }
    table
}

/// Completion time as a function of size, a line for each connection.
fn progress(data_path: &DataPathPlan) -> LinePlot {
    let series = data_path
        .cases()
        .into_iter()
        .map(|(case, answer)| Series {
            name: case.to_owned(),
            points: answer.transfer_curve(),
        })
        .collect();
    LinePlot {
        title: data_path.data_path.name(),
        x: Axis::new("size of the transfer", "bytes"),
        y: Axis::new("completion time", "s"),
        series,
    }
}
