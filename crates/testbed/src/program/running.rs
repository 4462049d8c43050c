//! A program that runs.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitStatus};
use std::time::Duration;

use midspan_linux::process::RunningProgram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{LIMIT, LaunchError, wait_until};

/// Names in a program's folder.
pub(super) const CONFIGURATION: &str = "midspan.toml";
pub(super) const LOG: &str = "midspan.log";

/// How long a program may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// A program's folder: temporary, or somebody else's.
#[derive(Debug)]
pub(super) enum Folder {
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

impl Folder {
    pub(super) fn new(kept: Option<PathBuf>) -> Result<Self, LaunchError> {
        match kept {
            Some(path) => Ok(Self::Kept(path)),
            None => tempfile::tempdir()
                .map(Self::Temporary)
                .map_err(LaunchError::io("make a temporary folder")),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }
}

/// At the end, so that lines of the text keep their numbers.
pub(super) fn with_control_socket(text: String, socket: Option<&Path>) -> String {
    match socket {
        Some(socket) => format!("{text}\n[control]\nsocket = \"{}\"\n", socket.display()),
        None => text,
    }
}

/// Puts a file in its place at once, so that no program reads half of it.
pub(super) fn write_in_place(file: &Path, text: &str) -> Result<(), LaunchError> {
    let new = file.with_extension("new");
    fs::write(&new, text).map_err(LaunchError::file(&new))?;
    fs::rename(&new, file).map_err(LaunchError::file(file))
}

/// A program that has ended by itself.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub output: String,
    /// What it wrote to standard error.
    pub log: String,
}

/// A running program; it is ended when this value goes ([`Launch::grace`](super::Launch::grace)).
#[derive(Debug)]
pub struct Program {
    name: String,
    running: RunningProgram,
    /// Stands for the process whatever becomes of its id.
    descriptor: OwnedFd,
    id: u32,
    output: Option<ChildStdout>,
    socket: Option<PathBuf>,
    grace: Option<Duration>,
    log: PathBuf,
    folder: Folder,
}

impl Program {
    pub(super) fn new(
        name: String,
        mut child: Child,
        (folder, log): (Folder, PathBuf),
        socket: Option<PathBuf>,
        grace: Option<Duration>,
    ) -> Result<Self, LaunchError> {
        let id = child.id();
        let output = child.stdout.take();
        let running = RunningProgram::new(child, grace.unwrap_or_default());
        Ok(Self {
            name,
            running,
            descriptor: open(pid_of(id)?)?,
            id,
            output,
            socket,
            grace,
            log,
            folder,
        })
    }

    /// Waits until it is ready: it writes a byte to standard output. Its later output there
    /// is not read.
    ///
    /// # Errors
    /// It ends before, or nothing comes within two minutes.
    pub fn until_ready(&mut self) -> Result<(), LaunchError> {
        let mut byte = [0];
        let is_ready = self.output.take().is_some_and(|mut output| {
            let mut polled = [PollFd::new(&output, PollFlags::IN)];
            let limit = timespec(READY_LIMIT);
            matches!(poll(&mut polled, Some(&limit)), Ok(1))
                && output.read(&mut byte).is_ok_and(|count| count == 1)
        });
        match is_ready {
            true => Ok(()),
            false => {
                // Most likely it is about to end, with the reason in its log.
                let _ = self.wait_for(Duration::from_secs(2));
                self.kill();
                Err(LaunchError::NotReady {
                    program: self.name.clone(),
                    log: self.log().trim().to_owned(),
                })
            }
        }
    }

    /// What it writes to standard output, once.
    pub const fn take_output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    /// Waits for its end by itself, and takes all that it writes meanwhile.
    ///
    /// # Errors
    /// It does not end within [`LIMIT`] after it has closed its standard output.
    pub fn finish(mut self) -> Result<Finished, LaunchError> {
        let mut output = Vec::new();
        if let Some(mut stdout) = self.output.take() {
            let read = stdout.read_to_end(&mut output);
            read.map_err(LaunchError::io("read what a program prints"))?;
        }
        Ok(Finished {
            status: self.wait()?,
            output: String::from_utf8_lossy(&output).into_owned(),
            log: self.log(),
        })
    }

    /// Its process id.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The same.
    ///
    /// # Errors
    /// The kernel gave an id that is none.
    pub fn pid(&self) -> Result<Pid, LaunchError> {
        pid_of(self.id)
    }

    /// Its folder, with its configuration and log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where it takes commands, if that was put into its configuration.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// What it has logged; empty if that went elsewhere.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until a line of the log contains this; all of the log. A thread of its own writes
    /// the log, so a line may come a moment after the event.
    ///
    /// # Errors
    /// It does not come within [`LIMIT`].
    pub fn wait_for_line(&self, text: &str) -> Result<String, LaunchError> {
        let is_there = || self.log().lines().any(|line| line.contains(text));
        match wait_until(LIMIT, is_there) {
            true => Ok(self.log()),
            false => Err(self.missing(format!("a line with \"{text}\""))),
        }
    }

