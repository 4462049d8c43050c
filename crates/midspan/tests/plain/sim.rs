//! `midspan sim`: one run, a sweep, traces, errors.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

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
    let heading = "link.line.loss,link.line.loss (share),flow,case,quantity,unit,mean,low,high,runs,\
                   status,reason";
    assert_eq!(lines.next(), Some(heading));
    assert!(
        lines.all(|line| line.split(',').count() == 12
            && line.ends_with(",3,ok,")
            && (line.starts_with("0 %,0,") || line.starts_with("1 %,0.01,"))),
        "{table}"
    );
}

/// The page has a figure for one swept key, small multiples and heat maps for two, the distribution of repetitions without any,
/// and the file of all runs, the same as that of --each-run.
#[test]
fn a_page_has_figures_all_runs_and_where_they_come_from() {
    let folder = tempfile::tempdir().unwrap();
    let page = |sweeps: &[&str]| {
        let file = folder.path().join("page.html");
        let file = file.to_str().unwrap();
        let mut arguments = vec![
            "dsl",
            "--flows",
            "10 MB",
            "--repetitions",
            "2",
            "--html",
            file,
        ];
        let keys = sweeps.iter().flat_map(|sweep| ["--sweep", *sweep]);
        arguments.extend(keys);
        arguments.extend(["--csv", "--each-run"]);
        let output = midspan(&arguments);
        let (out, error) = text(&output);
        assert!(output.status.success(), "{error}");
        let html = std::fs::read_to_string(file).unwrap();
        let start = html.find("text/csv;base64,").unwrap() + "text/csv;base64,".len();
        let length = html[start..].find('"').unwrap();
        assert!(length * 3 / 4 >= out.len() && length * 3 / 4 <= out.len() + 2);
        html
    };
    let html = page(&["link.line.loss=0.1 %,1 %,3 %"]);
    assert!(html.contains("completion time by link.line.loss"));
    let html = page(&["link.line.loss=0.1 %,1 %", "link.line.delay=10 ms,20 ms"]);
    for title in [
        "completion time, direct",
        "completion time, midspan",
        "completion time, midspan divided by direct",
    ] {
        assert!(html.contains(&format!("aria-label=\"{title}\"")), "{title}");
    }
    // Small multiples: a chart for each value of the second key.
    let has_chart = |html: &str| html.lines().any(|line| line == "link.line.delay = 20 ms");
    assert!(html.contains("completion time by link.line.loss") && has_chart(&html));
    // A key whose values are no numbers has no axis.
    let html = page(&[
        "host.server.congestion_control=reno,cubic",
        "link.line.delay=10 ms,20 ms",
    ]);
    assert!(!has_chart(&html));
    let html = page(&[]);
    assert!(html.contains("share of the repetitions"));
    for fact in [
        "<dt>Midspan</dt>",
        "<dt>kernel</dt>",
        "<dt>date</dt>",
        "<dt>path</dt><dd>dsl</dd>",
    ] {
        assert!(html.contains(fact), "{fact}");
    }
}

/// A path whose link is cut after 60 ms: small files arrive before, others never.
fn outage(folder: &Path) -> String {
    let schedule = "schedule = { steps = [{ at = \"60 ms\", loss = \"100 %\" }] }";
    path_file(folder, schedule)
}

/// One download over one link, which has this key.
fn path_file(folder: &Path, key: &str) -> String {
    let text = r#"
[[host]]
name = "client"
[[host]]
name = "server"
[[link]]
name = "wire"
between = ["client", "server"]
rate = "10 Mbit/s"
delay = "1 ms"
KEY
[[flow]]
name = "file"
from = "client"
to = "server"
workload = "download"
size = "1 KB"
"#;
    let file = folder.join("wire.toml");
    std::fs::write(&file, text.replace("KEY", key)).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_failed_point_is_a_row_with_its_reason_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = outage(folder.path());
    let sweep = ["--sweep", "flow.file.size=1 KB,1 MB,2 KB", "--threads", "1"];
    let run = |more: &[&str]| {
        let output = midspan(&[&[path.as_str()], &sweep[..], more].concat());
        let (out, errors) = text(&output);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        (out, errors)
    };
    let (csv, _) = run(&["--csv"]);
    let failed: Vec<&str> = csv
        .lines()
        .filter(|line| line.contains(",failed,"))
        .collect();
    let [failed] = failed.as_slice() else {
        panic!("{csv}");
    };
    let beginning = "1 MB,1000000,file,direct,completion time,s,,,,0,failed,";
    assert!(
        failed.starts_with(beginning) && failed.contains("can never finish"),
        "{failed}"
    );
    let ok = csv.lines().filter(|line| line.contains(",ok,"));
    assert_eq!(ok.count(), 8, "{csv}");
    let (json, _) = run(&["--json"]);
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    let records = object["records"].as_array().unwrap();
    assert_eq!(records.len(), 9);
    let failed: Vec<_> = records
        .iter()
        .filter(|one| one["status"] == "failed")
        .collect();
    assert_eq!(failed.len(), 1, "{json}");
    assert!(
        failed[0]["value"].is_null() && failed[0]["case"] == "file direct, flow.file.size = 1 MB"
    );
    assert!(
        failed[0]["reason"]
            .as_str()
            .unwrap()
            .contains("can never finish")
    );
    let (table, errors) = run(&[]);
    assert!(
        table.contains("n/a") && table.contains("can never finish"),
        "{table}"
    );
    // The points as they finish.
    for size in [
        "1 KB: completion time",
        "1 MB: failed",
        "2 KB: completion time",
    ] {
        assert!(errors.contains(size), "{size}: {errors}");
    }
}

