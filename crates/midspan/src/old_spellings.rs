//! Options whose names were different in version 0.1. Version 0.2 accepts the old names, with a warning.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option with a new name.
struct Renamed {
    /// The words of the command, without `midspan`.
    command: &'static [&'static str],
    old: &'static str,
    new: &'static str,
}

const RENAMED: [Renamed; 5] = [
    Renamed {
        command: &["lab"],
        old: "--cases",
        new: "--against",
    },
    Renamed {
        command: &["manual"],
        old: "--output",
        new: "--output-directory",
    },
    Renamed {
        command: &["plan", "agreement"],
        old: "--resume",
        new: "--state",
    },
    Renamed {
        command: &["reproduce"],
        old: "--output",
        new: "--output-directory",
    },
    Renamed {
        command: &["sim"],
        old: "--output",
        new: "--output-directory",
    },
];

/// Replaces old names of options, and returns a warning for each.
pub fn renew(mut arguments: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut warnings = Vec::new();
    for renamed in RENAMED {
        let words = arguments.iter().skip(1).take(renamed.command.len());
        if !words.eq(renamed.command.iter().map(OsStr::new)) {
            continue;
        }
        let options = arguments.iter_mut().skip(1 + renamed.command.len());
        for argument in options.take_while(|argument| *argument != "--") {
            let Some(rest) = argument.as_bytes().strip_prefix(renamed.old.as_bytes()) else {
                continue;
            };
            // The name alone, or the name with its value.
            if rest.is_empty() || rest.starts_with(b"=") {
                *argument = OsString::from_vec([renamed.new.as_bytes(), rest].concat());
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
                "midspan conformance --cases a",
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
                    "resume" => panic!("{path}: --state continues a run"),
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
