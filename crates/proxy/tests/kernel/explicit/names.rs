//! Servers that clients request by name.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::time::Instant;

use midspan_testbed::program::Launch;
use rustix::process::{Pid, Signal, kill_process};

use super::support::*;

const HOSTS: &str = "\
127.0.0.1 localhost
::1 localhost
2001:db8::9 half-dead.example
127.0.0.1 half-dead.example
2001:db8::9 dead.example
127.0.0.1 other.example
";

fn socks(name: &str) -> u8 {
    let mut client = connect(SOCKS);
    client.write_all(b"\x05\x01\x00").unwrap();
    exactly::<2>(&mut client);
    let length = [u8::try_from(name.len()).unwrap()];
    let request = [
        b"\x05\x01\x00\x03",
        &length[..],
        name.as_bytes(),
        b"\x23\x82",
    ]
    .concat();
    client.write_all(&request).unwrap();
    exactly::<10>(&mut client)[1]
}

#[kernel_test]
fn names_are_raced_and_missed() {
    let Some(directory) = folder_for_hosts() else {
        return skip("/etc/hosts cannot be replaced here");
    };
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, HOSTS).unwrap();
    let proxy = Midspan::of(
        Launch::this_program("run")
            .configuration(&each_mode("connect_timeout = \"2 s\""))
            .in_place_of(hosts, "/etc/hosts"),
    );
    let _listener = TcpListener::bind(SERVER).unwrap();
    // The first address does not answer: the proxy tries the second one a quarter of a second
    // later.
    let start = Instant::now();
    assert_eq!(socks("half-dead.example"), 0);
    let time = start.elapsed();
    assert!(time.as_millis() >= 250, "{time:?}");
    // The first address refuses: the proxy tries the second one at once.
    assert_eq!(socks("localhost"), 0);
    assert!(matches!(socks("dead.example"), 4 | 6));
    assert_eq!(socks("nonsuch.example"), 4);
    // When the resolver dies, a new one is started for the next name.
    let before = resolver(&proxy).expect("a resolver");
    kill_process(before, Signal::KILL).unwrap();
    wait_until("gone", || resolver(&proxy) != Some(before));
    assert_eq!(socks("other.example"), 0);
}

/// The resolver: the process whose threads have this name.
fn resolver(proxy: &Midspan) -> Option<Pid> {
    find(proxy.id())
}

fn find(process: u32) -> Option<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let tasks: Vec<_> = tasks.flatten().map(|task| task.path()).collect();
    let read = |name: &str| {
        let files = tasks.iter().map(|task| task.join(name));
        let texts = files.filter_map(|file| fs::read_to_string(file).ok());
        texts.collect::<Vec<_>>()
    };
    if read("comm").iter().any(|name| name.trim() == "names 0") {
        return Pid::from_raw(i32::try_from(process).ok()?);
    }
    let children = read("children").join(" ");
    children
        .split_whitespace()
        .find_map(|child| find(child.parse().ok()?))
}
