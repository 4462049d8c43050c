//! A running proxy with an admin listener, a client and a server.
#![allow(dead_code, missing_docs)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use midspan_linux::netlink::{Netlink, Prefix};
use midspan_proxy::admin::client;
use rustix::process::{Pid, Signal, kill_process};
use socket2::SockRef;

pub const LIMIT: Duration = Duration::from_secs(20);
pub const ADMIN: &str = "127.0.0.1:9464";
pub const LISTEN: &str = "127.0.0.1:8080";
pub const SERVER: &str = "127.0.0.1:9090";

pub const CONFIGURATION: &str = r#"
[admin]
listen = "127.0.0.1:9464"
[log]
format = "json"
[relay]
threads = 2
pipe_size = "64 KiB"
pipe_memory = "1 MiB"
drain_timeout = "0 s"
[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
[[listener]]
name = "closed"
listen = "127.0.0.1:8081"
to = "127.0.0.1:9091"
[[listener]]
name = "silent"
listen = "127.0.0.1:8082"
to = "192.0.2.9:80"
connect_timeout = "100 ms"
[[listener]]
name = "away"
listen = "127.0.0.1:8083"
to = "203.0.113.9:80"
"#;

/// With a link on which nobody answers.
pub fn set_up_network() {
    let netlink = Netlink::open().unwrap();
    netlink.set_up("lo").unwrap();
    netlink.add_veth("near", "far").unwrap();
    netlink.set_up("near").unwrap();
    netlink.set_up("far").unwrap();
    let address = "192.0.2.1".parse().unwrap();
    let length = 24;
    let prefix = Prefix { address, length };
    netlink.add_address("near", prefix).unwrap();
}

/// A running proxy, ended by force at the latest when this value goes.
pub struct Proxy {
    child: Child,
    pub directory: tempfile::TempDir,
}

impl Proxy {
    pub fn ready(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        Self::ready_with(text, directory, log.into())
    }

    pub fn ready_with(text: &str, directory: tempfile::TempDir, log: Stdio) -> Self {
        let file = directory.path().join("midspan.toml");
        fs::write(&file, text).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("run")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let proxy = Self { child, directory };
        let mut byte = Vec::new();
        stdout.take(1).read_to_end(&mut byte).unwrap();
        assert_eq!(byte, b"\n", "not ready: {}", proxy.log());
        proxy
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The lines of sessions that have ended.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        self.log()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|line: &serde_json::Value| line["message"] == "session ended")
            .collect()
    }

    pub fn terminate(&mut self) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        wait_until("ended", || self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log:\n{}", self.log());
        } else {
            // The relay ends a moment later.
            wait_until("refused", || TcpStream::connect(ADMIN).is_err());
            crate::tries::assert_no_refused_call(&self.log());
        }
    }
}

pub fn admin() -> SocketAddr {
    ADMIN.parse().unwrap()
}

pub fn get(page: &str) -> (u16, String) {
    client::get(admin(), page).unwrap()
}

/// What `/sessions` has of all sessions: a thread that is busy may not answer in time.
pub fn complete(page: &str) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let (status, text) = get(page);
        assert_eq!(status, 200);
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        if answer["complete"] == true {
            return answer;
        }
        assert!(start.elapsed() < LIMIT, "never complete: {answer}");
    }
}

/// The value of one line of the metrics.
pub fn metric(name_with_labels: &str) -> f64 {
    let (status, text) = get("/metrics");
    assert_eq!(status, 200);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name_with_labels)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {name_with_labels} in\n{text}"));
    line.parse().unwrap()
}

pub fn connect(address: &str) -> TcpStream {
    bounded(TcpStream::connect(address).unwrap())
}

pub fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Both ends of a session through the listener "web".
pub fn session(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = connect(LISTEN);
    let mut server = bounded(listener.accept().unwrap().0);
    exchange(&mut client, &mut server);
    (client, server)
}

pub fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    let mut bytes = [0; 4];
    client.write_all(b"ping").unwrap();
    server.read_exact(&mut bytes).unwrap();
    server.write_all(b"pong").unwrap();
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"pong");
}

pub fn close(mut client: TcpStream, mut server: TcpStream) {
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
    drop(server);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

pub fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

/// A connection that the proxy resets, perhaps while the client still waits for it.
pub fn is_reset_at_once(address: &str) {
    if let Ok(stream) = TcpStream::connect(address) {
        is_reset(bounded(stream));
    }
}

/// A connection that the proxy resets.
pub fn is_reset(mut stream: TcpStream) {
    assert!(stream.read_exact(&mut [0; 1]).is_err());
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "not {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
