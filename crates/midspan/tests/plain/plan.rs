//! `midspan plan` and `midspan compare` as a user types them.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use crate::common::{midspan, records, value};

fn stdout(arguments: &[&str]) -> String {
    let output = midspan(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn error(arguments: &[&str]) -> String {
    let output = midspan(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn sample(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plan/tests/samples");
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_plan_has_text_tables_records_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (html, svg) = (file("plan.html"), file("plan.svg"));
    let text = stdout(&["plan", "geo", "--html", &html, "--plot", &svg]);
    for part in [
        "one connection end to end reaches",
        "gateway to client",
        "send buffer",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert!(
        std::fs::read_to_string(&html)
            .unwrap()
            .contains("end to end")
    );
    let found = records(&midspan(&["plan", "geo", "--json"]));
    let direct = value(&found, "server to client direct", "throughput");
    let split = value(&found, "server to client split", "throughput");
    assert!(split > 5.0 * direct, "{split} {direct}");
    assert!(found.iter().all(|record| record["by"] == "analysis"));
}

#[test]
fn the_configuration_that_is_recommended_is_one_that_the_proxy_reads() {
    let folder = tempfile::tempdir().unwrap();
    for (path, change) in [
        ("geo", "seed=1"),
        ("wifi", "seed=1"),
        ("lte", "seed=1"),
        ("geo", "proxy.gateway.client_leg.send_buffer=64 KiB"),
        ("geo", "proxy.gateway.client_leg.pacing_rate=15 Mbit/s"),
        ("maritime", "proxy.gateway.server_leg.keepalive=90 s"),
    ] {
        let file = folder.path().join("midspan.toml");
        let name = file.to_str().unwrap();
        stdout(&[
            "plan",
            path,
            "--set",
            change,
            "--write-config",
            name,
            "--force",
        ]);
        let rules = stdout(&["run", "--config", name, "--dry-run"]);
        assert!(rules.contains("table inet midspan"), "{rules}");
        let read = midspan_proxy::configuration::Configuration::load(&file).unwrap();
        assert_eq!(read.transparent().count(), 1);
    }
}

/// `plan --config FILE` once replaced the configuration of a gateway without a question.
#[test]
fn a_configuration_that_exists_is_never_replaced_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("midspan.toml");
    let name = file.to_str().unwrap();
    let old = "# the gateway's own\n";
    std::fs::write(&file, old).unwrap();
    let unchanged = || assert_eq!(std::fs::read_to_string(&file).unwrap(), old);
    for (arguments, parts) in [
        (
            &["--config", name][..],
            ["no option --config", "--write-config"],
        ),
        (&["--config", "-"], ["no option --config", "--write-config"]),
        (&["--write-config", name], ["exists already", "--force"]),
    ] {
        let errors = error(&[&["plan", "geo"], arguments].concat());
        let errors = errors.replace(['│', '\n'], " ");
        let errors = errors.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(errors.contains(part), "{part}: {errors}");
        }
        unchanged();
    }
    // A path without a proxy has no configuration, and a wrong key no plan.
    for wrong in [
        &["--set", "link.satellite.loss=much"][..],
        &["--proxy", "none"],
    ] {
        let write = ["plan", "geo", "--write-config", name, "--force"];
        error(&[&write[..], wrong].concat());
        unchanged();
    }
    stdout(&["plan", "geo", "--write-config", name, "--force"]);
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .contains("[[listener]]")
    );
    let names = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(names.count(), 1, "no temporary file is left");
}

#[test]
fn places_buffers_and_variants_are_told() {
    let places = records(&midspan(&["plan", "place", "tam", "--json"]));
    let two = places.iter().filter(|record| {
        record["case"]
            .as_str()
            .is_some_and(|case| case.contains(" and "))
    });
    assert_eq!(two.count(), 3, "three pairs of three nodes");
    let buffers = records(&midspan(&["plan", "buffers", "geo", "--json"]));
    let knee = value(&buffers, "server to client", "knee");
    assert!(knee > 1e6 && knee < 2e6, "{knee}");
    let variants = records(&midspan(&[
        "plan",
        "whatif",
        "geo",
        "link.satellite.loss=0",
        "link.satellite.loss=1 %",
        "--json",
    ]));
    let of = |item: &str| {
        let record = variants.iter().find(|record| {
            record["item"] == item
                && record["case"] == "server to client direct"
                && record["quantity"] == "throughput"
        });
        record.unwrap()["value"].as_f64().unwrap()
    };
    assert!(of("link.satellite.loss=0") > of("as it is"));
    assert!(of("as it is") > of("link.satellite.loss=1 %"));
}

#[test]
fn what_is_wrong_is_shown_in_its_place() {
    let errors = error(&["plan", "whatif", "geo", "link.satelite.loss=1 %"]);
    assert!(
        errors.contains("1:6") && errors.contains("did you mean `satellite`"),
        "{errors}"
    );
    let errors = error(&["plan", "geo", "--set", "link.satellite.loss=much"]);
    assert!(errors.contains("--set:1:21"), "{errors}");
    let errors = error(&["plan", "place", "geo", "--proxies", "5"]);
    assert!(errors.contains("5 proxies do not fit"), "{errors}");
    let errors = error(&["plan", "--from-pcap", &sample("ping.txt")]);
    assert!(errors.contains("its first four bytes"), "{errors}");
    assert!(error(&["plan"]).contains("<PATH>"), "{}", error(&["plan"]));
}

#[test]
fn measurements_are_planned_from() {
    for (option, file, quantity) in [
        ("--from-ss", "ss.txt", "loss"),
        ("--from-ping", "ping.txt", "round-trip time"),
        ("--from-iperf3", "iperf3.json", "throughput"),
        ("--from-pcap", "sender.pcap", "packets per ACK"),
        ("--from-metrics", "metrics.txt", "loss"),
    ] {
        let text = stdout(&["plan", option, &sample(file)]);
        assert!(
            text.contains("Not measured: ") && text.contains("Assumed: "),
            "{text}"
        );
        let found = records(&midspan(&[
            "plan",
            option,
            &sample(file),
            "--rate",
            "20 Mbit/s",
            "--json",
        ]));
        let measured = found.iter().filter(|record| record["by"] == "measurement");
        assert!(
            measured
                .clone()
                .any(|record| record["quantity"] == quantity),
            "{found:?}"
        );
        let direct = value(&found, "direct", "throughput");
        assert!(direct > 1e5 && direct <= 20e6, "{direct}");
    }
}

#[test]
fn an_agreement_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept");
    let name = file.to_str().unwrap();
    let run = || {
        midspan(&[
            "plan",
            "agreement",
            "--seeds",
            "31",
            "--state",
            name,
            "--json",
        ])
    };
    let first = records(&run());
    let kept = std::fs::read_to_string(&file).unwrap();
    // An interrupted run leaves an incomplete line.
    std::fs::write(&file, format!("{kept}77 12")).unwrap();
    let again = run();
    assert_eq!(first, records(&again));
    assert!(String::from_utf8_lossy(&again.stderr).contains("0 paths simulated"));
    std::fs::write(&file, "something else\n").unwrap();
    assert!(!run().status.success());
}

#[test]
fn analysis_and_simulation_stand_side_by_side() {
    let found = records(&midspan(&[
        "compare",
        "dsl",
        "--flows",
        "photo",
        "--without-lab",
        "--json",
    ]));
    for by in ["analysis", "simulation"] {
        let record = found
            .iter()
            .find(|record| record["by"] == by && record["quantity"] == "completion time");
        assert!(record.is_some(), "{by}: {found:?}");
    }
    let difference = value(&found, "photo direct", "analysis against simulation");
    assert!(difference.abs() < 0.1, "{difference}");
}

#[test]
fn a_paper_can_be_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("maki.html");
    // Other tests check the paper's claims.
    midspan(&[
        "reproduce",
        "maki",
        "figure 11",
        "--quick",
        "--html",
        file.to_str().unwrap(),
    ]);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("<svg"), "the figure is drawn");
}

