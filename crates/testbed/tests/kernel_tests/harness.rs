//! The harness, run with the planted tests.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use midspan_testbed::kernel_test;
use midspan_testbed::testing::wait_until;

use crate::planted;

/// This test program once more, with the planted tests.
fn run(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for inherited in [
        "MIDSPAN_TEST_TRIES",
        "MIDSPAN_SECOND_TRIES",
        "MIDSPAN_TEST_LIMIT",
        "MIDSPAN_SLOWNESS",
        "RUST_TEST_NOCAPTURE",
    ] {
        command.env_remove(inherited);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .args(arguments)
        .env(planted::VARIABLE, folder)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.code(), text.concat())
}

#[kernel_test]
fn a_failure_is_reported_with_what_was_printed() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["fails_always"], &[]);
    assert_eq!(code, Some(101), "{text}");
    for expected in [
        "test planted::fails_always ... FAILED",
        "printed before the failure",
        "planted failure",
        "1 failed",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[kernel_test]
fn a_signal_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["aborts"], &[]);
    assert_eq!(code, Some(101), "{text}");
    assert!(text.contains("SIGABRT"), "{text}");
}

#[kernel_test]
fn without_a_second_try_the_first_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["fails_at_first"], &[]);
    assert_eq!(code, Some(101), "{text}");
}

#[kernel_test]
fn a_second_try_is_listed_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    let variables = [
        ("MIDSPAN_TEST_TRIES", "2"),
        ("MIDSPAN_SECOND_TRIES", list.to_str().unwrap()),
    ];
    let (code, text) = run(folder.path(), &["planted::fails"], &variables);
    // A test that fails in both tries still fails, and only the other is on the list.
    assert_eq!(code, Some(101), "{text}");
    assert!(
        text.contains("test planted::fails_at_first ... ok"),
        "{text}"
    );
    assert!(text.contains("planted failure of the first try"), "{text}");
    let listed = fs::read_to_string(&list).unwrap();
    assert_eq!(
        listed,
        "midspan-testbed kernel_tests: planted::fails_at_first\n"
    );
}

#[kernel_test]
fn a_test_that_hangs_is_ended_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["hangs"], &[("MIDSPAN_TEST_LIMIT", "2")]);
    assert_eq!(code, Some(101), "{text}");
    assert!(text.contains("test planted::hangs ... FAILED"), "{text}");
    assert!(text.contains("it was still running after 2 s"), "{text}");
    // What it had started was ended, too.
    let sleeper = fs::read_to_string(folder.path().join("sleeper")).unwrap();
    let command = format!("/proc/{}/cmdline", sleeper.trim());
    wait_until("the sleeper has ended", || {
        !fs::read_to_string(&command).is_ok_and(|line| line.starts_with("sleep"))
    });
}

#[kernel_test]
fn what_is_skipped_is_said_though_nothing_fails() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["pretty", "terse"] {
        let arguments = ["is_skipped", "--format", format];
        let (code, text) = run(folder.path(), &arguments, &[]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("skipped: there is no such thing"), "{text}");
        assert!(text.contains("skipped: half of it is missing"), "{text}");
        assert!(text.contains("1 passed; 0 failed; 1 ignored"), "{text}");
    }
}

#[kernel_test]
fn filters_choose_tests() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["passes"], &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("running 1 test\ntest planted::passes ... ok"),
        "{text}"
    );
    assert!(!text.contains("nobody sees this"), "{text}");
    let (code, text) = run(folder.path(), &["planted::is_skipped", "--exact"], &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("running 1 test\n"), "{text}");
    let (_, text) = run(folder.path(), &["passes", "--nocapture"], &[]);
    assert!(text.contains("nobody sees this"), "{text}");
}

#[kernel_test]
fn a_module_has_its_own_set_up() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["has_the_set_up_of_its_module"], &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 passed; 0 failed"), "{text}");
    // The module of this test has none.
    assert!(!planted::is_set_up());
}

#[kernel_test]
fn all_tests_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["--list"], &[]);
    assert_eq!(code, Some(0), "{text}");
    let expected = [
        "aborts",
        "fails_always",
        "fails_at_first",
        "hangs",
        "has_the_set_up_of_its_module",
        "is_skipped",
        "is_skipped_in_part",
        "passes",
    ];
    let expected = expected.map(|name| format!("planted::{name}: test"));
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[kernel_test]
fn wrong_settings_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = run(folder.path(), &["passes"], &[("MIDSPAN_TEST_TRIES", "no")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("MIDSPAN_TEST_TRIES=\"no\""), "{text}");
}
