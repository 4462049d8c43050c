//! The trial of a program: a child that reads what it would inherit, and changes nothing.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use midspan_handover::{WRITTEN, newest_common};
use midspan_linux::process;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::inheritance::Inheritance;
use super::{check_machine, families};
use crate::Error;
use crate::configuration::Configuration;

/// How long the trial may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest answer, in bytes.
const LONGEST_ANSWER: u64 = 64 << 10;

/// The answer of a program that is tried.
#[derive(Debug, Serialize, Deserialize)]
struct TrialAnswer {
    /// Its version.
    version: String,
    /// The versions of the format of sessions that it reads.
    formats: Vec<u32>,
}

/// A program that is being tried.
pub(super) struct Trial {
    program: File,
    child: Child,
    end: OwnedFd,
    answer: PipeReader,
    begun: Instant,
    until: Instant,
}

impl Trial {
    /// Starts the program with these arguments. Its standard input is what it would inherit.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        program: File,
        arguments: &[String],
        inheritance: &Inheritance,
    ) -> io::Result<Self> {
        let (answer, theirs) = io::pipe()?;
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command
            .arg0("midspan")
            .args(arguments)
            .env_clear()
            .stdin(Stdio::from(inheritance.write()?))
            .stdout(Stdio::from(theirs));
        process::end_with_parent_thread(&mut command);
        let mut child = command.spawn()?;
        // The command holds the other end of the pipe.
        drop(command);
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let end = id
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
            .and_then(|id| Ok(pidfd_open(id, PidfdFlags::empty())?))
            .inspect_err(|_: &io::Error| {
                let _ = child.kill();
                let _ = child.wait();
            })?;
        let begun = Instant::now();
        Ok(Self {
            program,
            child,
            end,
            answer,
            begun,
            until: begun + LIMIT,
        })
    }

    /// Readable when the program has ended.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// When it began.
    pub const fn begun(&self) -> Instant {
        self.begun
    }

    /// When it has to have ended.
    pub const fn until(&self) -> Instant {
        self.until
    }

    /// The program, if it can take over; otherwise the reason.
    pub fn finish(mut self) -> Result<File, String> {
        let unable = |error: io::Error| format!("the trial's result is not known: {error}");
        let status = match self.child.try_wait().map_err(unable)? {
            Some(status) => status,
            None => {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(format!(
                    "the program's trial took more than {} s",
                    LIMIT.as_secs()
                ));
            }
        };
        if !status.success() {
            return Err(format!(
                "the program's trial failed ({status}); see the message above"
            ));
        }
        let mut text = Vec::new();
        let answer = &mut self.answer;
        answer
            .take(LONGEST_ANSWER)
            .read_to_end(&mut text)
            .map_err(unable)?;
        let answer: TrialAnswer =
            serde_json::from_slice(&text).map_err(|_| "the program is no Midspan".to_owned())?;
        match newest_common(&answer.formats) {
            Some(_) => Ok(self.program),
            None => Err(format!(
                "Midspan {} reads sessions in the formats {:?}, and this one writes {WRITTEN:?}",
                answer.version, answer.formats
            )),
        }
    }
}

/// The main function of a program that is tried: `midspan upgrade-trial`. Reads what the program would inherit from
/// standard input.
///
/// # Errors
/// The program could not take over.
pub fn trial_main() -> Result<(), Error> {
    let unreadable = Error::system("read the state of the running program");
    let input = io::stdin().as_fd().try_clone_to_owned();
    let state = input.and_then(|input| Inheritance::read(File::from(input)));
    let state = state.map_err(unreadable)?;
    let mut new = Configuration::load(&state.file)?;
    families::leave_out_missing(&mut new)?;
    check_machine(&new)?;
    // After an error, this program would continue with the present configuration; and marks stay as they are.
    state.configuration()?;
    let answer = TrialAnswer {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        formats: WRITTEN.to_vec(),
    };
    let answer = serde_json::to_vec(&answer).map_err(io::Error::from);
    answer
        .and_then(|answer| io::stdout().write_all(&answer))
        .map_err(Error::system("answer the running program"))
}