/// The folder has each figure as numbers and as a picture; a folder with something in it is left as it is.
#[test]
fn the_figures_of_a_paper_fill_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("figures");
    let name = bundle.to_str().unwrap();
    let made = midspan(&["reproduce", "bhole", "--quick", "--bundle", name]);
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    let read = |file: &str| std::fs::read_to_string(bundle.join(file)).unwrap();
    let page = read("index.html");
    for part in [
        "midspan reproduce bhole --quick",
        "midspan reproduce bhole &#34;table 4&#34; --quick",
        "records.json",
        ">command</th>",
        ">time</th>",
        ">paper</th>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let environment: serde_json::Value = serde_json::from_str(&read("environment.json")).unwrap();
    assert!(environment["Midspan"].is_string() && environment["kernel"].is_string());
    let figures = std::fs::read_dir(bundle.join("bhole")).unwrap();
    let figures: Vec<String> = figures
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let drawn: Vec<&str> = figures
        .iter()
        .filter_map(|name| name.strip_suffix(".svg"))
        .collect();
    assert!(drawn.len() >= 7, "{figures:?}");
    for figure in drawn {
        let points = read(&format!("bhole/{figure}.csv"));
        assert!(
            points.starts_with("line,") && points.lines().count() > 2,
            "{points}"
        );
    }
    let again = error(&["reproduce", "bhole", "--bundle", name]);
    assert!(again.contains("is not empty"), "{again}");
    let alone = error(&["reproduce", "--all"]);
    assert!(alone.contains("--bundle"), "{alone}");
}
