//! A proxy whose configuration can change.

use std::fs::{self, File};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use midspan_proxy::command::{Answer, Request, Status, ask};
use rustix::process::{Pid, Signal, kill_process};

pub const LIMIT: Duration = Duration::from_secs(20);

/// A running proxy, ended by force at the latest when this value goes.
pub struct Proxy {
    pub child: Child,
    directory: tempfile::TempDir,
}

pub const RELAY: &str = "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n";

pub fn listener(name: &str, listen: SocketAddr, to: SocketAddr) -> String {
    format!("[[listener]]\nname = \"{name}\"\nlisten = \"{listen}\"\nto = \"{to}\"\n")
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl Proxy {
    pub fn start(text: &str, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg("run")
            .arg(directory.path().join("midspan.toml"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        write(&directory, text);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let proxy = Self { child, directory };
        let mut byte = Vec::new();
        stdout.take(1).read_to_end(&mut byte).unwrap();
        assert_eq!(byte, b"\n", "not ready: {}", proxy.log());
        proxy
    }

    pub fn ready(text: &str) -> Self {
        Self::start(text, &[])
    }

    /// Writes another configuration.
    pub fn write(&self, text: &str) {
        write(&self.directory, text);
    }

    /// Writes another configuration, asks for it by a signal, and waits until it has been read.
    pub fn reload(&self, text: &str) {
        let before = self.status();
        self.write(text);
        self.signal(Signal::HUP);
        wait_until("reloaded", || {
            let now = self.status();
            now.reloads > before.reloads || now.reload_error != before.reload_error
        });
        let now = self.status();
        assert!(
            now.reload_error.is_none(),
            "{:?}: {}",
            now.reload_error,
            self.log()
        );
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("control")
    }

    pub fn ask(&self, request: &Request) -> Answer {
        ask(&self.socket(), request).unwrap()
    }

    pub fn status(&self) -> Status {
        self.ask(&Request::Status).status.unwrap()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    pub fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
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
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.wait().success(), "{}", self.log());
    }
}

fn write(directory: &tempfile::TempDir, text: &str) {
    let socket = directory.path().join("control");
    let text = format!("[control]\nsocket = \"{}\"\n{text}", socket.display());
    // In place at once, so that nobody reads half of it.
    let new = directory.path().join("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, directory.path().join("midspan.toml")).unwrap();
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log:\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            crate::tries::assert_no_refused_call(&self.log());
        }
    }
}

pub fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

pub fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, LIMIT)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}
