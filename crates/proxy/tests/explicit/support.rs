//! A running proxy, servers and clients.
#![allow(missing_docs)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use midspan_linux::netlink::{Netlink, Prefix};
use midspan_proxy::admin::client;
use rustix::process::{Pid, Signal, kill_process};

pub const LIMIT: Duration = Duration::from_secs(20);
pub const ADMIN: &str = "127.0.0.1:9464";
pub const SOCKS: &str = "127.0.0.1:1080";
pub const HTTP: &str = "127.0.0.1:3128";
pub const FORWARD: &str = "127.0.0.1:8080";
/// Where the tests' servers listen.
pub const SERVER: &str = "127.0.0.1:9090";

const HEAD: &str = r#"
[admin]
listen = "127.0.0.1:9464"
[log]
format = "json"
[relay]
threads = 2
drain_timeout = "0 s"
"#;

/// One listener of each mode that may go to the tests' servers, with these keys more.
pub fn each_mode(more: &str) -> String {
    let allow = r#"access = [{ allow = ["127.0.0.0/8", "::1", "192.0.2.0/24", "2001:db8::/64"] }]"#;
    format!(
        "{HEAD}
[[listener]]
name = \"socks\"
mode = \"socks5\"
{allow}
{more}
[[listener]]
name = \"http\"
mode = \"http\"
{allow}
{more}
[[listener]]
name = \"forward\"
listen = \"127.0.0.1:8080\"
to = \"127.0.0.1:9090\"
"
    )
}

pub fn with_head(listeners: &str) -> String {
    format!("{HEAD}{listeners}")
}

/// With a link on which nobody answers.
pub fn set_up_network() {
    let netlink = Netlink::open().unwrap();
    netlink.set_up("lo").unwrap();
    netlink.add_veth("near", "far").unwrap();
    netlink.set_up("near").unwrap();
    netlink.set_up("far").unwrap();
    for (address, length) in [("192.0.2.1", 24), ("2001:db8::1", 64)] {
        let address = address.parse().unwrap();
        let prefix = Prefix { address, length };
        netlink.add_address("near", prefix).unwrap();
    }
}

/// A running proxy, ended by force at the latest when this value goes.
pub struct Proxy {
    child: Child,
    directory: tempfile::TempDir,
}

impl Proxy {
    pub fn ready(text: &str) -> Self {
        Self::ready_by(text, &[])
    }

    /// With this as `/etc/hosts`.
    pub fn ready_with_hosts(text: &str, hosts: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), readable()).unwrap();
        let path = directory.path().join("hosts");
        fs::write(&path, hosts).unwrap();
        Self::ready_with(text, &path, "/etc/hosts")
    }

    /// With a file in the place of one of the system.
    pub fn ready_with(text: &str, file: &Path, place: &str) -> Self {
        Self::ready_by(text, &[(file, place)])
    }

    /// With these files in the places of others.
    pub fn ready_by(text: &str, files: &[(&Path, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let file = directory.path().join("midspan.toml");
        fs::write(&file, text).unwrap();
        let program = std::env::current_exe().unwrap();
        let script = "while [ $# -gt 2 ]; do mount --bind \"$1\" \"$2\" || exit 1; shift 2; done; \
                      exec \"$1\" run \"$2\"";
        let mut command = match files {
            [] => {
                let mut command = Command::new(program);
                command.arg("run").arg(&file);
                command
            }
            _ => {
                let mut command = Command::new("unshare");
                command.args(["-m", "sh", "-c", script, "sh"]);
                for (file, place) in files {
                    command.arg(file).arg(place);
                }
                command.arg(program).arg(&file);
                command
            }
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let proxy = Self { child, directory };
        let mut byte = Vec::new();
        stdout.take(1).read_to_end(&mut byte).unwrap();
        assert_eq!(byte, b"\n", "not ready: {}", proxy.log());
        proxy
    }

    pub fn id(&self) -> u32 {
        self.child.id()
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

    pub fn reload(&self, text: &str) {
        let before = self.log().matches("\"reloaded\"").count();
        fs::write(self.directory.path().join("midspan.toml"), text).unwrap();
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, Signal::HUP).unwrap();
        wait_until("reloaded", || {
            self.log().matches("\"reloaded\"").count() > before
        });
    }
}

fn readable() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o755)
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

/// The value of one line of the metrics.
pub fn metric(name_with_labels: &str) -> f64 {
    let address: SocketAddr = ADMIN.parse().unwrap();
    let (status, text) = client::get(address, "/metrics").unwrap();
    assert_eq!(status, 200);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name_with_labels)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {name_with_labels} in\n{text}"));
    line.parse().unwrap()
}

pub fn refusals(reason: &str) -> f64 {
    metric(&format!("midspan_refusals_total{{reason=\"{reason}\"}}"))
}

/// A refusal may be told before it is counted.
pub fn assert_refusals(reason: &str, count: f64) {
    wait_until(reason, || refusals(reason) >= count);
    assert_eq!(refusals(reason), count, "{reason}");
}

pub fn connect(address: &str) -> TcpStream {
    bounded(TcpStream::connect(address).unwrap())
}

pub fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// A client that is through to the server at [`SERVER`], by each mode.
pub fn through(mode: &str) -> TcpStream {
    match mode {
        "socks5" => {
            let mut client = connect(SOCKS);
            client.write_all(b"\x05\x01\x00").unwrap();
            assert_eq!(exactly::<2>(&mut client), *b"\x05\x00");
            client
                .write_all(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x23\x82")
                .unwrap();
            let reply: [u8; 10] = exactly(&mut client);
            assert_eq!(reply[..4], *b"\x05\x00\x00\x01");
            client
        }
        "http" => {
            let mut client = connect(HTTP);
            client
                .write_all(b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\nHost: x\r\n\r\n")
                .unwrap();
            let reply: [u8; 39] = exactly(&mut client);
            assert_eq!(&reply, b"HTTP/1.1 200 Connection established\r\n\r\n");
            client
        }
        _ => connect(FORWARD),
    }
}

pub const MODES: [&str; 3] = ["socks5", "http", "forward"];

pub fn exactly<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// All that comes until the end.
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Whether it ends by a reset, after these bytes.
pub fn is_reset_after(mut stream: TcpStream, expected: &[u8]) {
    let mut bytes = Vec::new();
    let error = stream.read_to_end(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(bytes, expected);
}

/// Answers requests of HTTP, each with the first line and the address it came from, until the
/// test ends.
pub fn serve_http(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_http(bounded(stream)));
        }
    });
}

fn answer_http(stream: TcpStream) {
    let mut reader = BufReader::new(&stream);
    let mut first = String::new();
    let _ = reader.read_line(&mut first);
    let mut line = String::from("x");
    let mut to_read = 0;
    while !line.trim().is_empty() {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(length) = lower.strip_prefix("content-length:") {
            to_read = length.trim().parse().unwrap_or(0);
        }
    }
    // A close with bytes unread is a reset, which may overtake the answer.
    let _ = std::io::copy(&mut reader.by_ref().take(to_read), &mut std::io::sink());
    let body = first.trim();
    let length = body.len();
    let _ = write!(
        &stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

/// What curl prints, and its exit code.
pub fn curl(arguments: &[&str]) -> (i32, String) {
    let output = Command::new("curl")
        .args(["-q", "-sS", "--noproxy", "", "--max-time", "20"])
        .args(arguments)
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .env_remove("all_proxy")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

pub fn has(program: &str) -> bool {
    let found = Command::new(program)
        .arg(if program == "haproxy" {
            "-v"
        } else {
            "--version"
        })
        .output();
    found.is_ok()
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "not {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
