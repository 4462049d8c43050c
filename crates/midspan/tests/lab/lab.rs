//! `midspan lab` on real kernels, with real programs.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{
    DOWNLOAD, MIDSPAN, alone, midspan, midspan_as_ordinary_user, path_file, records, two_proxies,
    value,
};

/// The round-trip time of the whole path is 40 ms.
fn path(family: &str, flows: &str) -> String {
    two_proxies(family, "5 ms", flows)
}

const EVERY_CASE: [&str; 5] = [
    "direct",
    "haproxy",
    "midspan",
    "midspan-early",
    "midspan-forward",
];

/// At 10 Mbit/s, 300 KB take 0.24 s. A faster transfer did not cross the link.
const LEAST_SECONDS: f64 = 0.24;

fn check_download(records: &[serde_json::Value], cases: &[&str]) {
    for case in cases {
        let name = format!("300 KB {case}");
        let completion = value(records, &name, "completion time");
        assert!(completion > LEAST_SECONDS, "{name}: {completion} s");
        let first_byte = value(records, &name, "time to first byte");
        // Connection and request take at least one round trip to the nearest host that answers, and
        // one to the server.
        assert!(first_byte > 0.040, "{name}: {first_byte} s");
        let goodput = value(records, &name, "goodput");
        assert!((goodput - 300e3 * 8.0 / completion).abs() < 0.01 * goodput);
        let share = value(records, &name, "share of the link");
        assert!(
            (share - goodput / 10e6).abs() < 1e-6 && share < 1.0,
            "{name}: {share}"
        );
        assert!(value(records, &name, "ACKs sent upstream") > 10.0);
    }
}

#[test]
fn every_case_downloads_over_two_proxies() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv4", DOWNLOAD));
    let html = folder.path().join("report.html");
    let output = midspan(&[
        "lab",
        file.to_str().unwrap(),
        "--against",
        &EVERY_CASE.join(","),
        "--html",
        html.to_str().unwrap(),
        "--json",
    ]);
    let records = records(&output);
    check_download(&records, &EVERY_CASE);
    for pair in ["midspan / haproxy", "midspan-forward / haproxy"] {
        let ratio = value(&records, &format!("300 KB {pair}"), "completion time ratio");
        assert!(ratio > 0.0);
    }
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && page.contains("middle") && !page.contains("<script"));
    // Where the numbers come from, and the path file to save.
    for part in [
        "<dt>Midspan</dt>",
        "<dt>processors</dt>",
        "<dt>programs</dt>",
        "<dt>seed of the first repetition</dt>",
        "nginx/",
        "HAProxy version ",
        "path.toml",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// One value of a sweep is slower than the other by the rate of its link. The second call measures
/// nothing and prints the same.
#[test]
fn a_sweep_is_continued() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv4", DOWNLOAD));
    let state = folder.path().join("runs.jsonl");
    let call = |sweep: &str| {
        midspan(&[
            "lab",
            file.to_str().unwrap(),
            "--against",
            "direct,midspan-forward",
            "--sweep",
            sweep,
            "--state",
            state.to_str().unwrap(),
            "--json",
        ])
    };
    let first = call("link.access.rate=5 Mbit/s");
    let one = records(&first);
    let both = call("link.access.rate=5 Mbit/s,20 Mbit/s");
    let told = String::from_utf8_lossy(&both.stderr).into_owned();
    let has_void = first.status.code() == Some(3);
    assert!(
        has_void || told.contains("4 runs, 2 of them finished already"),
        "{told}"
    );
    let both = records(&both);
    for case in ["direct", "midspan-forward"] {
        let at = |records: &[serde_json::Value], rate: &str| {
            let name = format!("300 KB {case}, link.access.rate = {rate}");
            value(records, &name, "completion time")
        };
        let (slow, fast) = (at(&both, "5 Mbit/s"), at(&both, "20 Mbit/s"));
        assert!(slow > 0.48 && slow > fast, "{case}: {slow} s, {fast} s");
        if !has_void {
            assert!((at(&one, "5 Mbit/s") - slow).abs() < 1e-9);
        }
        let ratio = "300 KB midspan-forward / direct, link.access.rate = 20 Mbit/s";
        assert!(value(&both, ratio, "completion time ratio") > 0.0);
    }
    // Another file is not written over.
    std::fs::write(&state, "something else\nin two lines\n").unwrap();
    let foreign = call("link.access.rate=5 Mbit/s");
    assert_eq!(foreign.status.code(), Some(1));
    assert_eq!(
        std::fs::read_to_string(&state).unwrap(),
        "something else\nin two lines\n"
    );
}

