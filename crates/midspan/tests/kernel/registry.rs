//! `midspan overlay follow` with a real etcd, which is stopped, killed, and replaced by an empty one.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::network::Node;
use midspan_testbed::program::{Launch, Program};
use midspan_testbed::testing::{stop_process, wait_within};
use midspan_testbed::{kernel_test, skip};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::MIDSPAN;

const ETCD: &str = "/usr/bin/etcd";
const ADDRESS: &str = "127.0.0.1:2379";
const URL: &str = "http://127.0.0.1:2379";
const PREFIX: &str = "/midspan/nodes/";
/// Nothing here is a measurement: a busy machine may need long.
const LIMIT: Duration = Duration::from_secs(60);

struct Registry {
    namespace: NetworkNamespace,
    folder: TempDir,
}

impl Registry {
    fn new() -> Self {
        Self {
            namespace: Node::host("registry").make().unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// An etcd with the data of the last one of this name.
    fn etcd(&self, name: &str) -> Program {
        let etcd = Launch::new(ETCD)
            .args([
                "--data-dir",
                self.folder.path().join(name).to_str().unwrap(),
            ])
            .args(["--listen-client-urls", URL, "--advertise-client-urls", URL])
            .args(["--listen-peer-urls", "http://127.0.0.1:2380"])
            .inside(&self.namespace)
            .start()
            .unwrap();
        wait_within(LIMIT, "etcd answers", || {
            self.post("/v3/kv/range", "{\"key\":\"YQ==\"}").is_some()
        });
        etcd
    }

    fn members(&self) -> PathBuf {
        self.folder.path().join("members.toml")
    }

    fn follow(&self) -> Program {
        Launch::new(MIDSPAN)
            .args([
                "overlay",
                "follow",
                "--etcd",
                URL,
                "--interval",
                "1 s",
                "--members",
            ])
            .arg(self.members())
            .inside(&self.namespace)
            .start()
            .unwrap()
    }

    /// The answer of etcd; `None` if it gives none with status 200.
    fn post(&self, path: &str, body: &str) -> Option<String> {
        let (path, body) = (path.to_owned(), body.to_owned());
        let answer = self.namespace.run(move || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(ADDRESS)?;
            stream.set_read_timeout(Some(LIMIT))?;
            let length = body.len();
            write!(
                stream,
                "POST {path} HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        let answer = answer.unwrap().ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(answer)
    }

    fn put(&self, node: &str, row: &str) {
        let (key, value) = (base64(&format!("{PREFIX}{node}")), base64(row));
        let body = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
        assert!(self.post("/v3/kv/put", &body).is_some());
    }

    fn delete(&self, node: &str) {
        let key = base64(&format!("{PREFIX}{node}"));
        let body = format!("{{\"key\":\"{key}\"}}");
        assert!(self.post("/v3/kv/deleterange", &body).is_some());
    }

    #[track_caller]
    fn wait_for(&self, present: &[&str], absent: &[&str]) {
        let what = format!("{present:?} without {absent:?}");
        wait_within(LIMIT, &what, || {
            let text = fs::read_to_string(self.members()).unwrap_or_default();
            let has = |part: &&str| text.contains(*part);
            present.iter().all(has) && !absent.iter().any(has)
        });
    }
}

/// RFC 4648 §4.
fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for piece in text.as_bytes().chunks(3) {
        let byte = |index: usize| u32::from(*piece.get(index).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = LETTERS[(bits >> shift) as usize & 63];
            encoded.push(if index <= piece.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    encoded
}

fn row(address: &str) -> String {
    format!("address = \"{address}:7704\"\nsecurity = \"network\"\n")
}

fn wait_for_line(program: &Program, text: &str) {
    wait_within(LIMIT, text, || program.log().contains(text));
}

#[kernel_test]
fn members_follow_etcd_and_survive_it() {
    if !Path::new(ETCD).exists() {
        return skip(&format!("there is no {ETCD} (package etcd-server)"));
    }
    let registry = Registry::new();
    let mut etcd = registry.etcd("first");
    let follow = registry.follow();
    // An empty registry makes no file.
    wait_for_line(&follow, "no good entry");
    assert!(!registry.members().exists());
    registry.put("ams", &row("10.2.0.1"));
    registry.put("fra", &row("10.2.0.2"));
    registry.wait_for(&["10.2.0.1", "10.2.0.2"], &[]);
    // A wrong entry leaves its node, and the others are used.
    registry.put("fra", "nonsense");
    registry.put("sin", &row("10.2.0.3"));
    registry.wait_for(&["10.2.0.1", "10.2.0.2", "10.2.0.3"], &["nonsense"]);
    wait_for_line(&follow, "node fra stays as it was");
    // Changed and removed on purpose.
    registry.put("ams", &row("10.2.0.11"));
    registry.delete("fra");
    registry.wait_for(&["10.2.0.11", "10.2.0.3"], &["10.2.0.1:", "10.2.0.2:"]);
    let before = fs::read_to_string(registry.members()).unwrap();
    // A registry that hangs.
    stop_process(etcd.pid().unwrap());
    wait_for_line(&follow, "the members stay as they are");
    etcd.signal(Signal::CONT).unwrap();
    registry.put("par", &row("10.2.0.4"));
    registry.wait_for(&["10.2.0.11", "10.2.0.3", "10.2.0.4"], &[]);
    // One that is away, and one that begins again without data.
    etcd.kill();
    etcd.wait().unwrap();
    wait_for_line(&follow, "no connection");
    let with_par = fs::read_to_string(registry.members()).unwrap();
    assert!(with_par.len() > before.len());
    let mut other = registry.etcd("second");
    registry.put("fra", &row("10.2.0.22"));
    registry.wait_for(&["10.2.0.11", "10.2.0.3", "10.2.0.4", "10.2.0.22"], &[]);
    wait_for_line(&follow, "began again");
    // This command too may begin again.
    drop(follow);
    let follow = registry.follow();
    wait_for_line(&follow, "began again");
    registry.put("fra", &row("10.2.0.23"));
    registry.wait_for(&["10.2.0.11", "10.2.0.3", "10.2.0.4", "10.2.0.23"], &[]);
    other.kill();
    other.wait().unwrap();
}

#[kernel_test]
fn one_look_has_a_status_and_leaves_a_good_file() {
    let registry = Registry::new();
    fs::write(registry.members(), "[[node]]\nname = \"hand\"\n").unwrap();
    let finished = Launch::new(MIDSPAN)
        .args(["overlay", "follow", "--etcd", URL, "--once", "--members"])
        .arg(registry.members())
        .inside(&registry.namespace)
        .finish()
        .unwrap();
    assert_eq!(finished.status.code(), Some(1));
    let text = fs::read_to_string(registry.members()).unwrap();
    assert!(text.contains("hand"));
}
