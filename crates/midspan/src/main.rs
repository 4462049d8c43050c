//! Midspan, a TCP performance-enhancing proxy: the command line.
// Printing macros panic if the output has no reader; the module `printing` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod commands;
mod gateway_arguments;
mod output_arguments;
mod plan_arguments;
mod presentation;
mod printing;
mod progress;
mod thin_arguments;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use miette::miette;

use arguments::{Arguments, Command, LabCommand};

/// Exit status if a run was void, a bound was missed, or a requirement is missing.
const NOT_MET: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The output of long-running processes may have no reader.
    let is_watched = matches!(
        arguments.command,
        Command::Run(_)
            | Command::Relay
            | Command::Thin(_)
            | Command::ThinWorker
            | Command::ThinPages
    );
    let outcome = match arguments.command {
        Command::Run(options) => commands::run::run(options),
        Command::Init(options) => commands::init::init(&options),
        Command::Check(options) => commands::check::check(&options),
        Command::CheckKernel { config } => commands::check::kernel(&config),
        Command::Status(options) => commands::control::status(&options),
        Command::Bypass(options) => commands::control::bypass(&options),
        Command::Cleanup(output) => commands::cleanup::cleanup(&output),
        Command::Kick(options) => commands::control::kick(&options),
        Command::Reload(options) => commands::control::reload(&options),
        Command::Relay => commands::run::relay(),
        Command::Demo(options) => commands::demo::demo(&options),
        Command::Sim(options) => commands::sim::sim(&options),
        Command::Reproduce(options) => commands::reproduce::reproduce(&options),
        Command::Capture(options) => commands::capture::capture(options),
        Command::Plan(options) => commands::plan::plan(&options),
        Command::Compare(options) => commands::compare::compare(&options),
        Command::Conformance(options) => commands::conformance::conformance(&options),
        Command::Thin(options) => commands::thin::thin(&options),
        Command::ThinWorker => commands::thin::worker(),
        Command::ThinPages => commands::thin::pages(),
        Command::Paths(output) => commands::paths::paths(output),
        Command::Lab(lab) => match lab.command {
            Some(LabCommand::Verify(options)) => commands::verify::verify(&options),
            Some(LabCommand::Paths(options)) => commands::real_paths::real_paths(&options),
            None => commands::lab::lab(&lab.run),
        },
    };
    let incomplete = |error| miette!("cannot write to standard output: {error}");
    let outcome =
        outcome.and_then(|is_met| printing::finish().map(|()| is_met).map_err(incomplete));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_MET),
        Err(report) => {
            let text = format!("{report:?}");
            if is_watched {
                midspan_log::say(&text);
                midspan_log::finish();
            } else {
                // If standard error has no reader, the exit status still reports the error.
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            ExitCode::FAILURE
        }
    }
}