/// A transfer that takes too long is a row with a reason, and the others are measured.
#[test]
fn a_failed_transfer_does_not_end_a_sweep() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv4", DOWNLOAD));
    let output = midspan(&[
        "lab",
        file.to_str().unwrap(),
        "--against",
        "direct",
        "--sweep",
        "link.access.rate=10 kbit/s,10 Mbit/s",
        "--timeout",
        "4 s",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(3));
    let records = records(&output);
    let of = |rate: &str| {
        let name = format!("300 KB direct, link.access.rate = {rate}");
        let is_it = |record: &&serde_json::Value| {
            record["case"] == name.as_str() && record["quantity"] == "completion time"
        };
        records.iter().find(is_it).unwrap().clone()
    };
    assert!(of("10 kbit/s")["value"].is_null());
    assert!(
        of("10 kbit/s")["note"]
            .as_str()
            .unwrap()
            .contains("curl failed")
    );
    assert!(of("10 Mbit/s")["value"].as_f64().unwrap() > LEAST_SECONDS);
}

/// BBR on the servers, and PEPsal if it is installed.
#[test]
fn other_ways_download_too() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for family in ["ipv4", "ipv6"] {
        let file = path_file(folder.path(), &path(family, DOWNLOAD));
        let cases = "direct,direct-bbr,pepsal,midspan-early";
        let output = midspan(&["lab", file.to_str().unwrap(), "--against", cases, "--json"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let records = records(&output);
        check_download(&records, &["direct", "direct-bbr", "midspan-early"]);
        let ratio = |others: &str| {
            let case = format!("300 KB midspan-early / {others}");
            value(&records, &case, "completion time ratio")
        };
        assert!(ratio("direct-bbr") > 0.0);
        if errors.contains("skipped: no pepsal") {
            println!("skipped: PEPsal over {family}: {errors}");
            continue;
        }
        check_download(&records, &["pepsal"]);
        assert!(ratio("pepsal") > 0.0);
    }
}

/// Without PEPsal, the other cases are measured; without any other case, that is an error.
#[test]
fn without_pepsal_the_others_are_measured() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv4", DOWNLOAD));
    let lab = |cases: &str| {
        Command::new(MIDSPAN)
            .args([
                "lab",
                file.to_str().unwrap(),
                "--json",
                "-q",
                "--against",
                cases,
            ])
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .output()
            .unwrap()
    };
    if Path::new("/usr/bin/pepsal").exists() || Path::new("/usr/local/sbin/pepsal").exists() {
        return println!("skipped: PEPsal is installed in a folder of the system");
    }
    let output = lab("pepsal,direct");
    check_download(&records(&output), &["direct"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("skipped: no pepsal: pepsal is not installed"),
        "{errors}"
    );
    let output = lab("pepsal");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("no case is left"), "{errors}");
}

#[test]
fn ipv6_works_as_ipv4() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv6", DOWNLOAD));
    let cases = EVERY_CASE.join(",");
    let output = midspan(&["lab", file.to_str().unwrap(), "--against", &cases, "--json"]);
    check_download(&records(&output), &EVERY_CASE);
}

#[test]
fn an_ordinary_user_may() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv4", DOWNLOAD));
    let cases = EVERY_CASE.join(",");
    let arguments = ["lab", file.to_str().unwrap(), "--against", &cases, "--json"];
    if let Some(output) = midspan_as_ordinary_user(folder.path(), &arguments) {
        check_download(&records(&output), &EVERY_CASE);
    }
}

