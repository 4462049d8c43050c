//! What commands print, as a whole: a change of any result or text shows as a difference to a file in
//! `tests/snapshots`. `INSTA_UPDATE=always cargo test --package midspan --test plain -- snapshots` writes the
//! files again.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

/// Standard output of a command that succeeds.
fn output(arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same, or the error of a command that fails.
fn output_or_error(arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = match output.status.success() {
        true => output.stdout,
        false => output.stderr,
    };
    String::from_utf8(text).unwrap()
}

/// The subcommands in the help text of a command. Their headings begin with "Commands".
fn subcommands(help: &str) -> Vec<String> {
    let mut is_command = false;
    let mut names = Vec::new();
    for line in help.lines() {
        if !line.starts_with(' ') && !line.is_empty() {
            is_command = line.starts_with("Commands");
        } else if is_command && line.starts_with("  ") && !line.starts_with("   ") {
            names.extend(line.split_whitespace().next().map(str::to_owned));
        }
    }
    names.retain(|name| name != "help");
    names
}

/// Adds the help text of a command and of all commands below it.
fn add_help(command: &[String], text: &mut String) {
    let arguments = command.iter().map(String::as_str).chain(["--help"]);
    let help = output(&arguments.collect::<Vec<_>>());
    writeln!(text, "$ midspan {}\n\n{help}", command.join(" ")).unwrap();
    for name in subcommands(&help) {
        add_help(&[command, &[name]].concat(), text);
    }
}

#[test]
fn the_help_of_every_command() {
    let overview = output(&["--help"]);
    let commands = subcommands(&overview);
    assert!(commands.len() > 10, "{commands:?}");
    insta::assert_snapshot!("help", overview);
    for command in commands {
        let mut text = String::new();
        add_help(std::slice::from_ref(&command), &mut text);
        insta::assert_snapshot!(format!("help-{command}"), text);
    }
}

/// The simulator computes the same numbers on every machine. Some paths it refuses, with the reason.
#[test]
fn the_simulated_table_of_every_built_in_path() {
    let paths: serde_json::Value = serde_json::from_str(&output(&["paths", "--json"])).unwrap();
    let paths = paths["paths"].as_array().unwrap();
    assert!(paths.len() > 10);
    for path in paths {
        let name = path["name"].as_str().unwrap();
        let table = output_or_error(&["sim", name, "--repetitions", "2"]);
        insta::assert_snapshot!(format!("sim-{name}"), table);
    }
}

#[test]
fn the_plan_of_a_path() {
    for (name, command) in [
        ("plan-geo", &["plan", "geo"][..]),
        ("plan-place-geo", &["plan", "place", "geo"]),
        ("plan-buffers-geo", &["plan", "buffers", "geo"]),
    ] {
        insta::assert_snapshot!(name, output(command));
    }
}
