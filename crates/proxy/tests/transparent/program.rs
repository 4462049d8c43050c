//! The proxy, as a program that a test starts.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::command::{Answer, Request, Status, ask};
use rustix::process::{Pid, Signal, kill_process};

use super::support::{LIMIT, wait_until};

/// A running Midspan, ended by force at the latest when this value goes.
pub struct Midspan {
    pub child: Child,
    directory: tempfile::TempDir,
}

fn with_socket(directory: &Path, text: &str) -> String {
    let socket = directory.join("control");
    format!("[control]\nsocket = \"{}\"\n{text}", socket.display())
}

pub const RELAY: &str = "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n";
pub const TRANSPARENT_LISTENER: &str =
    "[[listener]]\nname = \"test\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n";
pub const TRANSPARENT: &str = "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n\
    [[listener]]\nname = \"test\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n";

impl Midspan {
    pub fn start(gateway: &NetworkNamespace, text: &str) -> Self {
        Self::start_by(gateway, "run", text)
    }

    /// Started by this command of the test program.
    pub fn start_by(gateway: &NetworkNamespace, how: &str, text: &str) -> Self {
        let program = Command::new(std::env::current_exe().unwrap());
        Self::start_with(program, gateway, how, text)
    }

    /// The same, by what begins with a command that runs this program.
    pub fn start_with(command: Command, gateway: &NetworkNamespace, how: &str, text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        Self::start_in(command, gateway, how, text, (directory, log.into()))
    }

    fn start_in(
        mut command: Command,
        gateway: &NetworkNamespace,
        how: &str,
        text: &str,
        (directory, log): (tempfile::TempDir, Stdio),
    ) -> Self {
        let file: PathBuf = directory.path().join("midspan.toml");
        fs::write(&file, with_socket(directory.path(), text)).unwrap();
        command
            .arg(how)
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // A process group of its own, as a service has.
            .process_group(0);
        let child = gateway.spawn(command).unwrap();
        Self { child, directory }
    }

    /// Started, and taking connections.
    pub fn ready(gateway: &NetworkNamespace, text: &str) -> Self {
        Self::ready_by(gateway, "run", text)
    }

    /// The same, started by this command of the test program.
    pub fn ready_by(gateway: &NetworkNamespace, how: &str, text: &str) -> Self {
        Self::start_by(gateway, how, text).until_ready()
    }

    /// The same, with another place for its log.
    pub fn ready_logging_to(gateway: &NetworkNamespace, text: &str, log: Stdio) -> Self {
        let program = Command::new(std::env::current_exe().unwrap());
        let place = (tempfile::tempdir().unwrap(), log);
        Self::start_in(program, gateway, "run", text, place).until_ready()
    }

    /// Waits until it takes connections.
    pub fn until_ready(mut self) -> Self {
        let midspan = &mut self;
        let mut byte = Vec::new();
        let stdout = midspan.child.stdout.take().unwrap();
        stdout.take(1).read_to_end(&mut byte).unwrap();
        assert_eq!(byte, b"\n", "not ready: {}", midspan.log());
        self
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub fn status(&self) -> Status {
        self.ask(&Request::Status).status.unwrap()
    }

    /// Sessions that have ended: nothing of them is still to be noted.
    pub fn ended(&self) -> usize {
        self.log().matches("session ended").count()
    }

    /// Writes another configuration; the answer of a reload.
    pub fn reload(&self, text: &str) -> Answer {
        let text = with_socket(self.directory.path(), text);
        fs::write(self.directory.path().join("midspan.toml"), text).unwrap();
        self.ask(&Request::Reload)
    }

    pub fn ask(&self, request: &Request) -> Answer {
        ask(&self.directory.path().join("control"), request).unwrap()
    }

    pub fn relay(&self) -> Pid {
        let id = self.child.id();
        let file = format!("/proc/{id}/task/{id}/children");
        let mut relay = None;
        wait_until("alone with the relay", || {
            // Programs that the helper runs come and go.
            let children = fs::read_to_string(&file).unwrap_or_default();
            children.split_whitespace().count() == 1
        });
        if let Ok(children) = fs::read_to_string(&file) {
            relay = children.trim().parse().ok().and_then(Pid::from_raw);
        }
        relay.unwrap()
    }

    pub fn helper(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "still running: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it in good order.
    pub fn stop(self) {
        self.end();
    }

    /// The same; what it has logged.
    pub fn end(mut self) -> String {
        kill_process(self.helper(), Signal::TERM).unwrap();
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }
}

impl Drop for Midspan {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of midspan:\n{}", self.log());
        } else {
            crate::tries::assert_no_refused_call(&self.log());
        }
    }
}
