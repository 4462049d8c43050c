//! Runs a program to its end, with a time limit.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Most output of a program, in bytes.
const OUTPUT_LIMIT: usize = 256 << 20;
/// How long to wait for the end of a killed program; one that waits inside the kernel ends later.
const END_LIMIT: Duration = Duration::from_millis(200);
/// If this many killed programs have not ended, no others are started.
const STUCK_LIMIT: usize = 4;

/// Killed programs that had not ended in time.
static STUCK: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// The output of a program with this input. The program is killed after `limit`.
///
/// # Errors
/// `TimedOut` if it was killed; those of starting it and of pipes.
pub fn output(
    mut command: Command,
    start: impl FnOnce(&mut Command) -> io::Result<Child>,
    input: &[u8],
    limit: Duration,
) -> io::Result<Output> {
    reap()?;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let until = Instant::now() + limit;
    let mut child = start(&mut command)?;
    match exchange(&mut child, input, until) {
        Ok((stdout, stderr)) => Ok(Output {
            status: child.wait()?,
            stdout,
            stderr,
        }),
        Err(error) => {
            end(child);
            Err(error)
        }
    }
}

/// Writes the input and reads both outputs, until the program has ended.
fn exchange(child: &mut Child, input: &[u8], until: Instant) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let ended = ended(child)?;
    let mut stdin = child
        .stdin
        .take()
        .map(|pipe| File::from(OwnedFd::from(pipe)));
    let mut stdout = child
        .stdout
        .take()
        .map(|pipe| File::from(OwnedFd::from(pipe)));
    let mut stderr = child
        .stderr
        .take()
        .map(|pipe| File::from(OwnedFd::from(pipe)));
    for pipe in [&stdin, &stdout, &stderr].into_iter().flatten() {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    let (mut printed, mut complaint) = (Vec::new(), Vec::new());
    let mut rest = input;
    loop {
        if rest.is_empty() {
            stdin = None;
        }
        let pipes = [
            (&stdin, PollFlags::OUT),
            (&stdout, PollFlags::IN),
            (&stderr, PollFlags::IN),
        ];
        let mut waited: Vec<PollFd<'_>> = pipes
            .iter()
            .filter_map(|(pipe, interest)| Some(PollFd::new(pipe.as_ref()?, *interest)))
            .collect();
        if waited.is_empty() {
            waited.push(PollFd::new(&ended, PollFlags::IN));
        }
        let is_over = stdin.is_none() && stdout.is_none() && stderr.is_none();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match poll(&mut waited, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) if is_over => return Ok((printed, complaint)),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(pipe) = &mut stdin {
            match pipe.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The program has ended with an error message, which is read below.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => rest = &[],
                Err(error) => return Err(error),
            }
        }
        read(&mut stdout, &mut printed)?;
        read(&mut stderr, &mut complaint)?;
    }
}

/// Reads available data; at the end of the data the pipe is closed.
fn read(pipe: &mut Option<File>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 1 << 16];
    while let Some(file) = pipe {
        match file.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(count) => {
                into.extend(buffer.get(..count).unwrap_or_default());
                if into.len() > OUTPUT_LIMIT {
                    return Err(io::Error::other("it prints more than is read"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A descriptor that becomes readable when the program has ended.
fn ended(child: &Child) -> io::Result<OwnedFd> {
    // The program has not been waited for, so no other process has its id.
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(id, PidfdFlags::empty())?)
}

/// Kills a program, and waits a short time for its end.
fn end(mut child: Child) {
    // An error means that the program has already ended.
    let _ = child.kill();
    let limit = Timespec::try_from(END_LIMIT).ok();
    let is_over = ended(&child).is_ok_and(|ended| {
        poll(
            &mut [PollFd::new(&ended.as_fd(), PollFlags::IN)],
            limit.as_ref(),
        ) == Ok(1)
    });
    if is_over {
        let _ = child.wait();
    } else {
        STUCK
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(child);
    }
}

/// Reaps killed programs that have ended.
fn reap() -> io::Result<()> {
    let mut stuck = STUCK.lock().unwrap_or_else(PoisonError::into_inner);
    stuck.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    match stuck.len() >= STUCK_LIMIT {
        true => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "programs that were killed have not ended yet",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &[u8], limit: Duration) -> io::Result<Output> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        output(command, Command::spawn, input, limit)
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn all_is_written_and_all_is_read() {
        // More than the pipes hold, in both directions.
        let input = vec![b'x'; 1 << 20];
        let result = shell("cat; echo complaint >&2; exit 3", &input, LONG).unwrap();
        assert_eq!(result.status.code(), Some(3));
        assert!(result.stdout == input);
        assert_eq!(result.stderr, b"complaint\n");
        // A program that reads nothing, and a program that closes its output before it ends.
        assert!(shell("exit 0", &input, LONG).unwrap().status.success());
        let result = shell("exec >&- 2>&-; sleep 0.1; exit 5", b"", LONG).unwrap();
        assert_eq!(result.status.code(), Some(5));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_and_reaped() {
        let input = vec![b'x'; 1 << 20];
        for script in [
            "exec sleep 600",
            "exec 0<&-; exec sleep 600",
            "exec >&- 2>&-; exec sleep 600",
        ] {
            let error = shell(&format!("echo $$ >&2; {script}"), &input, SHORT).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}");
        }
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        for id in children.split_whitespace() {
            let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            assert_ne!(name.trim(), "sleep");
        }
    }
}
