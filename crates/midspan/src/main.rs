//! Midspan, a TCP performance-enhancing proxy: the command line.

mod arguments;
mod commands;
mod presentation;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command, LabCommand};

/// A run was void, or a bound was missed.
const NOT_MET: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Run(options) => commands::run::run(options),
        Command::Relay => commands::run::relay(),
        Command::Demo(options) => commands::demo::demo(&options),
        Command::Sim(options) => commands::sim::sim(&options),
        Command::Reproduce(options) => commands::reproduce::reproduce(&options),
        Command::Paths(output) => commands::paths::paths(output),
        Command::Lab(lab) => match lab.command {
            Some(LabCommand::Verify(options)) => commands::verify::verify(&options),
            None => commands::lab::lab(&lab.run),
        },
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_MET),
        Err(report) => {
            eprintln!("{report:?}");
            ExitCode::FAILURE
        }
    }
}
