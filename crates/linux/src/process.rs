//! Starting and ending other programs.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Lets the kernel kill the program when the thread that starts it ends (`PR_SET_PDEATHSIG`), so
/// that nothing is left behind by a crash.
pub fn end_with_parent_thread(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: the closure runs between fork and exec and makes only two system calls, which are
    // safe after a fork; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before the line above took effect.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(rustix::io::Errno::SRCH.into())
            }
        });
    }
}

/// As [`end_with_parent_thread`], called by the program itself: a change of user has taken that
/// back.
///
/// # Errors
/// Those of `prctl(2)`; `NotFound` where the parent has ended already.
pub fn end_with_parent() -> std::io::Result<()> {
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the line above took effect.
    if rustix::process::getppid() == parent {
        Ok(())
    } else {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

/// This program once more, as a process that works for this one: its standard input is the
/// `connection` to this one, it has no environment, its standard output goes nowhere, and it ends
/// with the thread that starts it. The command holds the connection until it is dropped.
pub fn this_program(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    connection: OwnedFd,
) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("midspan")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::from(connection))
        .stdout(Stdio::null());
    end_with_parent_thread(&mut command);
    command
}

/// Lets the program open at most so many descriptors (`RLIMIT_NOFILE`, getrlimit(2)).
pub fn limit_open_files(command: &mut Command, limit: u64) {
    // SAFETY: the closure runs between fork and exec and makes one system call, which is safe
    // after a fork; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            let limits = rustix::process::Rlimit {
                current: Some(limit),
                maximum: Some(limit),
            };
            Ok(rustix::process::setrlimit(
                rustix::process::Resource::Nofile,
                limits,
            )?)
        });
    }
}

/// A started program that is ended when this value goes: first asked, then forced.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    grace: Duration,
}

impl RunningProgram {
    /// Takes over a child; at the end it has `grace` to stop after SIGTERM.
    #[must_use]
    pub const fn new(child: Child, grace: Duration) -> Self {
        Self { child, grace }
    }

    /// The child, to read its output or wait for it.
    pub const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal; nothing happens if the program has ended.
    pub fn signal(&mut self, signal: Signal) {
        // The child has not been waited for, so its process id still is its own.
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), self.pid()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Kills it and all of its process group at once; it must have been started as the leader of
    /// a group of its own.
    pub fn kill_group(&mut self) {
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), self.pid()) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }

    /// Waits for the end at most so long; `None` if it still runs then.
    pub fn wait_for(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if start.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.wait_for(self.grace).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
