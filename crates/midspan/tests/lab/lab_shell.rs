//! `midspan lab shell`: commands and prompts inside a host of a path.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{DOWNLOAD, MIDSPAN, alone, error_text, one_proxy, path_file};

/// Runs `midspan lab shell` over a path on which 300 KB take at least 0.24 s.
fn shell(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &one_proxy(DOWNLOAD));
    let mut command = Command::new(MIDSPAN);
    command.args(["lab", "shell"]).arg(file).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Whether a process runs with this argument.
fn runs(argument: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    })
}

/// Waits until a process runs with this argument, or until none does.
fn becomes(argument: &str, running: bool) -> bool {
    let start = Instant::now();
    while runs(argument) != running {
        if start.elapsed() > Duration::from_secs(30) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn begins(argument: &str) -> bool {
    becomes(argument, true)
}

fn ends(argument: &str) -> bool {
    becomes(argument, false)
}

/// An argument of `sleep` that no other process has.
fn unique(number: u32) -> String {
    format!("9{}.{number}", std::process::id())
}

#[test]
fn a_command_runs_over_the_links_and_its_exit_status_is_given_back() {
    let _alone = alone();
    for case in ["direct", "midspan-forward"] {
        let get = "curl -s -o /dev/null -w '%{size_download} %{time_total}' $MIDSPAN_URL; exit 7";
        let output = shell(&["--against", case, "--", "sh", "-c", get]);
        assert_eq!(output.status.code(), Some(7), "{case}: {output:?}");
        let printed = printed(&output);
        let (size, time) = printed.split_once(' ').unwrap();
        let time: f64 = time.parse().unwrap();
        assert_eq!(size, "300000", "{case}");
        // The rate of the access link alone takes 0.248 s.
        assert!(time > 0.25, "{case}: {time} s");
    }
}

#[test]
fn the_host_can_be_chosen_and_has_only_its_own_network() {
    let _alone = alone();
    let show = "echo $MIDSPAN_HOST ${MIDSPAN_URL:-none}; grep -o 'link[0-9]*' /proc/net/dev";
    let output = shell(&["--host", "server", "--", "sh", "-c", show]);
    // The only interface of a link is that of the server's end of the second link.
    assert_eq!(printed(&output), "server none\nlink1", "{output:?}");
    let output = shell(&["--host", "gateway", "--", "true"]);
    let errors = error_text(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("its hosts are client, server"), "{errors}");
    let output = shell(&["--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
}

#[test]
fn nothing_runs_on_in_the_background() {
    let _alone = alone();
    let mark = unique(1);
    let output = shell(&[
        "--",
        "sh",
        "-c",
        &format!("setsid sleep {mark} & echo begun"),
    ]);
    assert_eq!(printed(&output), "begun", "{output:?}");
    assert!(ends(&mark));
}

#[test]
fn everything_ends_with_a_killed_midspan() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &one_proxy(DOWNLOAD));
    let mark = unique(2);
    let mut midspan = Command::new(MIDSPAN)
        .args(["lab", "shell"])
        .arg(file)
        .args(["--against", "midspan-forward", "--", "sh", "-c"])
        .arg(format!("setsid sleep {mark} & echo begun; sleep {mark}"))
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(midspan.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    // The process in the background begins `sleep` some time after the shell has printed its line.
    assert!(begins(&mark));
    midspan.kill().unwrap();
    midspan.wait().unwrap();
    assert!(ends(&mark));
    // The proxy and the web server, whose files are in this folder.
    let own = folder.path().to_str().unwrap().to_owned();
    let start = Instant::now();
    let is_used = || {
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&own)
        })
    };
    while is_used() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "a program is left"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_request_to_end_ends_the_command() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &one_proxy(DOWNLOAD));
    let mark = unique(3);
    let mut midspan = Command::new(MIDSPAN)
        .args(["lab", "shell"])
        .arg(file)
        .args(["--", "sh", "-c", &format!("echo begun; sleep {mark}")])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(midspan.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let id = rustix::process::Pid::from_child(&midspan);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(!midspan.wait().unwrap().success());
    assert!(ends(&mark));
    // The folder with the path file is all that is left.
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
