//! Child processes: this program runs a second time as a process that gives up rights and works for its
//! parent.
//!
//! A pair of `SOCK_SEQPACKET` sockets connects parent and child. The child has one end as its standard input.
//! The child's environment contains only what its parent adds. The kernel kills the child when the thread
//! that has started it ends.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use midspan_linux::capability::{self, CapabilityError};
use midspan_linux::{descriptor_passing, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_type};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use thiserror::Error;

use crate::user::{NotAUser, User};

/// The user that the child is to become.
const USER_VARIABLE: &str = "MIDSPAN_RELAY_USER";

/// How long the child may leave a message unread before the next.
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// How long the end of a killed child may take.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// How often the end is looked for at least.
const WAIT_STEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A child could not be started or ended.
#[derive(Debug, Error)]
pub enum ChildError {
    /// There is no connection for it.
    #[error("cannot open a socket pair: {0}")]
    Connection(#[source] io::Error),
    /// It does not start.
    #[error("cannot start {name} (/proc/self/exe): {source}")]
    Start {
        /// Its name.
        name: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// It cannot be watched or waited for.
    #[error("cannot wait for {name}: {source}")]
    Wait {
        /// Its name.
        name: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel does not let it go.
    #[error("{0} cannot be ended: it waits in the kernel")]
    NotEnded(&'static str),
}

/// A child and the connection to it. It is killed when this value goes.
#[derive(Debug)]
pub struct ChildProcess {
    name: &'static str,
    id: Pid,
    connection: OwnedFd,
    /// Readable when the process has ended.
    end: OwnedFd,
    /// How it has ended, once it was waited for. Then the id may belong to another process.
    status: Option<ExitStatus>,
}

impl ChildProcess {
    /// Starts this program with these arguments. The child is to [become](become_user) the `user`;
    /// `prepare` may add to its environment. `name` is for errors, such as "the relay process".
    ///
    /// # Errors
    /// See [`ChildError`].
    pub fn start(
        name: &'static str,
        arguments: &[String],
        user: Option<User>,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self, ChildError> {
        let (connection, theirs) = descriptor_passing::pair().map_err(ChildError::Connection)?;
        // A child that hangs must not hang its parent.
        set_socket_timeout(&connection, Timeout::Send, Some(SEND_LIMIT))
            .map_err(|error| ChildError::Connection(error.into()))?;
        let mut command = this_program(arguments, theirs);
        if let Some(user) = user {
            command.env(USER_VARIABLE, user.to_string());
        }
        prepare(&mut command);
        let mut child = command
            .spawn()
            .map_err(|source| ChildError::Start { name, source })?;
        // The command holds the other end of the connection.
        drop(command);
        Self::adopt(name, child.id(), connection).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })
    }

    /// A child of this process that this program has not started: it was started before this process executed
    /// this program. The caller has the connection to it.
    ///
    /// # Errors
    /// There is no such child.
    pub fn adopt(name: &'static str, id: u32, connection: OwnedFd) -> Result<Self, ChildError> {
        let open = || -> io::Result<(Pid, OwnedFd)> {
            // The child has not been waited for, so the id still is its own.
            let id = i32::try_from(id).ok().and_then(Pid::from_raw);
            let id = id.ok_or(io::ErrorKind::InvalidInput)?;
            Ok((id, pidfd_open(id, PidfdFlags::empty())?))
        };
        let (id, end) = open().map_err(|source| ChildError::Wait { name, source })?;
        Ok(Self {
            name,
            id,
            connection,
            end,
            status: None,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id.as_raw_pid().cast_unsigned()
    }

    /// The connection: readable when the child has sent something, or is gone.
    #[must_use]
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Readable when the process has ended.
    #[must_use]
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// How the process has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.try_wait().ok().flatten()
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let waited = waitpid(Some(self.id), WaitOptions::NOHANG)?;
            self.status = waited.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        }
        Ok(self.status)
    }

    /// Waits for the end, which is about to come; forces it after `limit`.
    ///
    /// # Errors
    /// See [`ChildError`].
    pub fn finish(&mut self, limit: Timespec) -> Result<ExitStatus, ChildError> {
        let mut descriptors = [PollFd::new(&self.end, PollFlags::IN)];
        match poll(&mut descriptors, Some(&limit)) {
            Ok(ready) if ready > 0 => self.wait(),
            _ => self.kill(),
        }
    }

    /// Ends the process at once.
    ///
    /// # Errors
    /// See [`ChildError`].
    pub fn kill(&mut self) -> Result<ExitStatus, ChildError> {
        // An error means that it has ended already.
        let _ = pidfd_send_signal(&self.end, Signal::KILL);
        self.wait()
    }

    fn wait(&mut self) -> Result<ExitStatus, ChildError> {
        // A thread that waits in the kernel keeps its process; it must not keep the parent.
        let limit = Instant::now() + KILL_LIMIT;
        loop {
            match self.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() >= limit => {
                    return Err(ChildError::NotEnded(self.name));
                }
                Ok(None) => {}
                Err(source) => {
                    let name = self.name;
                    return Err(ChildError::Wait { name, source });
                }
            }
            let mut descriptors = [PollFd::new(&self.end, PollFlags::IN)];
            let _ = poll(&mut descriptors, Some(&WAIT_STEP));
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// This program once more: its standard input is the `connection`, it has no environment, its
/// standard output goes nowhere, and it ends with the thread that starts it. The command holds the
/// connection until it is dropped.
pub fn this_program(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    connection: OwnedFd,
) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("midspan")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::from(connection))
        .stdout(Stdio::null());
    process::end_with_parent_thread(&mut command);
    command
}

/// The process was started by hand: its standard input is no connection to a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this process is started by another one, not by hand")]
pub struct NoParent;

/// In the child: the connection to its parent.
///
/// # Errors
/// There is no parent.
pub fn parent() -> Result<OwnedFd, NoParent> {
    let input = io::stdin();
    if socket_type(&input) != Ok(SocketType::SEQPACKET) {
        return Err(NoParent);
    }
    input.as_fd().try_clone_to_owned().map_err(|_| NoParent)
}

/// In the child: a child of its own is to become the same user.
pub fn pass_user_on(command: &mut Command) {
    if let Some(user) = std::env::var_os(USER_VARIABLE) {
        command.env(USER_VARIABLE, user);
    }
}

/// In the child: signals that reach every process of a terminal or service are its parent's to act
/// on.
///
/// # Errors
/// Those of `sigaction(2)`.
pub fn ignore_signals() -> io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// In the child: leaves the terminal, which then can neither end nor stop it.
///
/// # Errors
/// Those of `setsid(2)`.
pub fn leave_terminal() -> io::Result<()> {
    match rustix::process::setsid() {
        // The process already leads a group.
        Ok(_) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A child could not become its user.
#[derive(Debug, Error)]
pub enum UserError {
    /// The user cannot be changed.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The parent has named something else than a user.
    #[error("the environment variable {USER_VARIABLE} is not a user and a group")]
    Name(#[from] NotAUser),
    /// The parent has ended meanwhile.
    #[error("cannot follow the helper's end: {0}")]
    Parent(#[from] io::Error),
}

/// In the child, while it has one thread: becomes the user that its parent has named, if it has
/// named one, and still ends with its parent.
///
/// # Errors
/// See [`UserError`].
pub fn become_user() -> Result<(), UserError> {
    let Ok(user) = std::env::var(USER_VARIABLE) else {
        return Ok(());
    };
    let User { id, group } = user.parse()?;
    capability::become_user(id, group)?;
    // A change of user has taken this back.
    Ok(process::end_with_parent()?)
}
