//! Configurations, servers and clients.
#![allow(missing_docs)]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use midspan_linux::netlink::Netlink;
pub use midspan_testbed::testing::*;
pub use midspan_testbed::{kernel_test, skip};
use tempfile::TempDir;

pub use crate::common::{Control, metric};

pub const SOCKS: &str = "127.0.0.1:1080";
pub const HTTP: &str = "127.0.0.1:3128";
pub const FORWARD: &str = "127.0.0.1:8080";
/// The address of the tests' servers.
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

/// One listener of each mode whose clients may reach the tests' servers, with the further keys
/// `more`.
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

/// Sets up the network, with a link on which no host answers.
pub fn set_up_network() {
    let netlink = Netlink::open().unwrap();
    netlink.set_up("lo").unwrap();
    netlink.add_veth("near", "far").unwrap();
    netlink.set_up("near").unwrap();
    netlink.set_up("far").unwrap();
    for address in ["192.0.2.1/24", "2001:db8::1/64"] {
        netlink
            .add_address("near", address.parse().unwrap())
            .unwrap();
    }
}

pub fn refusals(reason: &str) -> f64 {
    metric(&format!("midspan_refusals_total{{reason=\"{reason}\"}}"))
}

/// Waits for a count of refusals, because the answer may arrive before the proxy counts it.
pub fn assert_refusals(reason: &str, count: f64) {
    wait_until(reason, || refusals(reason) >= count);
    assert_eq!(refusals(reason), count, "{reason}");
}

/// A client that is connected to the server at [`SERVER`] in this mode.
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

/// Whether the connection ends with a reset after exactly these bytes.
pub fn is_reset_after(mut stream: TcpStream, expected: &[u8]) {
    let mut bytes = Vec::new();
    let error = stream.read_to_end(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(bytes, expected);
}

/// Serves HTTP until the test ends. Each answer contains the first line of the request and the
/// client's address.
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
    // Reads the request's body, because closing a socket with unread data sends a reset, which may
    // overtake the answer.
    let _ = std::io::copy(&mut reader.by_ref().take(to_read), &mut std::io::sink());
    let body = first.trim();
    let length = body.len();
    let _ = write!(
        &stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

/// curl's exit status and output.
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

/// A folder for a file that stands in for /etc/hosts; `None` if this machine permits no other file there.
pub fn folder_for_hosts() -> Option<TempDir> {
    let probe = Command::new("unshare")
        .args(["-m", "mount", "--bind", "/etc/hostname", "/etc/hosts"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    // The resolver reads the file as another user.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    Some(folder)
}
