//! Midspan, a TCP performance-enhancing proxy: the command line.
// Printing macros panic if the output has no reader; the module `printing` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod command_line;
mod commands;
mod control_options;
#[cfg(all(test, feature = "lab"))]
mod documents;
mod explanation;
#[cfg(feature = "lab")]
mod files;
#[cfg(feature = "lab")]
mod lab_arguments;
#[cfg(any(test, not(feature = "lab")))]
mod lab_package;
mod masking;
mod observing_arguments;
#[cfg(feature = "lab")]
mod old_spellings;
mod output_arguments;
mod overlay_arguments;
#[cfg(feature = "lab")]
mod plan_arguments;
mod printing;
mod progress;
#[cfg(feature = "lab")]
mod provenance;
mod thin_arguments;
mod times;

use std::io::Write;
use std::process::ExitCode;

use miette::miette;

use arguments::Command;

/// Exit status if a run was void, a bound was missed, or a requirement is missing.
const NOT_MET: u8 = 3;

fn main() -> ExitCode {
    let arguments = command_line::parse();
    printing::set_verbosity(arguments.verbosity.verbosity());
    // The output of long-running processes may have no reader.
    let is_watched = matches!(
        arguments.command,
        Command::Run(_)
            | Command::Relay
            | Command::UpgradeTrial
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
        Command::Drain(options) => commands::control::drain(&options),
        Command::Cleanup(output) => commands::cleanup::cleanup(&output),
        Command::Takeover(options) => commands::takeover::takeover(&options),
        Command::Bugreport(options) => commands::bugreport::bugreport(&options),
        Command::Explain(options) => commands::explain::explain_flow(&options),
        Command::Learned(options) => commands::learned::learned(&options),
        Command::Overlay(options) => commands::overlay::overlay(&options),
        Command::Top(options) => commands::top::top(&options),
        Command::Kick(options) => commands::control::kick(&options),
        Command::Reload(options) => commands::control::reload(&options),
        Command::Upgrade(options) => commands::upgrade::upgrade(&options),
        Command::Relay => commands::run::relay(),
        Command::UpgradeTrial => commands::run::upgrade_trial(),
        Command::Capture(options) => commands::capture::capture(options),
        Command::Thin(options) => commands::thin::thin(&options),
        Command::ThinWorker => commands::thin::worker(),
        Command::ThinPages => commands::thin::pages(),
        Command::LabPackage(command) => lab_package(command),
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

/// Carries out a command of the package midspan-lab.
#[cfg(feature = "lab")]
fn lab_package(command: lab_arguments::LabPackage) -> commands::Outcome {
    use lab_arguments::{LabCommand, LabPackage};
    match command {
        LabPackage::Demo(options) => commands::demo::demo(&options),
        LabPackage::Sim(options) => commands::sim::sim(&options),
        LabPackage::Merge(options) => commands::merge::merge(&options),
        LabPackage::Reproduce(options) => commands::reproduce::reproduce(&options),
        LabPackage::Plan(options) => commands::plan::plan(&options),
        LabPackage::Compare(options) => commands::compare::compare(&options),
        LabPackage::Conformance(options) => commands::conformance::conformance(&options),
        LabPackage::Manual(options) => commands::manual::manual(&options),
        LabPackage::Paths(output) => commands::paths::paths(output),
        LabPackage::Lab(lab) => match &lab.command {
            Some(LabCommand::Verify(options)) => commands::verify::verify(options),
            Some(LabCommand::Paths(options)) => commands::real_paths::real_paths(options),
            Some(LabCommand::Shell(options)) => commands::lab::shell::run(options),
            None => commands::lab::lab(&lab.run),
        },
    }
}

/// Runs the program of the package midspan-lab instead of this one.
#[cfg(not(feature = "lab"))]
fn lab_package(_: lab_package::LabPackage) -> commands::Outcome {
    lab_package::become_lab()
}