    /// Writes another configuration, for the next time that it reads one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, text: &str) -> Result<(), LaunchError> {
        let file = self.folder.path().join(CONFIGURATION);
        let text = with_control_socket(text.to_owned(), self.socket.as_deref());
        write_in_place(&file, &text)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// It has ended, and somebody has waited for it.
    pub fn signal(&self, signal: Signal) -> Result<(), LaunchError> {
        pidfd_send_signal(&self.descriptor, signal).map_err(LaunchError::io("send a signal"))
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        let child = self.running.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Kills it and all of its process group at once.
    pub fn kill_group(&mut self) {
        self.running.kill_group();
    }

    /// Waits for its end at most so long; `None` if it still runs then.
    pub fn wait_for(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.running.wait_for(limit)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.wait_for(Duration::ZERO).is_none()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end within [`LIMIT`].
    pub fn wait(&mut self) -> Result<ExitStatus, LaunchError> {
        self.wait_within(LIMIT)
    }

    fn wait_within(&mut self, limit: Duration) -> Result<ExitStatus, LaunchError> {
        self.wait_for(limit).ok_or_else(|| LaunchError::StillRuns {
            program: self.name.clone(),
            limit,
            log: self.log(),
        })
    }

    /// Ends it with SIGTERM; returns its log.
    ///
    /// # Errors
    /// It does not end within [`LIMIT`], or ends with a failure.
    pub fn end(self) -> Result<String, LaunchError> {
        self.end_within(LIMIT)
    }

    /// The same, with another limit.
    ///
    /// # Errors
    /// It does not end in time, or ends with a failure.
    pub fn end_within(mut self, limit: Duration) -> Result<String, LaunchError> {
        self.signal(Signal::TERM)?;
        let status = self.wait_within(limit)?;
        if status.success() {
            return Ok(self.log());
        }
        Err(LaunchError::Failed {
            program: self.name.clone(),
            status,
            log: self.log(),
        })
    }

    /// Its only child: of Midspan, the relay. Programs that it runs come and go, so this waits
    /// until there is one.
    ///
    /// # Errors
    /// There is never one alone.
    pub fn only_child(&self) -> Result<Pid, LaunchError> {
        let mut found = None;
        let is_alone = || match self.children()[..] {
            [child] => {
                found = Some(child);
                true
            }
            _ => false,
        };
        let _ = wait_until(LIMIT, is_alone);
        found.ok_or_else(|| self.missing("one child process alone".to_owned()))
    }

    /// That of its children which was started with this argument.
    ///
    /// # Errors
    /// There is none within [`LIMIT`].
    pub fn child_with(&self, argument: &str) -> Result<Pid, LaunchError> {
        let mut found = None;
        let is_there = || {
            found = self.children().into_iter().find(|child| {
                let file = format!("/proc/{}/cmdline", child.as_raw_nonzero());
                fs::read_to_string(file)
                    .is_ok_and(|line| line.split('\0').any(|word| word == argument))
            });
            found.is_some()
        };
        let _ = wait_until(LIMIT, is_there);
        found.ok_or_else(|| self.missing(format!("a child process \"{argument}\"")))
    }

    /// Its child processes at the moment; none once it has ended.
    #[must_use]
    pub fn children(&self) -> Vec<Pid> {
        let id = self.id;
        let file = format!("/proc/{id}/task/{id}/children");
        let text = fs::read_to_string(file).unwrap_or_default();
        let ids = text.split_whitespace().filter_map(|id| id.parse().ok());
        ids.filter_map(Pid::from_raw).collect()
    }

    /// Kills it, unless it has ended, and waits until its children have ended, too. Whether they
    /// have within [`LIMIT`].
    pub fn kill_with_children(&mut self) -> bool {
        // A process that has been waited for has no children, and its id may be another's.
        if !self.is_running() {
            return true;
        }
        let children = self.children();
        let children: Vec<OwnedFd> = children
            .into_iter()
            .filter_map(|id| open(id).ok())
            .collect();
        self.kill();
        children.iter().all(|child| {
            let mut polled = [PollFd::new(child, PollFlags::IN)];
            matches!(poll(&mut polled, Some(&timespec(LIMIT))), Ok(1))
        })
    }

    fn missing(&self, what: String) -> LaunchError {
        LaunchError::Missing {
            program: self.name.clone(),
            what,
            log: self.log(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // With a time of grace, the field's own drop sends SIGTERM first.
        if self.grace.is_none() {
            self.kill();
        }
    }
}

fn open(id: Pid) -> Result<OwnedFd, LaunchError> {
    pidfd_open(id, PidfdFlags::empty()).map_err(LaunchError::io("open a process"))
}

fn pid_of(id: u32) -> Result<Pid, LaunchError> {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| LaunchError::Io {
        action: "use a process id",
        source: std::io::ErrorKind::InvalidInput.into(),
    })
}

fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}