/// Runs the lab with another program in the place of `nft`.
fn lab_with_nft(instead: &str, file: &Path, case: &str) -> Output {
    let script = "mount --bind \"$1\" \"$(command -v nft)\" && shift && exec \"$@\"";
    Command::new("unshare")
        .args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            instead,
        ])
        .args([MIDSPAN, "lab", file.to_str().unwrap()])
        .args(["--against", case, "--json"])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .unwrap()
}

/// A program `nft` that fails, as on any machine that cannot intercept connections.
#[test]
fn where_nothing_can_be_intercepted_that_is_said() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv4", DOWNLOAD));
    let output = lab_with_nft("/bin/false", &file, "midspan");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("cannot intercept") && error.contains("midspan-forward"),
        "{error}"
    );
    let forward = lab_with_nft("/bin/false", &file, "midspan-forward");
    check_download(&records(&forward), &["midspan-forward"]);
}

/// A program `nft` that succeeds without setting rules: all connections pass untouched.
#[test]
fn a_run_in_which_nothing_is_intercepted_is_void() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path("ipv4", DOWNLOAD));
    let output = lab_with_nft("/bin/true", &file, "midspan");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{errors}");
    for proxy in ["near", "far"] {
        let reason = format!("the proxy \"{proxy}\" carried 0 connections of 1");
        assert!(errors.contains(&reason), "{errors}");
    }
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for record in object["records"].as_array().unwrap() {
        let note = record["note"].as_str().unwrap_or_default();
        assert!(note.contains("void"), "{record}");
    }
}

/// A program that keeps a processor busy while this value lives.
struct Busy(std::process::Child);

impl Busy {
    fn begin() -> Self {
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first machine on which a user tries Midspan may have other work.
#[test]
fn the_demo_succeeds_on_a_busy_machine_and_begins_with_its_result() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("demo.html");
    let busy = Busy::begin();
    let output = midspan(&[
        "demo",
        "--repetitions",
        "1",
        "--html",
        html.to_str().unwrap(),
    ]);
    drop(busy);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    for part in ["policy = \"auto\"", "no control", "started again"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    // Nothing is repeated, and a disturbance is stated once.
    assert!(
        !errors.contains("repeated") && !errors.contains("void"),
        "{errors}"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.matches("The machine was busy").count() <= 1, "{text}");
    let place = |part: &str| {
        text.find(part)
            .unwrap_or_else(|| panic!("no {part}: {text}"))
    };
    let sentence = place("1 MB over a satellite: in ");
    let (chart, table) = (place("█"), place("completion time (s)"));
    assert!(sentence < chart && chart < table, "{text}");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Through Midspan, 3 flows took"), "{page}");
}

#[test]
fn every_workload_runs() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let flow = |name: &str, rest: &str| {
        format!("[[flow]]\nname = \"{name}\"\nfrom = \"client\"\nto = \"server\"\n{rest}\n")
    };
    let flows = [
        flow("up", "workload = \"upload\"\nsize = \"200 KB\""),
        flow(
            "page",
            "workload = \"page\"\nobjects = 30\nsize = \"10 KB\"\nparallel = 6",
        ),
        flow(
            "asks",
            "workload = \"request-response\"\ncount = 5\nsize = \"1 KB\"",
        ),
        flow("bulk up", "workload = \"bulk-upload\"\nduration = \"1 s\""),
        flow(
            "bulk down",
            "workload = \"bulk-download\"\nduration = \"1 s\"",
        ),
    ]
    .concat();
    let file = path_file(folder.path(), &path("ipv4", &flows));
    let output = midspan(&["lab", file.to_str().unwrap(), "--json"]);
    let records = records(&output);
    for case in ["direct", "midspan"] {
        let of = |flow: &str, quantity| value(&records, &format!("{flow} {case}"), quantity);
        assert!(of("up", "completion time") > 0.16);
        assert!(of("page", "completion time") > LEAST_SECONDS);
        // Each request takes one round trip.
        assert!(of("asks", "completion time") > 0.040);
        for bulk in ["bulk up", "bulk down"] {
            let goodput = of(bulk, "goodput");
            assert!(goodput > 1e5 && goodput < 10e6, "{bulk} {case}: {goodput}");
        }
    }
}

#[test]
fn flows_may_run_together() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let flow = |name: &str, start: &str| {
        format!(
            "[[flow]]\nname = \"{name}\"\nfrom = \"client\"\nto = \"server\"\nstart = \"{start}\"\n\
             workload = \"download\"\nsize = \"500 KB\"\n"
        )
    };
    let flows = format!(
        "{}{}[run]\nflows = \"together\"\n",
        flow("a", "0 s"),
        flow("b", "10 ms")
    );
    let file = path_file(folder.path(), &path("ipv4", &flows));
    let output = midspan(&[
        "lab",
        file.to_str().unwrap(),
        "--against",
        "direct",
        "--json",
    ]);
    let records = records(&output);
    // Both flows share 10 Mbit/s, so the slower one takes at least the time of both in turn.
    let slower = value(&records, "a direct", "completion time").max(value(
        &records,
        "b direct",
        "completion time",
    ));
    assert!(slower > 2.0 * 500e3 * 8.0 / 10e6 - 0.02, "{slower} s");
}

