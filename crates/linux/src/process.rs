//! Starts and ends other programs.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Makes the kernel kill the program when the thread that starts it ends (`PR_SET_PDEATHSIG`), so
/// that a crash leaves no program behind.
pub fn end_with_parent_thread(command: &mut Command) {
    end_with_thread_of(command, rustix::process::getpid());
}

/// Like [`end_with_parent_thread`], with the process that will start the program.
fn end_with_thread_of(command: &mut Command, parent: Pid) {
    // SAFETY: the closure runs between fork and exec and makes only system calls, which are safe
    // after a fork; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before the line above took effect. Then no process reads an
            // error, and the standard library would end this one with a message, as for a fault.
            if rustix::process::getppid() != Some(parent) {
                libc::_exit(1);
            }
            Ok(())
        });
    }
}

/// Like [`end_with_parent_thread`], but called by the program itself, because a change of user has
/// reset this setting.
///
/// # Errors
/// Those of `prctl(2)`; `NotFound` if the parent has already ended.
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

/// Limits the descriptors of the program (`RLIMIT_NOFILE`, getrlimit(2)).
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

/// A started program that is ended when this value is dropped: first by SIGTERM, then by SIGKILL.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    grace: Duration,
}

impl RunningProgram {
    /// Takes a child; when it is ended, it has `grace` to stop after SIGTERM.
    #[must_use]
    pub const fn new(child: Child, grace: Duration) -> Self {
        Self { child, grace }
    }

    /// The child, to read its output or wait for it.
    pub const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal, unless the program has ended.
    pub fn signal(&mut self, signal: Signal) {
        // The child has not been waited for, so no other process has its id.
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), self.pid()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Kills the program and its whole process group at once. The program must have been started as
    /// the leader of a group.
    pub fn kill_group(&mut self) {
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), self.pid()) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }

    /// Waits for the end, at most for this time; `None` if the program still runs then.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_parent_has_ended_is_not_executed() {
        let mut command = Command::new("true");
        end_with_thread_of(&mut command, Pid::INIT);
        let status = command.spawn().unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(1));
        let mut command = Command::new("true");
        end_with_parent_thread(&mut command);
        assert!(command.status().unwrap().success());
    }
}
