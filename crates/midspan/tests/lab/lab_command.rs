//! Commands as workloads of `midspan lab`.

#![allow(clippy::unwrap_used)]

use crate::common::{alone, error_text, midspan, one_proxy, path_file, records, value};

fn path(command: &str) -> String {
    one_proxy(&format!(
        r#"
[[flow]]
name = "run"
from = "client"
to = "server"
workload = "command"
command = {command}
size = "300 KB"
"#
    ))
}

#[test]
fn a_command_is_measured_over_the_links_with_and_without_a_proxy() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let get = r#"["sh", "-c", "sleep 1000 & exec curl -sf -o /dev/null $MIDSPAN_URL"]"#;
    let file = path_file(folder.path(), &path(get));
    let output = midspan(&[
        "lab",
        file.to_str().unwrap(),
        "--against",
        "direct,midspan-forward",
        "--json",
    ]);
    let records = records(&output);
    for case in ["run direct", "run midspan-forward"] {
        assert!(value(&records, case, "exit status").abs() < 1e-9);
        // 300 KB at 10 Mbit/s. What the command left in the background does not delay its end.
        let time = value(&records, case, "completion time");
        assert!((0.24..60.0).contains(&time), "{case}: {time} s");
    }
    assert!(
        value(
            &records,
            "run midspan-forward / direct",
            "completion time ratio"
        ) > 0.0
    );
}

#[test]
fn a_command_that_fails_has_its_status_and_no_time() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let failing = r#"["sh", "-c", "yes | head -c 10000000; echo not today >&2; exit 7"]"#;
    let file = path_file(folder.path(), &path(failing));
    let arguments = [
        "lab",
        file.to_str().unwrap(),
        "--against",
        "direct",
        "--json",
    ];
    let output = midspan(&arguments);
    let errors = error_text(&output);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("exit status 7: not today"), "{errors}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = json["records"].as_array().unwrap();
    let of = |quantity: &str| found.iter().find(|record| record["quantity"] == quantity);
    assert_eq!(of("exit status").unwrap()["value"], 7.0);
    assert!(of("completion time").is_none());
}

#[test]
fn a_command_that_does_not_end_is_ended() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let endless = r#"["sh", "-c", "echo begun; sleep 1000 & sleep 1000"]"#;
    let file = path_file(folder.path(), &path(endless));
    let output = midspan(&[
        "lab",
        file.to_str().unwrap(),
        "--against",
        "direct",
        "--timeout",
        "1 s",
    ]);
    let errors = error_text(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for part in ["still ran after 1 s", "--timeout", "begun"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn the_simulator_refuses_a_command_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path(r#"["true"]"#));
    let output = midspan(&["sim", file.to_str().unwrap()]);
    let errors = error_text(&output);
    assert!(!output.status.success());
    assert!(
        errors.contains("runs a command") && errors.contains("midspan lab"),
        "{errors}"
    );
}
