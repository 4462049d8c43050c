//! The commands of the package midspan-lab, in a program that is built without them.
//!
//! A gateway does not need these commands, so the package midspan contains a program without them
//! (`bin/midspan`). The package midspan-lab contains the program with all commands
//! (`lib/midspan/midspan-lab`, in the same parent folder). For each of these commands, the first
//! program replaces itself by the second one and passes all arguments on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

/// The commands, with the same names and descriptions as in `lab_arguments.rs`.
#[derive(Debug, Subcommand)]
pub enum LabPackage {
    /// Download real files over an emulated satellite path, without and with Midspan
    #[command(disable_help_flag = true)]
    Demo(PassedOn),
    /// Run flows over a path of emulated links, with real kernels and the real proxy
    #[command(disable_help_flag = true)]
    Lab(PassedOn),
    /// Run the flows of a path in virtual time, packet by packet
    #[command(disable_help_flag = true)]
    Sim(PassedOn),
    /// Join the files of finished runs of several calls to one
    #[command(disable_help_flag = true)]
    Merge(PassedOn),
    /// Print a paper's figures next to the results of its equations and of the simulator
    #[command(disable_help_flag = true)]
    Reproduce(PassedOn),
    /// Compute what a proxy would gain on a path, where to put it, and how to set it
    #[command(disable_help_flag = true)]
    Plan(PassedOn),
    /// Show the results of analysis, simulator and lab for a path side by side
    #[command(disable_help_flag = true)]
    Compare(PassedOn),
    /// Test a proxy at every edge case of TCP and list the differences from no proxy
    #[command(disable_help_flag = true)]
    Conformance(PassedOn),
    /// List the built-in paths
    #[command(disable_help_flag = true)]
    Paths(PassedOn),
}

/// Arguments that only the other program can read.
#[derive(Debug, Args)]
pub struct PassedOn {
    /// Arguments of the command
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<OsString>,
}

/// Where the program of the package midspan-lab belongs, for the path of this program.
fn lab_program(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?.parent()?;
    Some(folder.join("lib/midspan/midspan-lab"))
}

/// Replaces this program by the one of the package midspan-lab. Returns only if that fails.
///
/// # Errors
/// The package is not installed, or its program cannot be started.
#[cfg(not(feature = "lab"))]
pub fn become_lab() -> miette::Result<bool> {
    use std::os::unix::process::CommandExt;

    use miette::{IntoDiagnostic, miette};

    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "midspan".into());
    let arguments: Vec<OsString> = arguments.collect();
    let program = std::env::current_exe().into_diagnostic()?;
    let lab = lab_program(&program).unwrap_or_default();
    // The help of the other program shows the name that the user typed.
    let error = std::process::Command::new(&lab)
        .arg0(name)
        .args(&arguments)
        .exec();
    let typed = arguments
        .iter()
        .map(|argument| argument.to_string_lossy())
        .find(|argument| !argument.starts_with('-'))
        .unwrap_or_default();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => miette!(
            "`midspan {typed}` is part of the package midspan-lab, which is not installed ({} does \
             not exist): apt install midspan-lab",
            lab.display()
        ),
        _ => miette!("cannot start {}: {error}", lab.display()),
    })
}

#[cfg(test)]
mod tests {
    use clap::Subcommand;

    use super::*;

    #[test]
    fn both_programs_describe_the_same_commands() {
        let described = |command: clap::Command| -> Vec<(String, String)> {
            command
                .get_subcommands()
                .filter(|c| !c.is_hide_set())
                .map(|c| (c.get_name().to_owned(), format!("{:?}", c.get_about())))
                .collect()
        };
        let empty = || clap::Command::new("midspan");
        let here = described(LabPackage::augment_subcommands(empty()));
        assert!(here.len() > 5);
        #[cfg(feature = "lab")]
        assert_eq!(
            here,
            described(crate::lab_arguments::LabPackage::augment_subcommands(
                empty()
            ))
        );
    }

    #[test]
    fn all_arguments_are_passed_on() {
        let command = LabPackage::augment_subcommands(clap::Command::new("midspan"));
        for arguments in [
            &["midspan", "lab", "--help"][..],
            &["midspan", "sim", "geo", "--json", "--set=a=b", "--", "-x"],
            &["midspan", "plan"],
        ] {
            command.clone().try_get_matches_from(arguments).unwrap();
        }
    }

    #[test]
    fn the_program_of_the_lab_is_next_to_this_one() {
        for (program, lab) in [
            ("/usr/bin/midspan", "/usr/lib/midspan/midspan-lab"),
            (
                "/usr/local/bin/midspan",
                "/usr/local/lib/midspan/midspan-lab",
            ),
        ] {
            assert_eq!(lab_program(Path::new(program)).unwrap(), Path::new(lab));
        }
    }
}
