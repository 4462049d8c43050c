//! One try of a test, in a process of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use midspan_linux::process::{RunningProgram, end_with_parent_thread};

use super::KERNEL_TEST;
use super::child::{IS_SKIPPED, SKIPPED};
use super::settings::Settings;

/// Bytes of the beginning and of the end of what a test printed that are shown.
const SHOWN: u64 = 64 << 10;

/// A test that prints more is ended.
const MOST_PRINTED: u64 = 1 << 30;

/// The result of a try.
#[derive(Debug)]
pub(super) enum End {
    Passed,
    Skipped,
    Failed(String),
}

/// How a try ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) end: End,
    /// What it printed; of much, the beginning and the end.
    pub(super) printed: String,
}

impl Attempt {
    /// Runs a test once.
    pub(super) fn run(name: &str, settings: &Settings) -> Self {
        match try_to_run(name, settings) {
            Ok(attempt) => attempt,
            Err(error) => Self {
                end: End::Failed(format!("its process could not be run: {error}")),
                printed: String::new(),
            },
        }
    }

    /// The reasons why the test left parts out, each once.
    pub(super) fn skipped(&self) -> Vec<&str> {
        let lines = self.printed.lines();
        let mut reasons: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix(SKIPPED))
            .collect();
        reasons.dedup();
        reasons
    }
}

fn try_to_run(name: &str, settings: &Settings) -> io::Result<Attempt> {
    // A file, not a pipe: processes that a test leaves behind would keep a pipe open.
    let printed = tempfile::tempfile()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([KERNEL_TEST, name])
        .stdin(Stdio::null())
        .process_group(0);
    if settings.captures {
        command
            .stdout(printed.try_clone()?)
            .stderr(printed.try_clone()?);
    }
    end_with_parent_thread(&mut command);
    let mut running = RunningProgram::new(command.spawn()?, Duration::ZERO);
    let end = wait(&mut running, &printed, settings.limit)?;
    Ok(Attempt {
        end,
        printed: first_and_last_part(&printed)?,
    })
}

fn wait(running: &mut RunningProgram, printed: &File, limit: Duration) -> io::Result<End> {
    let start = Instant::now();
    loop {
        if let Some(status) = running.wait_for(Duration::from_millis(20)) {
            return Ok(match status.code() {
                Some(0) => End::Passed,
                Some(code) if code == i32::from(IS_SKIPPED) => End::Skipped,
                _ => End::Failed(format!("it ended with {status}")),
            });
        }
        let failure = if start.elapsed() > limit {
            format!("it was still running after {} s", limit.as_secs())
        } else if printed.metadata()?.len() > MOST_PRINTED {
            format!("it printed more than {} MiB", MOST_PRINTED >> 20)
        } else {
            continue;
        };
        // What it has started ends with it.
        running.kill_group();
        running.child().wait()?;
        return Ok(End::Failed(failure));
    }
}

/// What a test printed; of much, the beginning and the end.
fn first_and_last_part(file: &File) -> io::Result<String> {
    let length = file.metadata()?.len();
    // At a place: the test's processes write at the descriptor's own.
    let part = |from: u64, count: u64| -> io::Result<String> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or_default()];
        file.read_exact_at(&mut bytes, from)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    if length <= 2 * SHOWN {
        return part(0, length);
    }
    let (first, last) = (part(0, SHOWN)?, part(length - SHOWN, SHOWN)?);
    Ok(format!("{first}\n…\n{last}"))
}
