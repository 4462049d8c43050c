//! Messages to the service manager (sd_notify(3)).

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use midspan_testbed::program::Launch;
use rustix::process::{Signal, kill_process};

use super::support::*;

struct Manager {
    socket: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, directory }
    }

    fn start(&self, watchdog: &str) -> Midspan {
        let path = self.directory.path().join("notify");
        let text = format!(
            "{RELAY}[interception]\nwatchdog_timeout = \"1 h\"\n{}",
            listener("web", loopback(8080), loopback(9090))
        );
        // After its helper is killed, a relay lives for another moment.
        wait_until("the last relay has gone", || is_refused(loopback(8080)));
        Midspan::of(
            Launch::this_program("run")
                .configuration(&text)
                .environment("NOTIFY_SOCKET", path)
                .environment("WATCHDOG_USEC", watchdog),
        )
    }

    fn hear(&self) -> String {
        let mut buffer = [0; 4096];
        let count = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    }

    /// The next message that is not only a sign of life.
    fn hear_news(&self) -> String {
        loop {
            let message = self.hear();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }
}

#[kernel_test]
fn the_manager_is_told() {
    let manager = Manager::new();
    let mut proxy = manager.start("0");
    // Sent when connections are accepted. Without a server they are reset.
    assert_eq!(manager.hear(), "READY=1\nSTATUS=1 listeners");
    assert!(!is_refused(loopback(8080)));
    let microseconds = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000
    };
    for (text, ready) in [
        (
            format!(
                "{RELAY}{}{}",
                listener("web", loopback(8080), loopback(9090)),
                listener("new", loopback(8081), loopback(9090))
            ),
            "READY=1\nSTATUS=2 listeners",
        ),
        (
            "nonsense".to_owned(),
            "READY=1\nSTATUS=2 listeners, the last reload failed: see the log",
        ),
    ] {
        proxy.write(&text);
        let before = microseconds();
        proxy.signal(Signal::HUP);
        let message = manager.hear();
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines[0], "RELOADING=1");
        let time = lines[1].strip_prefix("MONOTONIC_USEC=").unwrap();
        let time: i128 = time.parse().unwrap();
        assert!(before <= time && time <= microseconds());
        assert_eq!(manager.hear(), ready);
    }
    proxy.signal(Signal::TERM);
    assert!(manager.hear().starts_with("STOPPING=1\n"));
    assert!(proxy.wait().success());
}

/// While sessions end, the proxy requests more time from the manager.
#[kernel_test]
fn the_manager_waits_while_sessions_end() {
    let manager = Manager::new();
    let upstream = std::net::TcpListener::bind(loopback(9090)).unwrap();
    let mut proxy = manager.start("0");
    assert!(manager.hear().starts_with("READY=1"));
    let session = connect(loopback(8080));
    let served = upstream.accept().unwrap();
    proxy.signal(Signal::TERM);
    let stopping = manager.hear();
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");
    let extension = "EXTEND_TIMEOUT_USEC=30000000";
    assert!(stopping.ends_with(extension), "{stopping}");
    // The proxy repeats its request before the requested time is over.
    for _ in 0..2 {
        assert_eq!(manager.hear(), extension);
    }
    drop((session, served));
    assert!(proxy.wait().success());
}

#[kernel_test]
fn a_still_relay_is_not_vouched_for() {
    let manager = Manager::new();
    let mut proxy = manager.start("1000000");
    assert!(manager.hear_news().starts_with("READY=1"));
    // At least after half of the time.
    let start = Instant::now();
    for _ in 0..4 {
        assert_eq!(manager.hear(), "WATCHDOG=1");
    }
    assert!(start.elapsed() >= Duration::from_millis(1_400));
    // The helper is alive, but its relay is stopped.
    let relay = pid(proxy.status().relay_pid);
    stop_process(relay);
    let start = Instant::now();
    manager
        .socket
        .set_read_timeout(Some(Duration::from_millis(1_500)))
        .unwrap();
    while manager.socket.recv(&mut [0; 64]).is_ok() {
        assert!(
            start.elapsed() < LIMIT,
            "a relay that is still is vouched for"
        );
    }
    assert_eq!(proxy.status().state, "running");
    manager.socket.set_read_timeout(Some(LIMIT)).unwrap();
    kill_process(relay, Signal::CONT).unwrap();
    assert_eq!(manager.hear(), "WATCHDOG=1");
    proxy.signal(Signal::TERM);
    assert!(manager.hear_news().starts_with("STOPPING=1"));
    assert!(proxy.wait().success());
}

/// systemd's complaints about the unit files in this repository.
#[kernel_test]
fn the_unit_files_are_right() {
    let proxy = include_str!("../../../../../deploy/midspan.service");
    let thinning = include_str!("../../../../../deploy/midspan-thin@.service");
    let members = include_str!("../../../../../deploy/midspan-members.service");
    verify_unit("midspan.service", proxy);
    verify_unit("midspan-members.service", members);
    // An instance, because a template alone is not checked.
    verify_unit("midspan-thin@wan0.service", thinning);
}

fn verify_unit(name: &str, unit: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(name);
    let program = std::env::current_exe().unwrap();
    let text = unit.replace("/usr/bin/midspan", program.to_str().unwrap());
    std::fs::write(&file, text).unwrap();
    let analyze = |arguments: &[&str]| {
        std::process::Command::new("systemd-analyze")
            .args(arguments)
            .arg(&file)
            .env_remove("NOTIFY_SOCKET")
            .output()
    };
    let Ok(verified) = analyze(&["verify", "--man=no"]) else {
        return skip("there is no program systemd-analyze");
    };
    let complaints = String::from_utf8(verified.stderr).unwrap();
    // Only complaints about this unit. systemd before 254 does not support the steps.
    let complaints: Vec<&str> = complaints
        .lines()
        .filter(|line| line.contains(name))
        .filter(|line| {
            let newer = ["RestartSteps", "RestartMaxDelaySec"];
            !newer.iter().any(|word| line.contains(word))
        })
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let judged = analyze(&["security", "--offline=true", "--threshold=30"]).unwrap();
    let text = String::from_utf8_lossy(&judged.stdout);
    let overall = text.lines().last().unwrap_or_default();
    println!("    {overall}");
    assert!(judged.status.success(), "{overall}");
}
