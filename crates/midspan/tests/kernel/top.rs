//! `midspan top` in a terminal, with a running `midspan run` and real traffic.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{self, MIDSPAN, midspan};
use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::network::Node;
use midspan_testbed::program::{Launch, Program};
use midspan_testbed::testing::wait_until;
use midspan_testbed::{kernel_test, skip};
use rustix::process::{Pid, Signal, kill_process};

const CONFIGURATION: &str = r#"
[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
"#;

const LINES: u16 = 24;
const COLUMNS: u16 = 80;

/// A proxy, and a download that continues until its session is reset.
struct Traffic {
    namespace: NetworkNamespace,
    proxy: Program,
    download: std::thread::JoinHandle<u64>,
}

fn traffic() -> Traffic {
    let namespace = Node::host("top").make().unwrap();
    let launch = Launch::midspan(MIDSPAN).configuration(CONFIGURATION);
    let proxy = launch.inside(&namespace).ready().unwrap();
    let (mut client, mut server) = namespace
        .run(|| {
            let listener = TcpListener::bind("127.0.0.1:9090").unwrap();
            let client = TcpStream::connect("127.0.0.1:8080").unwrap();
            (client, listener.accept().unwrap().0)
        })
        .unwrap();
    std::thread::spawn(move || {
        let data = [0; 10_000];
        while server.write_all(&data).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let download = std::thread::spawn(move || {
        let mut data = [0; 10_000];
        let mut bytes = 0;
        while let Ok(count @ 1..) = client.read(&mut data) {
            bytes += count as u64;
        }
        bytes
    });
    Traffic {
        namespace,
        proxy,
        download,
    }
}

/// A program in a terminal of its own.
struct Screen {
    program: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Screen {
    /// The terminal is made by script(1).
    fn open(namespace: &NetworkNamespace, command: &str) -> Self {
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--return", "--flush", "--command"])
            .arg(format!("stty rows {LINES} cols {COLUMNS}; {command}"))
            .arg("/dev/null")
            .env("TERM", "xterm-256color")
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut program = namespace.spawn(script).unwrap();
        let mut output = program.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(LINES, COLUMNS, 0)));
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            keys: program.stdin.take().unwrap(),
            program,
            screen,
        }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the screen contains all of these texts.
    #[track_caller]
    fn shows(&self, texts: &[&str]) {
        let mut last = String::new();
        let is_shown = || {
            last = self.text();
            texts.iter().all(|text| last.contains(text))
        };
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("shown", is_shown);
        }));
        assert!(waited.is_ok(), "not all of {texts:?} in:\n{last}");
    }
}

