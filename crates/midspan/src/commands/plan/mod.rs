//! `midspan plan`: the analysis of a path.

mod agreement;
mod buffers;
mod measured;
mod network;
mod output;
mod place;
mod whatif;

use std::path::Path as FilePath;
use std::time::Instant;

use midspan_path::Path;
use midspan_plan::{DataPathPlan, Plan};
use midspan_records::Records;
use midspan_report::units::format;
use midspan_report::{Content, LinePlot, Report, Section, Table, stdout_width};
use miette::{IntoDiagnostic, miette};

use self::output::write;
use super::Outcome;
use super::choices::overrides;
use crate::files;
use crate::plan_arguments::{PlanCommand, PlanOptions, PlanPathOptions};
use crate::printing;

/// Runs one of the commands.
pub fn plan(options: &PlanOptions) -> Outcome {
    match &options.command {
        None => whole(&options.path),
        Some(PlanCommand::Place(options)) => place::place(options),
        Some(PlanCommand::Network(options)) => network::network(options),
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
    if options.old_config.is_some() {
        return Err(miette!(
            help = "--write-config FILE writes the recommended configuration to a new file",
            "midspan plan has no option --config: in all other commands, --config names a file \
             that is read, but here the file was overwritten. Nothing was written"
        ));
    }
    if let Some(file) = options
        .write_config
        .as_ref()
        .filter(|file| !is_stdout(file))
    {
        files::refuse_existing(file, options.force)?;
    }
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
    if let Some(file) = &options.write_config {
        let text = configuration(&plan, options.proxy.as_deref())?;
        if is_stdout(file) {
            printing::text(text);
            return Ok(true);
        }
        write(file, &text)?;
    }
    let tables: Vec<Table> = plan
        .data_paths
        .iter()
        .flat_map(DataPathPlan::tables)
        .collect();
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
    let plots: Vec<LinePlot> = plan
        .data_paths
        .iter()
        .map(DataPathPlan::transfer_plot)
        .collect();
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
            command: printing::command_line(),
            sections: vec![Section {
                heading: "Results of the analysis".to_owned(),
                text: String::new(),
                content: content.collect(),
            }],
            records,
            ..Report::default()
        };
        files::write_report(report, file)?;
    }
    Ok(true)
}

fn is_stdout(file: &FilePath) -> bool {
    file.as_os_str() == "-"
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
