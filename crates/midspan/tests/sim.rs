//! `midspan sim`: one run, a sweep, traces, errors.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use std::process::{Command, Output};

fn midspan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midspan"))
        .arg("sim")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_sweep_prints_one_tidy_table_whatever_the_threads() {
    let sweep = |threads| {
        let output = midspan(&[
            "dsl",
            "--sweep",
            "link.line.loss=0 %,1 %",
            "--repetitions",
            "3",
            "--threads",
            threads,
            "--csv",
        ]);
        let (out, error) = text(&output);
        assert!(output.status.success(), "{error}");
        out
    };
    let table = sweep("1");
    assert_eq!(table, sweep("2"));
    let mut lines = table.lines();
    let heading = "link.line.loss,flow,case,quantity,unit,mean,low,high,runs";
    assert_eq!(lines.next(), Some(heading));
    assert!(
        lines.all(|line| line.split(',').count() == 9 && line.ends_with(",3")),
        "{table}"
    );
}

#[test]
fn traces_are_written_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let output = midspan(&[
        "geo-clean",
        "--flows",
        "1 MB",
        "--set",
        "proxy.gateway.client_leg.congestion_control=cubic",
        "--trace",
        "cwnd,queue,bursts,forward,drops,sequence",
        "--output",
        folder.path().to_str().unwrap(),
        "--pcap",
        at("geo.pcap").to_str().unwrap(),
        "--json",
    ]);
    let (out, error) = text(&output);
    assert!(output.status.success(), "{error}");
    assert!(out.contains("p99.9 burst"), "{out}");
    for case in ["direct", "midspan"] {
        for kind in ["cwnd", "queue", "bursts", "drops", "sequence", "forward"] {
            let file = at(&format!("{case}-{kind}.csv"));
            let written = std::fs::read_to_string(&file).unwrap();
            let least = if matches!(kind, "drops") || (kind == "forward" && case == "direct") {
                1
            } else {
                2
            };
            assert!(written.lines().count() >= least, "{file:?}: {written}");
        }
        assert!(
            std::fs::metadata(at(&format!("geo-{case}.pcap")))
                .unwrap()
                .len()
                > 10_000
        );
    }
}

#[test]
fn errors_are_located_and_end_with_failure() {
    for (arguments, expected) in [
        (
            &["dsl", "--set", "link.lime.loss=1 %"][..],
            "did you mean `line`?",
        ),
        (
            &["dsl", "--set", "link.line.loss=two"],
            "--set:1:16: \"two\" is not a probability",
        ),
        (
            &["dsl", "--sweep", "link.line.loss=1 %..2 s:3"],
            "is no range",
        ),
        (&["no-such-path"], "no built-in path"),
        (
            &["dsl", "--trace", "cwnd", "--repetitions", "2"],
            "a trace is of one run",
        ),
    ] {
        let output = midspan(arguments);
        let (_, error) = text(&output);
        let flat = error
            .split_whitespace()
            .filter(|word| *word != "│")
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            !output.status.success() && flat.contains(expected),
            "{error}"
        );
    }
}
