//! Options whose names were different in version 0.1. Version 0.2 accepts the old names, with a warning.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option with a new name.
struct Renamed {
    /// The words of the command, without `midspan`.
    command: &'static [&'static str],
    old: &'static str,
    new: &'static str,
    /// The unit of the old option's value, which was a number without one.
    unit: Option<&'static str>,
}

const RENAMED: [Renamed; 8] = [
    Renamed {
        command: &["compare"],
        old: "--limit",
        new: "--timeout",
        unit: Some("s"),
    },
    Renamed {
        command: &["conformance"],
        old: "--cases",
        new: "--only",
        unit: None,
    },
    Renamed {
        command: &["lab"],
        old: "--cases",
        new: "--against",
        unit: None,
    },
    Renamed {
        command: &["lab"],
        old: "--limit",
        new: "--timeout",
        unit: Some("s"),
    },
    Renamed {
        command: &["manual"],
        old: "--output",
        new: "--output-directory",
        unit: None,
    },
    Renamed {
        command: &["plan", "agreement"],
        old: "--resume",
        new: "--state",
        unit: None,
    },
    Renamed {
        command: &["reproduce"],
        old: "--output",
        new: "--output-directory",
        unit: None,
    },
    Renamed {
        command: &["sim"],
        old: "--output",
        new: "--output-directory",
        unit: None,
    },
];

/// Replaces old names of options, and returns a warning for each.
pub fn renew(mut arguments: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut warnings = Vec::new();
    // Options of all commands may stand before the command.
    let is_option = |argument: &&OsString| argument.as_bytes().starts_with(b"-");
    let first = 1 + arguments.iter().skip(1).take_while(is_option).count();
    for renamed in RENAMED {
        let words = arguments.iter().skip(first).take(renamed.command.len());
        if !words.eq(renamed.command.iter().map(OsStr::new)) {
            continue;
        }
        let options = arguments.iter_mut().skip(first + renamed.command.len());
        let mut is_value = false;
        for argument in options.take_while(|argument| *argument != "--") {
            if std::mem::take(&mut is_value) {
                add_unit(argument, renamed.unit);
                continue;
            }
            let Some(rest) = argument.as_bytes().strip_prefix(renamed.old.as_bytes()) else {
                continue;
            };
            // The name alone, or the name with its value.
            if rest.is_empty() || rest.starts_with(b"=") {
                is_value = rest.is_empty();
                *argument = OsString::from_vec([renamed.new.as_bytes(), rest].concat());
                if !is_value {
                    add_unit(argument, renamed.unit);
                }
                warnings.push(format!(
                    "warning: {} of `midspan {}` is now {}; version 0.3 will not accept the old name",
                    renamed.old,
                    renamed.command.join(" "),
                    renamed.new
                ));
            }
        }
    }
    (arguments, warnings)
}

/// Adds the unit to a value that ends with a digit.
fn add_unit(value: &mut OsString, unit: Option<&str>) {
    if let Some(unit) = unit
        && value.as_bytes().last().is_some_and(u8::is_ascii_digit)
    {
        value.push(format!(" {unit}"));
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    fn renewed(line: &str) -> (String, usize) {
        let arguments = line.split_whitespace().map(OsString::from).collect();
        let (arguments, warnings) = renew(arguments);
        let arguments: Vec<_> = arguments
            .iter()
            .map(|argument| argument.to_str().unwrap())
            .collect();
        (arguments.join(" "), warnings.len())
    }

    #[test]
    fn only_the_named_option_of_the_named_command_is_replaced() {
        for (line, expected, warnings) in [
            (
                "midspan sim geo --output a",
                "midspan sim geo --output-directory a",
                1,
            ),
            (
                "midspan sim geo --output=a",
                "midspan sim geo --output-directory=a",
                1,
            ),
            (
                "midspan lab geo --cases direct",
                "midspan lab geo --against direct",
                1,
            ),
            (
                "midspan plan agreement --resume f",
                "midspan plan agreement --state f",
                1,
            ),
            (
                "midspan sim geo --output-directory a",
                "midspan sim geo --output-directory a",
                0,
            ),
            (
                "midspan sim geo -- --output a",
                "midspan sim geo -- --output a",
                0,
            ),
            (
                "midspan capture 1 --output a",
                "midspan capture 1 --output a",
                0,
            ),
            (
                "midspan conformance --cases a",
                "midspan conformance --only a",
                1,
            ),
            (
                "midspan -q conformance --cases a",
                "midspan -q conformance --only a",
                1,
            ),
            // The value had no unit.
            (
                "midspan lab geo --limit 300 --json",
                "midspan lab geo --timeout 300 s --json",
                1,
            ),
            (
                "midspan compare geo --limit=300",
                "midspan compare geo --timeout=300 s",
                1,
            ),
            (
                "midspan real-clients --cases a",
                "midspan real-clients --cases a",
                0,
            ),
            (
                "midspan plan geo --resume f",
                "midspan plan geo --resume f",
                0,
            ),
            ("midspan", "midspan", 0),
        ] {
            assert_eq!(renewed(line), (expected.to_owned(), warnings), "{line}");
        }
    }

    #[test]
    fn each_command_has_the_new_name_and_no_longer_the_old_one() {
        let program = Arguments::command();
        for renamed in RENAMED {
            let mut command = &program;
            for word in renamed.command {
                command = command.find_subcommand(word).unwrap();
            }
            let names: Vec<String> = command
                .get_arguments()
                .filter_map(|argument| argument.get_long())
                .map(|name| format!("--{name}"))
                .collect();
            assert!(names.iter().any(|name| name == renamed.new), "{names:?}");
            assert!(!names.iter().any(|name| name == renamed.old), "{names:?}");
        }
    }

    /// One name has one meaning in all commands.
    #[test]
    fn options_of_one_name_have_one_kind_of_value() {
        fn check(command: &clap::Command, path: &str) {
            for argument in command.get_arguments() {
                let Some(name) = argument.get_long() else {
                    continue;
                };
                let expected = match name {
                    "config" | "output" | "state" | "html" | "plot" | "pcap" => "FILE",
                    "output-directory" => "DIR",
                    "set" => "KEY=VALUE",
                    "sweep" => "KEY=VALUES",
                    "timeout" => "TIME",
                    "resume" => panic!("{path}: --state continues a run"),
                    "limit" => panic!("{path}: --timeout is the limit of a time"),
                    _ => continue,
                };
                let value: Vec<_> = argument.get_value_names().unwrap_or_default().to_vec();
                assert_eq!(value, [expected], "{path} --{name}");
            }
            for command in command.get_subcommands() {
                check(command, &format!("{path} {}", command.get_name()));
            }
        }
        let mut program = Arguments::command();
        program.build();
        check(&program, "midspan");
    }
}