#[test]
fn rows_appear_as_they_finish_and_ctrl_c_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_file(folder.path(), "");
    for output in ["--csv", "--json"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_midspan"))
            .args(["sim", &path, "--threads", "1", output])
            // Minutes of work, of which the first point takes less than a second.
            .args(["--set", "link.wire.rate=1 Gbit/s"])
            .args(["--sweep", "flow.file.size=40 MB..80 MB:400"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut out = String::new();
        while !out.contains("completion time") {
            assert!(reader.read_line(&mut out).unwrap() > 0, "{out}");
        }
        let process = Pid::from_child(&child);
        kill_process(process, Signal::INT).unwrap();
        reader.read_to_string(&mut out).unwrap();
        let mut errors = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3), "{errors}");
        assert!(errors.contains("stopped after"), "{errors}");
        if output == "--json" {
            serde_json::from_str::<serde_json::Value>(&out).unwrap();
        }
    }
}

#[test]
fn a_path_without_any_result_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = outage(folder.path());
    let output = midspan(&[&path, "--set", "flow.file.size=1 MB"]);
    let (out, errors) = text(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert!(errors.contains("can never finish"), "{errors}");
}

/// The gateways of these paths send with BBR towards the client.
#[test]
fn paths_with_bbr_are_simulated_with_bbr() {
    for path in ["geo", "lte"] {
        let times = |control: &str| {
            let key = format!("proxy.gateway.client_leg.congestion_control={control}");
            let output = midspan(&[path, "--flows", "1 MB", "--set", &key, "--json"]);
            let (out, errors) = text(&output);
            assert!(output.status.success(), "{path}: {errors}");
            let object: serde_json::Value = serde_json::from_str(&out).unwrap();
            let records = object["records"].as_array().unwrap().clone();
            assert!(records.iter().all(|record| record["note"].is_null()));
            records
        };
        let output = midspan(&[path, "--flows", "1 MB", "--json"]);
        let as_deployed: serde_json::Value = serde_json::from_str(&text(&output).0).unwrap();
        let (bbr, cubic) = (times("bbr"), times("cubic"));
        assert_eq!(as_deployed["records"].as_array(), Some(&bbr), "{path}");
        assert_ne!(bbr, cubic, "{path}");
    }
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
        "cwnd,rtt,queue,rate,bursts,forward,drops,sequence",
        "--output-directory",
        folder.path().to_str().unwrap(),
        "--pcap",
        at("geo.pcap").to_str().unwrap(),
        "--json",
    ]);
    let (out, error) = text(&output);
    assert!(output.status.success(), "{error}");
    assert!(out.contains("p99.9 burst"), "{out}");
    for case in ["direct", "midspan"] {
        for kind in [
            "cwnd", "rtt", "queue", "rate", "bursts", "drops", "sequence", "forward",
        ] {
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

/// `midspan sim` and `midspan merge` as several calls, which together make each run once.
#[test]
fn parts_of_a_sweep_are_merged_to_the_results_of_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_file(folder.path(), "");
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let sim = |more: &[&str]| {
        let sweep = [
            "--sweep",
            "link.wire.loss=0 %,1 %,2 %",
            "--repetitions",
            "3",
        ];
        let output = midspan(&[&[path.as_str()], &sweep[..], more].concat());
        let (out, errors) = text(&output);
        assert!(output.status.success(), "{errors}");
        out
    };
    let all = sim(&["--csv", "--each-run"]);
    let heading = "link.wire.loss,link.wire.loss (share),flow,case,seed,quantity,unit,value,status,\
                   reason,commit";
    assert_eq!(all.lines().next(), Some(heading));
    // Three points, three seeds, four quantities.
    assert_eq!(all.lines().count(), 1 + 36, "{all}");
    for part in ["0/2", "1/2"] {
        let file = name(&part.replace('/', "-"));
        let text = sim(&["--state", &file, "--shard", part]);
        assert!(text.starts_with(&format!("part {part}: made ")), "{text}");
    }
    let merge = Command::new(env!("CARGO_BIN_EXE_midspan"))
        .args(["merge", "--json", "--output", &name("merged")])
        .args([name("0-2"), name("1-2")])
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&merge.stdout).unwrap();
    assert_eq!((&json["runs"], &json["different"]), (&9.into(), &0.into()));
    assert_eq!(
        sim(&["--csv", "--each-run", "--state", &name("merged")]),
        all
    );
    let report = sim(&["--json", "--state", &name("merged"), "--shard", "0/1"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (&report["made"], &report["stored before"]),
        (&0.into(), &9.into())
    );
    let each = sim(&["--json", "--each-run", "--state", &name("merged")]);
    let each: serde_json::Value = serde_json::from_str(&each).unwrap();
    let runs = each["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 36);
    assert_eq!(runs[35]["numbers"]["link.wire.loss"], 0.02);

    for wrong in [
        &["--shard", "2/2", "--state", "x"][..],
        &["--shard", "0/2"],
        &["--each-run"],
        &["--state", "/nowhere/runs"],
    ] {
        let output = midspan(&[&[path.as_str()], wrong].concat());
        assert!(!output.status.success(), "{wrong:?}");
    }
}
