//! The command line as a whole: the commands in groups, and spellings of earlier versions.

use std::ffi::OsString;
use std::fmt::Write;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::arguments::Arguments;

/// The commands of `midspan --help`. clap has groups of options, but not of commands.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Commands of a gateway:",
        &[
            "init",
            "check",
            "run",
            "status",
            "top",
            "explain",
            "learned",
            "overlay",
            "reload",
            "upgrade",
            "bypass",
            "drain",
            "kick",
            "capture",
            "bugreport",
            "takeover",
            "cleanup",
        ],
    ),
    ("Commands for a narrow upstream:", &["thin"]),
    (
        "Commands that plan and simulate:",
        &["plan", "sim", "compare", "paths"],
    ),
    (
        "Commands that measure:",
        &["demo", "lab", "conformance", "reproduce", "merge"],
    ),
];

/// Reads the arguments of this process. Ends the process after a usage error and after `--help`.
pub fn parse() -> Arguments {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Commands of the package midspan-lab are read by its own program.
    #[cfg(feature = "lab")]
    let arguments = {
        let (arguments, warnings) = crate::old_spellings::renew(arguments);
        warnings.iter().for_each(crate::printing::warning);
        arguments
    };
    let mut command = grouped(Arguments::command());
    let matches = command.clone().get_matches_from(arguments);
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

/// The command with a help text that has its commands in groups.
fn grouped(command: Command) -> Command {
    let heading = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS {
        let _ = write!(text, "\n{heading}{title}{heading:#}\n");
        for name in names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<11}{literal:#}  {about}");
        }
    }
    let _ = write!(
        text,
        "\n{heading}Options:{heading:#}\n{{options}}{{after-help}}"
    );
    command.help_template(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = Arguments::command();
        let mut visible: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible);
    }

    #[test]
    fn the_help_has_each_group_and_fits() {
        let help = grouped(Arguments::command()).render_help().to_string();
        for (title, names) in GROUPS {
            assert!(help.contains(title), "{help}");
            for name in names {
                assert!(help.contains(&format!("\n  {name} ")), "{help}");
            }
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
