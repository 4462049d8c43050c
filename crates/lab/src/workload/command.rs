//! A command in the client's host.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::RunningProgram;
use midspan_units::TimeSpan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::LabError;
use crate::contained::contained;
use crate::error::COMMAND;

/// Bytes kept of the end of a command's output.
const OUTPUT_LIMIT: usize = 4_096;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// From its start to its end, with some milliseconds for the start of its process namespace.
    pub duration: TimeSpan,
    /// Its exit status; 128 and the number of the signal if a signal ended it.
    pub status: i32,
    /// The end of its standard output and standard error, together, without control
    /// characters other than the ends of lines.
    pub output: String,
}

/// Runs a command, and ends it after `limit`. Its standard input is empty. Everything that it has left in
/// the background ends with it.
///
/// # Errors
/// The command cannot be started, or it ran too long.
pub fn run(
    client: &NetworkNamespace,
    command: &[String],
    variables: &[(OsString, OsString)],
    limit: Duration,
) -> Result<Ended, LabError> {
    let failed = |error: io::Error| failure(error.to_string());
    let (output, input) = io::pipe().map_err(failed)?;
    let mut contained = contained(command)?;
    contained
        .envs(variables.iter().cloned())
        .stdin(Stdio::null())
        .stdout(input.try_clone().map_err(failed)?)
        .stderr(input);
    let start = Instant::now();
    let child = client.spawn(contained)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let mut running = RunningProgram::new(child, Duration::ZERO);
    let reader = std::thread::Builder::new()
        .name("output of a command".into())
        .spawn(move || read_end(output))
        .map_err(failed)?;
    let has_ended = pid.is_some_and(|pid| ends_within(pid, limit));
    let duration = start.elapsed().into();
    let status = match has_ended {
        true => running.child().wait().map_err(failed)?,
        false => {
            running.child().kill().map_err(failed)?;
            running.child().wait().map_err(failed)?
        }
    };
    // All programs that had the pipe have ended with the process namespace.
    let output = reader
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(failed)?;
    if !has_ended {
        let seconds = limit.as_secs();
        return Err(failure(format!(
            "\"{}\" still ran after {seconds} s and was ended (--timeout); its last output: {}",
            command.join(" "),
            output.trim()
        )));
    }
    Ok(Ended {
        duration,
        status: code(status),
        output,
    })
}

fn ends_within(pid: Pid, limit: Duration) -> bool {
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let Ok(timeout) = Timespec::try_from(left) else {
            return false;
        };
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Reads everything, and keeps its end.
fn read_end(mut output: PipeReader) -> io::Result<String> {
    let mut kept: Vec<u8> = Vec::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match output.read(&mut block) {
            Ok(0) => return Ok(printable(&kept)),
            Ok(count) => {
                kept.extend(block.get(..count).unwrap_or_default());
                let surplus = kept.len().saturating_sub(OUTPUT_LIMIT);
                kept.drain(..surplus);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The text without what would control a terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = |char: char| match char {
        '\n' => char,
        _ if char.is_control() => ' ',
        _ => char,
    };
    text.chars().map(plain).collect()
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let by_signal = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(by_signal)
}

fn failure(reason: String) -> LabError {
    LabError::Program {
        program: COMMAND.into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn output_cannot_control_a_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\r\nc\xff"), "a [2Jb \nc\u{fffd}");
    }

    #[test]
    fn the_end_of_much_output_is_kept() {
        let (output, mut input) = io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            for _ in 0..1_000 {
                input.write_all(&[b'x'; 1_000]).unwrap();
            }
            input.write_all(b"the end").unwrap();
        });
        let text = read_end(output).unwrap();
        writer.join().unwrap();
        assert_eq!(text.len(), OUTPUT_LIMIT);
        assert!(text.ends_with("xthe end"));
    }
}
