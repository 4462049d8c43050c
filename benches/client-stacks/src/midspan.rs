//! Midspan on the gateway, started from this program's executable.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::RunOptions;
use midspan_testbed::program::{AS, Launch, Program};
use midspan_units::BitRate;

use crate::Failure;
use crate::network::CLIENT_SIDE;

/// The numbers in the log line about a session that ended.
pub type Session = BTreeMap<String, u64>;

const LIMIT: Duration = Duration::from_secs(30);

/// Runs Midspan if the arguments are those of [`Midspan::start`]; otherwise `None`. `main` of a
/// program that starts Midspan must call this first.
#[must_use]
pub fn main(arguments: &[String]) -> Option<Result<(), Failure>> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [AS, "relay"] => Some(midspan_proxy::relay_main().map_err(Into::into)),
        [AS, "run", file] => Some(run(file.as_ref())),
        _ => None,
    }
}

fn run(file: &Path) -> Result<(), Failure> {
    Ok(midspan_proxy::run(RunOptions {
        configuration: file.into(),
        relay_arguments: [AS, "relay"].map(str::to_owned).to_vec(),
        // No upgrade.
        trial_arguments: Vec::new(),
        ready: Some(std::io::stdout().as_fd().try_clone_to_owned()?),
        log_level: None,
    })?)
}

/// A running Midspan.
pub struct Midspan {
    program: Program,
}

impl Midspan {
    /// Starts Midspan with a transparent listener, and a profile for all clients with segments of
    /// `oversized` bytes, if any, and `rate` downstream.
    ///
    /// # Errors
    /// Midspan does not start.
    pub fn start(
        gateway: &NetworkNamespace,
        oversized: Option<usize>,
        rate: BitRate,
    ) -> Result<Self, Failure> {
        let size = oversized.map_or_else(|| "off".to_owned(), |bytes| format!("{bytes} B"));
        let text = format!(
            "[relay]\nthreads = 2\n[profile.narrow]\nclients = \"all\"\n\
             downstream = \"{rate}\"\noversized_segments = \"{size}\"\n[[listener]]\n\
             name = \"gateway\"\nmode = \"transparent\"\ninterfaces = [\"{CLIENT_SIDE}\"]\n"
        );
        let launch = Launch::this_program("run").configuration(&text);
        let program = launch.inside(gateway).grace(LIMIT).ready()?;
        Ok(Self { program })
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// Waits until `count` sessions have ended, and returns their numbers from the log.
    ///
    /// # Errors
    /// The sessions do not end.
    pub fn sessions(&self, count: usize) -> Result<Vec<Session>, Failure> {
        let start = Instant::now();
        loop {
            let log = self.log();
            let sessions: Vec<Session> = log.lines().filter_map(session).collect();
            if sessions.len() >= count {
                return Ok(sessions);
            }
            if start.elapsed() > LIMIT {
                return Err(format!("{} of {count} sessions ended: {log}", sessions.len()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops Midspan, with time to end by itself.
    ///
    /// # Errors
    /// Midspan does not end, or its exit status reports a failure.
    pub fn end(self) -> Result<(), Failure> {
        self.program.end_within(LIMIT)?;
        Ok(())
    }
}

fn session(line: &str) -> Option<Session> {
    let number = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    line.contains("session ended")
        .then(|| line.split_whitespace().filter_map(number).collect())
}
