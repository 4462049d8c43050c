//! The settings of the harness, from environment variables.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::{Arguments, FormatSetting};

const TRIES: &str = "MIDSPAN_TEST_TRIES";
const SECOND_TRIES: &str = "MIDSPAN_SECOND_TRIES";
const LIMIT: &str = "MIDSPAN_TEST_LIMIT";
const SLOWNESS: &str = "MIDSPAN_SLOWNESS";

/// Far beyond what a test takes on a busy machine.
const DEFAULT_LIMIT: u64 = 900;

/// How tests are run.
#[derive(Debug)]
pub(super) struct Settings {
    /// Tries of each test, at least one.
    pub(super) tries: u64,
    /// Time after which a test is ended.
    pub(super) limit: Duration,
    /// Whether what tests print is kept until it is known how they end.
    pub(super) captures: bool,
    /// Whether the list of results has no reason next to a test that was left out.
    pub(super) names_no_reasons: bool,
    /// Whether what passing tests print is shown.
    pub(super) shows_output: bool,
    second_tries: Option<PathBuf>,
}

impl Settings {
    pub(super) fn read(arguments: &Arguments) -> Result<Self, String> {
        // As Rust's own harness has it.
        let variable = env::var("RUST_TEST_NOCAPTURE").is_ok_and(|value| value != "0");
        Ok(Self {
            tries: number(TRIES, 1)?,
            limit: Duration::from_secs(number(LIMIT, DEFAULT_LIMIT)?),
            captures: !arguments.nocapture && !variable,
            names_no_reasons: arguments.quiet
                || arguments
                    .format
                    .is_some_and(|format| format != FormatSetting::Pretty),
            shows_output: arguments.show_output,
            second_tries: env::var_os(SECOND_TRIES).map(PathBuf::from),
        })
    }

    /// Adds a test to the list of those that needed a second try.
    pub(super) fn add_second_try(&self, name: &str) -> Result<(), String> {
        let Some(file) = &self.second_tries else {
            return Ok(());
        };
        let mut options = OpenOptions::new();
        let opened = options.append(true).create(true).open(file);
        // One write for a line, since several test programs may add to the file.
        let written =
            opened.and_then(|mut opened| opened.write_all(format!("{name}\n").as_bytes()));
        written.map_err(|error| format!("cannot add {name} to {}: {error}", file.display()))
    }
}

/// How many times slower than a real machine this one is. It is one unless `MIDSPAN_SLOWNESS` is set. A test
/// whose load a slow machine cannot carry divides the load by this number.
///
/// # Panics
///
/// If the variable is no number above 0.
pub fn slowness() -> u32 {
    let number = number(SLOWNESS, 1).and_then(|number| {
        u32::try_from(number).map_err(|_| format!("{SLOWNESS}={number} is too large"))
    });
    number.unwrap_or_else(|error| panic!("{error}"))
}

fn number(name: &str, default: u64) -> Result<u64, String> {
    match env::var(name) {
        Ok(text) => match text.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{name}=\"{text}\" is no number above 0")),
        },
        Err(env::VarError::NotPresent) => Ok(default),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
