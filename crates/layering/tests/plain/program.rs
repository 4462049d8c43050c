//! The program over a workspace with a planted circle: exit status, output, list of allowed arrows.

#![allow(clippy::unwrap_used)] // A test may panic.

use std::path::Path;
use std::process::{Command, Output};

const MANIFEST: &str =
    "[package]\nname = \"planted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";

fn workspace(b: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    put("Cargo.toml", MANIFEST);
    put("src/lib.rs", "mod a;\nmod b;\n");
    put("src/a.rs", "use crate::b::B;\npub struct A(B);\n");
    put("src/b.rs", b);
    folder
}

const CIRCULAR: &str = "pub struct B;\npub fn f(_: crate::a::A) {}\n";
const PLAIN: &str = "pub struct B;\n";

fn layering(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_layering"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_circle_is_printed_and_fails() {
    let folder = workspace(CIRCULAR);
    let output = layering(folder.path(), &[]);
    assert_eq!(
        text(&output),
        "planted: a -> b -> a\n    a -> b  src/a.rs:1: crate::b::B\n    b -> a  src/b.rs:2: crate::a::A\n"
    );
    assert_eq!(output.status.code(), Some(1));

    let output = layering(folder.path(), &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["circles"][0]["arrows"][1]["file"], "src/b.rs");
    assert_eq!(report["circles"][0]["allowed"], false);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn no_circle_is_success_and_silence() {
    let folder = workspace(PLAIN);
    let output = layering(folder.path(), &[]);
    assert_eq!(text(&output), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_list_allows_its_arrows_only_and_can_only_shrink() {
    let folder = workspace(CIRCULAR);
    let list = folder.path().join("allowed.txt");
    let both = "# Known.\nplanted: a -> b\nplanted: b -> a  # soon\n";

    std::fs::write(&list, both).unwrap();
    let output = layering(folder.path(), &["--allowed", "allowed.txt"]);
    assert_eq!(text(&output), "");
    assert_eq!(output.status.code(), Some(0));
    let output = layering(folder.path(), &["--allowed", "allowed.txt", "--all"]);
    assert!(text(&output).contains("planted: a -> b -> a (allowed)"));

    std::fs::write(&list, "planted: a -> b\n").unwrap();
    let output = layering(folder.path(), &["--allowed", "allowed.txt"]);
    assert_eq!(output.status.code(), Some(1));

    let folder = workspace(PLAIN);
    let list = folder.path().join("allowed.txt");
    std::fs::write(&list, both).unwrap();
    let output = layering(folder.path(), &["--allowed", "allowed.txt"]);
    assert!(text(&output).contains("allowed.txt: `planted: b -> a` lies on no circle any more"));
    assert_eq!(output.status.code(), Some(1));
    let output = layering(folder.path(), &["--allowed", "allowed.txt", "--prune"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "# Known.\n");
}

#[test]
fn what_cannot_be_checked_is_an_error() {
    let folder = workspace(PLAIN);
    std::fs::write(folder.path().join("allowed.txt"), "\nplanted a -> b\n").unwrap();
    for arguments in [
        &["--allowed", "allowed.txt"][..],
        &["--allowed", "absent.txt"],
        &["--manifest", "absent.toml"],
    ] {
        let output = layering(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.starts_with("layering: "), "{error}");
    }
    let output = layering(folder.path(), &["--allowed", "allowed.txt"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("allowed.txt:2"), "{error}");
}