#[test]
fn real_paths_are_measured_and_a_second_call_has_them_from_the_file() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("runs.jsonl");
    let state = state.to_str().unwrap();
    let chosen = ["lab", "paths", "lan", "--transfers", "100 KB", "--quick"];
    let kept = ["--state", state, "--json"];
    let output = midspan(&[&chosen[..], &kept].concat());
    let first = records(&output);
    for case in [
        "direct, CUBIC",
        "direct, BBR",
        "HAProxy, by hand",
        "Midspan, cold",
        "Midspan, learned",
    ] {
        let time = value(&first, &format!("lan, 100 KB, {case}"), "completion time");
        // At least two round trips of 0.4 ms.
        assert!(time > 0.0008, "{case}: {time} s");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("5 runs of about"), "{errors}");
    let second = midspan(&[&chosen[..], &kept, &["--only-finished"]].concat());
    assert_eq!(records(&second), first);
}

/// `make verify` tests the bounds in time, on a machine without other work. Here the bounds are so
/// wide that only a fault can exceed them.
fn holds(record: &serde_json::Value) -> bool {
    let value = record["value"].as_f64().unwrap();
    let quantity = record["quantity"].as_str().unwrap();
    let delays = ["delay error", "delivery error"];
    let is_delay = delays.iter().any(|delay| quantity.starts_with(delay));
    if is_delay || quantity.contains("round-trip time error") {
        value < 0.1
    } else if quantity == "rate error" {
        value < 0.2
    } else {
        record["ok"] == true
    }
}

#[test]
fn the_emulated_links_hold_or_say_that_they_did_not() {
    let _alone = alone();
    let output = midspan(&["lab", "verify", "--quick", "--json"]);
    let records = records(&output);
    assert!(records.len() > 10, "{} records", records.len());
    for record in &records {
        let void = record["note"].as_str().unwrap_or_default().contains("void");
        assert!(void || holds(record), "{record}");
    }
}

#[test]
fn mistakes_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let errors = |arguments: &[&str]| {
        let output = midspan(arguments);
        assert_eq!(output.status.code(), Some(1));
        // The message may have line breaks anywhere.
        String::from_utf8_lossy(&output.stderr)
            .replace(['│', '\n'], " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let text = path("ipv4", DOWNLOAD).replace("delay = \"10 ms\"", "dealy = \"10 ms\"");
    let file = path_file(folder.path(), &text);
    let error = errors(&["lab", file.to_str().unwrap()]);
    assert!(
        error.contains("dealy") && error.contains("delay") && error.contains(":21:"),
        "{error}"
    );
    let error = errors(&["lab", "goe"]);
    assert!(error.contains("did you mean `geo`"), "{error}");
    let error = errors(&["lab", "geo", "--flows", "1MB"]);
    assert!(error.contains("did you mean \"1 MB\""), "{error}");
}
