//! A test of `docs/overlay-tutorial.md`: writes its files and runs its commands, in order, in a mount namespace with a
//! /run of its own.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use midspan_testbed::program::{Launch, Program};
use midspan_testbed::{kernel_test, kernel_tests, skip};

use crate::page::{self, Step};

const PAGE: &str = include_str!("../../../../docs/overlay-tutorial.md");
const MIDSPAN: &str = env!("CARGO_BIN_EXE_midspan");
const NEEDED: [&str; 6] = ["unshare", "ip", "ping", "sysctl", "curl", "python3"];

pub const FOLLOW: kernel_tests::Command = ("follow-the-tutorial", |_| {
    follow();
    ExitCode::SUCCESS
});

#[kernel_test]
fn the_page_can_be_followed() {
    let missing = NEEDED.iter().find(|program| {
        let folders = ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        !folders
            .iter()
            .any(|folder| Path::new(folder).join(program).is_file())
    });
    if let Some(program) = missing {
        return skip(&format!("there is no program {program}"));
    }
    let script = "mount -t tmpfs tmpfs /run && exec \"$1\" --as follow-the-tutorial";
    let own = std::env::current_exe().unwrap();
    let folder = Path::new(MIDSPAN).parent().unwrap().display();
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script, "sh"])
        .arg(own)
        .env(
            "PATH",
            format!("{folder}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        )
        .env("LC_ALL", "C.UTF-8")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn follow() {
    let mut running: Vec<Program> = Vec::new();
    let mut printed = String::new();
    for step in page::steps(PAGE) {
        match step {
            Step::File { path, text } => {
                fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
                fs::write(&path, text).unwrap();
            }
            Step::Commands { place, lines } => {
                assert_eq!(place, "machine");
                printed = lines.iter().map(|line| run(line, &mut running)).collect();
            }
            Step::Output(shown) => assert!(
                page::is_shown(&printed, &shown),
                "the page shows:\n{}\nprinted was:\n{printed}",
                shown.join("\n")
            ),
        }
    }
    // The last commands of the page end all programs.
    for mut program in running {
        program.wait().unwrap();
    }
}

/// Runs a line of the page, and returns its output.
fn run(line: &str, running: &mut Vec<Program>) -> String {
    println!("$ {line}");
    if let Some(line) = line.strip_suffix(" &") {
        let program = Launch::new("sh").args(["-c", &format!("exec {line}")]);
        running.push(program.without_output().start().unwrap());
        return String::new();
    }
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{line}: {}\n{printed}{errors}",
        output.status
    );
    print!("{printed}{errors}");
    printed
}