fn has_script() -> bool {
    let found = Command::new("script").arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

#[kernel_test]
fn a_terminal_shows_real_traffic() {
    if !has_script() {
        return skip("there is no script(1)");
    }
    let traffic = traffic();
    let folder = tempfile::tempdir().unwrap();
    let socket = traffic.proxy.socket().unwrap().display().to_string();
    let command = format!(
        "cd {}; exec {MIDSPAN} top --interval 1 --socket {socket}",
        folder.path().display()
    );
    let mut screen = Screen::open(&traffic.namespace, &command);
    screen.shows(&[
        "RUNNING",
        "1 clients",
        "127.0.0.1",
        "Mbit/s",
        "HELD BY",
        "[q]",
    ]);
    // The sessions of the client, and one of them.
    screen.press("\r");
    screen.shows(&["1 sessions of 127.0.0.1", "127.0.0.1:9090"]);
    screen.press("\r");
    screen.shows(&["client leg  rtt", "server leg  rtt", "held by:"]);
    screen.press("x");
    screen.shows(&["split by listener web", "handshake"]);
    // A copy of the session's JSON, in a file of the current directory.
    screen.press("y");
    screen.shows(&["the JSON of session 1 is in session-1-0.json"]);
    let copy = std::fs::read_to_string(folder.path().join("session-1-0.json")).unwrap();
    let copy: serde_json::Value = serde_json::from_str(&copy).unwrap();
    assert_eq!((&copy["id"], &copy["listener"]), (&1.into(), &"web".into()));
    // A filter that fits no client, and back.
    screen.press("\u{1b}");
    screen.press("c/10.\r");
    screen.shows(&["0 clients", "filter: 10.0.0.0/8"]);
    screen.press("/");
    screen.shows(&["only clients of: 10.0.0.0/8"]);
    screen.press(&"\u{7f}".repeat(10));
    screen.press("\r");
    screen.shows(&["1 clients"]);
    // Nothing is intercepted here, so there is nothing to bypass, and the reason is shown.
    screen.press("b");
    screen.shows(&["y: yes"]);
    screen.press("y");
    screen.shows(&["no listener is transparent"]);
    // The session is reset after a yes, not before.
    screen.press("s");
    screen.shows(&["1 sessions", "127.0.0.1:9090"]);
    screen.press("K");
    screen.shows(&["reset session 1? y: yes"]);
    screen.press("n");
    assert!(!traffic.download.is_finished());
    screen.press("K");
    screen.shows(&["reset session 1? y: yes"]);
    screen.press("y");
    assert!(traffic.download.join().unwrap() > 0);
    screen.shows(&["0 sessions"]);
    screen.press("l");
    screen.shows(&["1 listeners", "web", "OPENED"]);
    screen.press("e");
    screen.shows(&["1 sessions that have ended", "127.0.0.1:9090", "kicked"]);
    screen.press("q");
    assert!(screen.program.wait().unwrap().success());
}

/// A signal ends the view as it ends other programs, and the terminal is as before.
#[kernel_test]
fn a_signal_restores_the_terminal() {
    if !has_script() {
        return skip("there is no script(1)");
    }
    let traffic = traffic();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let socket = traffic.proxy.socket().unwrap().display().to_string();
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap_or_default();
    for signal in [Signal::TERM, Signal::HUP] {
        let command = format!(
            "sh -c 'echo $$ > {pid}; exec {MIDSPAN} top --socket {socket}'; echo $? > {status}; \
             stty -a > {after}",
            pid = file("pid").display(),
            status = file("status").display(),
            after = file("after").display(),
        );
        let mut screen = Screen::open(&traffic.namespace, &command);
        screen.shows(&["RUNNING", "[q]"]);
        assert!(screen.screen.lock().unwrap().screen().alternate_screen());
        let pid: i32 = read("pid").trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        screen.program.wait().unwrap();
        let status = 128 + signal.as_raw();
        assert_eq!(read("status").trim(), status.to_string());
        let after = read("after");
        let has = |mode: &str| after.split([' ', ';', '\n']).any(|word| word == mode);
        assert!(has("icanon") && has("echo") && has("isig"), "{after}");
        wait_until("restored", || {
            let screen = screen.screen.lock().unwrap();
            let screen = screen.screen();
            !screen.alternate_screen() && !screen.hide_cursor()
        });
    }
}

/// Without a terminal: as text, and as JSON.
#[kernel_test]
fn the_view_is_printed() {
    let traffic = traffic();
    let socket = traffic.proxy.socket().unwrap().to_str().unwrap();
    let once = midspan(&["top", "--once", "--by", "session", "--socket", socket]);
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(once.status.success(), "{text}");
    assert!(
        ["RUNNING", "1 sessions", "127.0.0.1:9090"]
            .iter()
            .all(|part| text.contains(part)),
        "{text}"
    );
    assert!(text.contains("Mbit/s"), "{text}");
    let json = midspan(&[
        "top",
        "--batch",
        "2",
        "--interval",
        "1",
        "--json",
        "--socket",
        socket,
    ]);
    let text = String::from_utf8(json.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["clients"][0]["client"], "127.0.0.1");
    assert!(
        lines[1]["totals"]["rate_to_client_bits_per_second"]
            .as_u64()
            .unwrap()
            > 0
    );
    let none = midspan(&[
        "top",
        "--once",
        "--client",
        "192.0.2.0/24",
        "--socket",
        socket,
    ]);
    let text = String::from_utf8(none.stdout).unwrap();
    assert!(
        text.contains("0 clients") && text.contains("192.0.2.0/24"),
        "{text}"
    );
    let listeners = midspan(&["top", "--once", "--by", "listener", "--socket", socket]);
    let text = String::from_utf8(listeners.stdout).unwrap();
    assert!(
        text.contains("1 listeners") && text.contains("web"),
        "{text}"
    );
    let wrong = midspan(&["top", "--once", "--client", "lan", "--socket", socket]);
    assert_eq!(wrong.status.code(), Some(1));
}

/// A namespace with an interface towards a narrow upstream.
fn upstream() -> NetworkNamespace {
    let namespace = Node::host("thin").make().unwrap();
    for arguments in [
        "link add up0 type veth peer name up1",
        "link set up1 up",
        "link set up0 up",
    ] {
        let mut ip = Command::new("ip");
        ip.args(arguments.split(' '));
        assert!(namespace.spawn(ip).unwrap().wait().unwrap().success());
    }
    namespace
}

/// `midspan thin --watch` has the same keys, and its end removes the rules.
#[kernel_test]
fn the_savings_of_thin_are_shown() {
    if !has_script() {
        return skip("there is no script(1)");
    }
    let namespace = upstream();
    let command = format!("{MIDSPAN} thin --interface up0 --upstream '64 kbit/s' --watch");
    let mut screen = Screen::open(&namespace, &command);
    screen.shows(&["midspan thin  up0  ace", "ACKs waiting 0", "HERE", "[q]uit"]);
    screen.press("o");
    screen.shows(&["order: saved"]);
    screen.press("/10.\r");
    screen.shows(&["filter: 10.0.0.0/8"]);
    screen.press(" ");
    screen.shows(&["FROZEN"]);
    screen.press(" ?");
    screen.shows(&["any key: back"]);
    screen.press("x");
    // One key alone does not end thinning.
    screen.press("q");
    screen.shows(&["end thinning, so that all ACKs pass? y: yes"]);
    screen.press("n");
    screen.shows(&["[q]uit"]);
    screen.press("q");
    screen.shows(&["y: yes"]);
    screen.press("y");
    assert!(screen.program.wait().unwrap().success());
    let mut nft = Command::new("nft");
    nft.args(["list", "ruleset"]).stdout(Stdio::piped());
    let output = namespace.spawn(nft).unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

/// Without a terminal: as text, and as JSON; then thinning ends.
#[kernel_test]
fn the_savings_of_thin_are_printed() {
    let namespace = upstream();
    let print = |arguments: &[&str]| {
        let mut command = Command::new(MIDSPAN);
        command
            .args(["thin", "--interface", "up0", "--interval", "0.2"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        namespace
            .spawn(command)
            .unwrap()
            .wait_with_output()
            .unwrap()
    };
    let once = print(&["--once"]);
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(once.status.success(), "{text}");
    assert!(text.starts_with("midspan thin  up0  ace"), "{text}");
    assert!(
        text.contains("0/s examined") && !text.contains("[q]uit"),
        "{text}"
    );
    let lines = print(&["--json", "--batch", "3"]);
    assert!(lines.status.success());
    let text = String::from_utf8(lines.stdout).unwrap();
    let seen: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2]["acks_seen"], 0);
    // A live view needs a terminal.
    let watch = print(&["--watch"]);
    assert_eq!(watch.status.code(), Some(1));
    let said = String::from_utf8(watch.stderr).unwrap();
    assert!(said.contains("--once, --batch N or --json"), "{said}");
}

/// Where there is no Midspan, or no right to use it, the error names what to do.
#[kernel_test]
fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let ask = || {
        let output = midspan(&["top", "--once", "--socket", socket.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = ask();
    assert!(
        said.contains("no Midspan answers") && said.contains("is it running?"),
        "{said}"
    );
    // A program that answers something else.
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"220 mail\r\n");
        }
    });
    let said = ask();
    assert!(said.contains("does not answer as Midspan does"), "{said}");
    std::fs::remove_file(&socket).unwrap();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let traffic = traffic();
    let socket = traffic.proxy.socket().unwrap().to_owned();
    common::open_to_all(socket.parent().unwrap());
    let arguments = ["top", "--once", "--socket", socket.to_str().unwrap()];
    if let Some(output) = common::midspan_as_ordinary_user(folder.path(), &arguments) {
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("only root and Midspan's own user"), "{said}");
    }
}
