//! Midspan on the gateway: this program, started again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::RunningProgram;
use midspan_proxy::RunOptions;
use midspan_units::BitRate;
use rustix::process::Signal;

use crate::Failure;
use crate::network::CLIENT_SIDE;

/// Numbers in the log's line about a session that ended.
pub type Session = BTreeMap<String, u64>;

const LIMIT: Duration = Duration::from_secs(30);
const LOG: &str = "log";

/// Runs Midspan if the arguments ask for it, as [`Midspan::start`] does; `None` if not. Must be
/// the first thing in `main` of a program that starts it.
#[must_use]
pub fn main(arguments: &[String]) -> Option<Result<(), Failure>> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["relay"] => Some(midspan_proxy::relay_main().map_err(Into::into)),
        ["run", file] => Some(run(file.as_ref())),
        _ => None,
    }
}

fn run(file: &Path) -> Result<(), Failure> {
    Ok(midspan_proxy::run(RunOptions {
        configuration: file.into(),
        relay_arguments: vec!["relay".to_owned()],
        ready: Some(std::io::stdout().as_fd().try_clone_to_owned()?),
    })?)
}

/// A running Midspan.
pub struct Midspan {
    program: RunningProgram,
    directory: tempfile::TempDir,
}

impl Midspan {
    /// Starts it with a transparent listener, and a profile for all clients with segments of
    /// `oversized` bytes, if any, and `rate` downstream.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        gateway: &NetworkNamespace,
        oversized: Option<usize>,
        rate: BitRate,
    ) -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        let size = oversized.map_or_else(|| "off".to_owned(), |bytes| format!("{bytes} B"));
        let file = directory.path().join("midspan.toml");
        std::fs::write(
            &file,
            format!(
                "[relay]\nthreads = 2\n[profile.narrow]\nclients = \"all\"\n\
                 downstream = \"{rate}\"\noversized_segments = \"{size}\"\n[[listener]]\n\
                 name = \"gateway\"\nmode = \"transparent\"\ninterfaces = [\"{CLIENT_SIDE}\"]\n"
            ),
        )?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("run")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(directory.path().join(LOG))?)
            .process_group(0);
        let mut child = gateway.spawn(command)?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let this = Self {
            program: RunningProgram::new(child, LIMIT),
            directory,
        };
        let mut ready = Vec::new();
        stdout.take(1).read_to_end(&mut ready)?;
        match ready[..] {
            [_] => Ok(this),
            _ => Err(format!("Midspan does not start: {}", this.log()?).into()),
        }
    }

    /// What it has logged.
    ///
    /// # Errors
    /// The file is gone.
    pub fn log(&self) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(self.directory.path().join(LOG))?)
    }

    /// Waits until so many sessions have ended; what is logged of them.
    ///
    /// # Errors
    /// They do not end.
    pub fn sessions(&self, count: usize) -> Result<Vec<Session>, Failure> {
        let start = Instant::now();
        loop {
            let log = self.log()?;
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

    /// Ends it in good order.
    ///
    /// # Errors
    /// It does not end, or says that something failed.
    pub fn end(mut self) -> Result<(), Failure> {
        self.program.signal(Signal::TERM);
        match self.program.wait_for(LIMIT) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("Midspan: {status}: {}", self.log()?).into()),
            None => Err(format!("Midspan does not end: {}", self.log()?).into()),
        }
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
