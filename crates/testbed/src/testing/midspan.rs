//! The proxy, as a program that a test starts.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::ExitStatus;

use midspan_linux::namespace::NetworkNamespace;
use rustix::process::{Pid, Signal};

use super::done;
use crate::program::{Launch, Program};

/// A running Midspan: the command `run` of the test program, unless another is named.
///
/// It is killed when this value goes, and its relay has then ended, too. The test fails if the log
/// reports a system call that a sandbox has refused. If the test fails for another reason, the
/// log is printed.
#[derive(Debug)]
pub struct Midspan {
    program: Program,
}

impl Midspan {
    /// In a namespace, and ready.
    #[track_caller]
    #[must_use]
    pub fn ready(namespace: &NetworkNamespace, text: &str) -> Self {
        Self::ready_by(namespace, "run", text)
    }

    /// The same, by another command of the test program.
    #[track_caller]
    #[must_use]
    pub fn ready_by(namespace: &NetworkNamespace, command: &str, text: &str) -> Self {
        Self::of(
            Launch::this_program(command)
                .configuration(text)
                .inside(namespace),
        )
    }

    /// In a namespace, and perhaps not yet ready.
    #[track_caller]
    #[must_use]
    pub fn start(namespace: &NetworkNamespace, text: &str) -> Self {
        Self::started(
            Launch::this_program("run")
                .configuration(text)
                .inside(namespace),
        )
    }

    /// In the test's own namespace, and ready.
    #[track_caller]
    #[must_use]
    pub fn here(text: &str) -> Self {
        Self::of(Launch::this_program("run").configuration(text))
    }

    /// Started as described by `launch`, and ready.
    #[track_caller]
    #[must_use]
    pub fn of(launch: Launch<'_>) -> Self {
        Self::started(launch).until_ready()
    }

    /// Started as described by `launch`, and perhaps not yet ready.
    #[track_caller]
    #[must_use]
    pub fn started(launch: Launch<'_>) -> Self {
        let program = done(launch.start());
        Self { program }
    }

    /// Waits until it is ready.
    #[track_caller]
    #[must_use]
    pub fn until_ready(mut self) -> Self {
        done(self.program.until_ready());
        self
    }

    /// The helper's process id.
    #[must_use]
    pub fn helper(&self) -> Pid {
        done(self.program.pid())
    }

    /// The relay's process id: the helper's only child.
    #[track_caller]
    pub fn relay(&self) -> Pid {
        done(self.program.only_child())
    }

    /// Where it takes commands.
    #[track_caller]
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.program.socket().unwrap().to_owned()
    }

    /// Sends the helper a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        done(self.program.signal(signal));
    }

    /// Writes another configuration.
    #[track_caller]
    pub fn write(&self, text: &str) {
        done(self.program.write(text));
    }

    /// Waits until a line of the log contains this; all of the log.
    #[track_caller]
    pub fn wait_for_line(&self, text: &str) -> String {
        done(self.program.wait_for_line(text))
    }

    /// Waits for the helper's end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        done(self.program.wait())
    }

    /// Ends it with SIGTERM; its exit status must be success.
    #[track_caller]
    pub fn stop(self) {
        self.end();
    }

    /// The same; what it has logged.
    #[track_caller]
    pub fn end(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }
}

impl Deref for Midspan {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Midspan {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl Drop for Midspan {
    fn drop(&mut self) {
        let has_ended = self.program.kill_with_children();
        if std::thread::panicking() {
            eprintln!("log of Midspan:\n{}", self.log());
        } else {
            assert!(has_ended, "the relay outlives its helper: {}", self.log());
            assert_no_refused_call(&self.log());
        }
    }
}

/// Fails if the log reports a system call that a sandbox has refused: either the call is missing on
/// the list of calls, or it should not be made.
pub fn assert_no_refused_call(log: &str) {
    let refused: Vec<&str> = (log.lines())
        .filter(|line| line.contains("sandbox") && line.contains("has refused"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
