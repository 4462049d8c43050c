//! The rules of the command line in docs/command-line.md: exit statuses, version, colours, old names.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

fn midspan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A configuration file in a folder of its own.
fn configuration(port: u16) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("midspan.toml");
    let listener = format!(
        "[[listener]]\nname = \"a\"\nlisten = \"127.0.0.1:{port}\"\nto = \"192.0.2.1:80\"\n"
    );
    fs::write(&file, listener).unwrap();
    let name = file.to_str().unwrap().to_owned();
    (folder, name)
}

#[test]
fn exit_statuses() {
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_folder, in_use) = configuration(used.local_addr().unwrap().port());
    let table: [(i32, &[&str]); 24] = [
        // Success.
        (0, &["--version"]),
        (0, &["--help"]),
        (0, &["paths"]),
        (0, &["plan", "geo"]),
        (0, &["run", "--dry-run", "--config", &in_use]),
        // Failed: a file, a path or a running proxy is missing.
        (1, &["sim", "/nowhere/path.toml"]),
        (1, &["plan", "geo", "--set", "link.nowhere.loss=1 %"]),
        (1, &["lab", "geo", "--set", "link.nowhere.loss=1 %"]),
        (1, &["check", "--config", "/nowhere/midspan.toml"]),
        (1, &["status", "--socket", "/nowhere/control.sock"]),
        (1, &["lab", "geo", "--sweep", "link.nowhere.loss=1 %,2 %"]),
        (
            1,
            &["lab", "geo", "--sweep", "link.satellite.loss=1 %,,2 %"],
        ),
        (1, &["conformance", "--list", "--only", "no such case"]),
        (1, &["lab", "paths", "--by-hand", "/nowhere/grid.jsonl"]),
        // Usage.
        (2, &[]),
        (2, &["nothing"]),
        (2, &["sim", "geo", "--nothing"]),
        (2, &["sim", "geo", "--repetitions", "0"]),
        (2, &["paths", "--quiet", "--verbose"]),
        // A time without a unit, or beyond a day.
        (2, &["lab", "geo", "--timeout", "300"]),
        (2, &["compare", "geo", "--timeout", "25 h"]),
        (2, &["conformance", "--list", "--timeout", "0 s"]),
        (
            2,
            &[
                "lab",
                "geo",
                "--sweep",
                "link.satellite.loss=1 %",
                "--html",
                "a.html",
            ],
        ),
        // Not met: the port of the listener is in use.
        (3, &["check", "--config", &in_use]),
    ];
    for (status, arguments) in table {
        let output = midspan(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        // Errors are on standard error alone, and always there.
        if status == 1 || status == 2 {
            assert!(output.stdout.is_empty(), "{arguments:?}");
            assert!(!error.is_empty(), "{arguments:?}");
        }
    }
}

#[test]
fn the_documents_list_each_exit_status() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    let page = fs::read_to_string(page).unwrap();
    for status in 0..=3 {
        assert!(page.contains(&format!("\n| {status} | ")), "{status}");
    }
}

/// The commit is there if the source was in a repository of git.
#[test]
fn the_version_has_the_commit() {
    let output = text(&midspan(&["--version"]).stdout);
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let version = env!("CARGO_PKG_VERSION");
    match commit {
        Ok(commit) if commit.status.success() => {
            let commit = text(&commit.stdout);
            assert_eq!(output, format!("midspan {version} ({})\n", commit.trim()));
        }
        Ok(_) => assert_eq!(output, format!("midspan {version}\n")),
        // Without git, this machine cannot have built the program.
        Err(_) => assert!(
            output.starts_with(&format!("midspan {version}")),
            "{output}"
        ),
    }
}

#[test]
fn an_old_name_works_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    let output = midspan(&[
        "sim",
        "geo-clean",
        "--flows",
        "100 KB",
        "--trace",
        "cwnd",
        "--output",
        traces.to_str().unwrap(),
    ]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("--output-directory"), "{error}");
    assert!(!text(&output.stdout).contains("warning"));
    assert!(fs::read_dir(&traces).unwrap().count() > 0);
}

/// What a command prints on a terminal.
fn on_a_terminal(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = || {
        File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap()
    };
    // `Command` keeps its copies of the terminal until it is dropped.
    let mut child = Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(arguments)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm-256color")
        .envs(variables.iter().copied())
        .stdout(terminal())
        .stderr(terminal())
        .spawn()
        .unwrap();
    // The kernel reports an error at the end, if no process has the terminal open any more.
    let mut printed = Vec::new();
    let mut reader = File::from(controller);
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = reader.read(&mut part) {
        printed.extend_from_slice(&part[..length]);
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&printed).into_owned()
}

#[test]
fn no_color_switches_colours_off() {
    for arguments in [
        &["--help"][..],
        &["sim", "geo", "--nothing"],
        &["sim", "/nowhere/path.toml"],
    ] {
        let coloured = on_a_terminal(arguments, &[]);
        assert!(coloured.contains('\x1b'), "{arguments:?}: {coloured}");
        let plain = on_a_terminal(arguments, &[("NO_COLOR", "1")]);
        assert!(!plain.contains('\x1b'), "{arguments:?}: {plain}");
        assert!(plain.len() > 20, "{arguments:?}: {plain}");
    }
}

/// Notes are left out, steps are named; results and the exit status stay.
#[test]
fn quiet_and_verbose_concern_notes_and_progress_alone() {
    let plan = |options: &[&str]| {
        let output = midspan(&[&["plan", "geo-clean"], options].concat());
        assert_eq!(output.status.code(), Some(0));
        (text(&output.stdout), text(&output.stderr))
    };
    let (results, notes) = plan(&[]);
    assert!(notes.contains("analysed in"), "{notes}");
    for option in ["-q", "--quiet"] {
        assert_eq!(
            plan(&[option]),
            (results.clone(), String::new()),
            "{option}"
        );
    }
    let before = midspan(&["-q", "plan", "geo-clean"]);
    assert_eq!(
        (text(&before.stdout), text(&before.stderr)),
        (results, String::new())
    );

    let sim = |options: &[&str]| {
        let arguments = ["reproduce", "shikama", "figure 10", "--quick"];
        text(&midspan(&[&arguments, options].concat()).stderr)
    };
    assert_eq!(sim(&["-q"]), "");
    assert!(sim(&["-v"]).lines().count() > sim(&[]).lines().count());

    // Errors and warnings are always printed.
    let error = midspan(&["-q", "sim", "/nowhere/path.toml"]);
    assert_eq!(error.status.code(), Some(1));
    assert!(text(&error.stderr).contains("/nowhere/path.toml"));
    let warned = midspan(&["-q", "conformance", "--list", "--cases", "refused"]);
    assert_eq!(text(&warned.stdout), "refused\n");
    assert!(
        text(&warned.stderr).contains("is now --only"),
        "{}",
        text(&warned.stderr)
    );
}

/// `--sweep` has one meaning: what `sim` refuses, `lab` refuses with the same words.
#[test]
fn a_wrong_sweep_is_refused_by_sim_and_lab_alike() {
    for sweep in [
        "link.nowhere.loss=1 %,2 %",
        "link.satellite.loss=1 %,x",
        "link.satellite.loss",
    ] {
        let errors = ["sim", "lab"].map(|command| {
            let output = midspan(&[command, "geo", "--sweep", sweep]);
            assert_eq!(output.status.code(), Some(1), "{command} {sweep}");
            text(&output.stderr)
        });
        assert_eq!(errors[0], errors[1], "{sweep}");
        assert!(errors[0].contains("--sweep"), "{}", errors[0]);
    }
}
