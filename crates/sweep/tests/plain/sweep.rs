//! Sweeps over a small path.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use std::ops::ControlFlow;

use midspan_document::{Override, Source, Sweep};
use midspan_records::Store;
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_sweep::{
    Case, Counts, Error, Execution, Part, Plan, RUNS, Row, Status, Step, StoredRun,
};

const PATH: &str = r#"
[[host]]
name = "client"
[[proxy]]
name = "gateway"
[[host]]
name = "server"
[[link]]
name = "wireless"
between = ["client", "gateway"]
rate = "10 Mbit/s"
delay = "20 ms"
loss = "1 %"
[[link]]
name = "wire.1"
between = ["gateway", "server"]
rate = "50 Mbit/s"
delay = "30 ms"
[[flow]]
name = "0.1 MB"
from = "client"
to = "server"
workload = "download"
size = "100 KB"
[[flow]]
name = "talk"
from = "client"
to = "server"
workload = "request-response"
count = 4
size = "2 KB"
"#;

fn plan(overrides: &[&str], sweeps: &[&str]) -> Plan {
    Plan {
        source: Source::new("small.toml", PATH),
        overrides: overrides
            .iter()
            .map(|text| Override::parse("--set", text).unwrap())
            .collect(),
        sweeps: sweeps
            .iter()
            .map(|text| Sweep::parse("--sweep", text).unwrap())
            .collect(),
        cases: Vec::new(),
        flows: Vec::new(),
        repetitions: 3,
        seed: Some(5),
    }
}

/// All rows.
fn execution(threads: usize) -> Execution {
    Execution {
        threads,
        part: Part::All,
        commit: "0123456789ab".into(),
    }
}

fn run_on(plan: &Plan, threads: usize) -> Result<Vec<Row>, Error> {
    let mut store = Store::in_memory(RUNS);
    let runs = plan.runs()?;
    runs.make(&execution(threads), &mut store, |_| {
        ControlFlow::Continue(())
    })
}

fn run(plan: &Plan) -> Result<Vec<Row>, Error> {
    run_on(plan, 2)
}

fn error(overrides: &[&str]) -> String {
    run(&plan(overrides, &[])).unwrap_err().to_string()
}

#[test]
fn every_combination_runs_with_the_same_seeds() {
    let plan = plan(
        &["flow.talk.count=5"],
        &[
            "link.wireless.loss=0 %,2 %,0 %",
            "link.wire.1.delay=10 ms..30 ms:2",
        ],
    );
    let (mut told, mut told_rows) = (0, Vec::new());
    let runs = plan.runs().unwrap();
    let rows = runs.make(&execution(2), &mut Store::in_memory(RUNS), |step| {
        match step {
            Step::Run => told += 1,
            Step::Point { rows, .. } => told_rows.extend(rows.to_vec()),
        }
        ControlFlow::Continue(())
    });
    let rows = rows.unwrap();
    // 3 · 2 points, without and with proxies, three times each.
    let counts = runs.counts(&Part::All, &Store::in_memory(RUNS));
    assert_eq!((told, counts.runs, counts.left), (36, 36, 36));
    assert_eq!(told_rows, rows);
    assert!(
        rows.iter()
            .all(|row| row.status() == Status::Ok && row.reason().is_none())
    );
    let times: Vec<_> = rows
        .iter()
        .filter(|row| row.quantity == &COMPLETION_TIME)
        .collect();
    assert_eq!(times.len(), 24);
    // The third value of the first axis equals the first one: the same draws, the same results.
    for (one, other) in times[..8].iter().zip(&times[16..]) {
        assert_eq!((&one.flow, &one.values), (&other.flow, &other.values));
        assert_eq!(one.values.len(), 3);
    }
    let sum = |row: &&midspan_sweep::Row| row.values.iter().sum::<f64>();
    let pairs: Vec<(f64, f64)> = times[8..16]
        .iter()
        .zip(&times[..8])
        .map(|(lossy, clean)| (sum(lossy), sum(clean)))
        .collect();
    assert!(
        pairs.iter().all(|(lossy, clean)| lossy >= clean),
        "{pairs:?}"
    );
    assert!(
        pairs.iter().filter(|(lossy, clean)| lossy > clean).count() >= 4,
        "{pairs:?}"
    );
    for threads in [1, 3] {
        assert_eq!(run_on(&plan, threads).unwrap(), rows, "{threads} threads");
    }
}

#[test]
fn five_answers_take_six_round_trips_and_the_transmissions() {
    let plan = plan(&["flow.talk.count=5", "link.wireless.loss=0 %"], &[]);
    let rows = run(&plan).unwrap();
    let talk = rows
        .iter()
        .find(|row| row.flow == "talk" && row.case == Case::Direct)
        .unwrap();
    assert!((0.6..0.62).contains(&talk.values[0]), "{talk:?}");
}

#[test]
fn a_table_that_the_file_leaves_out_is_made() {
    let limit = "proxy.gateway.client_leg.pacing_rate=1 Mbit/s";
    let rows = run(&plan(&[limit, "link.wireless.loss=0 %"], &[])).unwrap();
    let slow = rows
        .iter()
        .find(|row| row.case == Case::Midspan && row.quantity == &GOODPUT)
        .unwrap();
    assert!(slow.values[0] < 1e6, "{slow:?}");
    run(&plan(&["link.wireless.up.rate=5 Mbit/s", "seed=9"], &[])).unwrap();
}

#[test]
fn errors_say_what_and_where() {
    assert_eq!(
        error(&["link.wireles.loss=1 %"]),
        "--set:1:6: there is none called \"wireles\" (did you mean `wireless`?)"
    );
    assert!(error(&["link.wireless.los=1 %"]).contains("did you mean `loss`?"));
    assert!(error(&["link.wireless.loss=200 %"]).contains("200 %"));
    assert!(error(&["link.wireless.rate=0 bit/s"]).contains("0 bit/s"));
    let located = run(&plan(&["flow.talk.count=x"], &[])).unwrap_err();
    assert!(matches!(located, Error::Located(_)), "{located}");
    assert!(located.to_string().contains("--set:1:17: "), "{located}");
    let mut unknown = plan(&[], &[]);
    unknown.flows.push("tallk".into());
    let text = run(&unknown).unwrap_err().to_string();
    assert!(text.contains("did you mean `talk`?"), "{text}");
}

/// An outage from this time on.
fn outage(at: &str) -> Plan {
    let schedule = format!("schedule = {{ steps = [{{ at = \"{at}\", loss = \"100 %\" }}] }}");
    Plan {
        source: Source::new("outage.toml", PATH.replace("loss = \"1 %\"", &schedule)),
        ..plan(&[], &[])
    }
}

#[test]
fn what_can_never_finish_is_stopped_with_the_reason() {
    let rows = run(&outage("60 ms")).unwrap();
    // Two flows, without proxies and with them.
    assert_eq!(rows.len(), 4, "{rows:?}");
    for row in &rows {
        assert_eq!(
            (row.status(), row.quantity),
            (Status::Failed, &COMPLETION_TIME)
        );
        assert!(row.values.is_empty());
        let reason = row.reason().unwrap();
        assert!(
            reason
                .starts_with("3 of 3 runs failed, the first with seed 5: can never finish: leg 1"),
            "{reason}"
        );
    }
}

#[test]
fn a_point_that_fails_does_not_end_the_others() {
    let mut plan = outage("60 ms");
    plan.sweeps = vec![Sweep::parse("--sweep", "flow.0.1 MB.size=1 KB,100 KB,2 KB").unwrap()];
    plan.flows = vec!["0.1 MB".into()];
    // A file of 1 KB arrives before the outage only if it is sent at once.
    plan.overrides = ["link.wireless.delay=1 ms", "link.wire.1.delay=1 ms"]
        .map(|text| Override::parse("--set", text).unwrap())
        .to_vec();
    let rows = run(&plan).unwrap();
    let statuses: Vec<(&str, Status)> = rows
        .iter()
        .filter(|row| row.quantity == &COMPLETION_TIME && row.case == Case::Direct)
        .map(|row| (row.point[0].as_str(), row.status()))
        .collect();
    let expected = [
        ("1 KB", Status::Ok),
        ("100 KB", Status::Failed),
        ("2 KB", Status::Ok),
    ];
    assert_eq!(statuses, expected);
    assert_eq!(run_on(&plan, 1).unwrap(), rows, "one thread");
}

#[test]
fn some_runs_of_a_point_may_fail() {
    // With so much loss, a connection is given up in some runs and not in others.
    let mut plan = plan(&["link.wireless.loss=75 %", "flow.talk.count=1"], &[]);
    plan.flows = vec!["talk".into()];
    plan.repetitions = 40;
    let rows = run(&plan).unwrap();
    let row = &rows[0];
    assert_eq!(row.status(), Status::Partial, "{row:?}");
    let failure = row.failure.as_ref().unwrap();
    assert_eq!((failure.runs, failure.failed + row.values.len()), (40, 40));
    let reason = row.reason().unwrap();
    assert!(
        reason.contains(" of 40 runs failed, the first with seed "),
        "{reason}"
    );
    // The named seed fails by itself.
    plan.seed = Some(failure.seed);
    plan.repetitions = 1;
    assert_eq!(run(&plan).unwrap()[0].status(), Status::Failed);
}

#[test]
fn a_sweep_that_is_stopped_has_the_points_that_were_complete() {
    let plan = plan(&[], &["link.wireless.loss=0 %,1 %,2 %"]);
    let all = run(&plan).unwrap();
    let mut told = 0;
    let mut store = Store::in_memory(RUNS);
    let runs = plan.runs().unwrap();
    let rows = runs.make(&execution(1), &mut store, |step| match step {
        Step::Run => ControlFlow::Continue(()),
        Step::Point { rows, .. } => {
            told += rows.len();
            ControlFlow::Break(())
        }
    });
    let rows = rows.unwrap();
    assert_eq!((rows.len(), rows.as_slice()), (told, &all[..told]));
    assert!(!rows.is_empty() && rows.len() < all.len());
}

#[test]
fn the_congestion_control_of_the_path_runs() {
    let with = |control: &str, key: &str| {
        let control = format!("{key}.congestion_control={control}");
        let mut plan = plan(&[&control], &[]);
        plan.flows = vec!["0.1 MB".into()];
        run(&plan).unwrap()
    };
    let values = |rows: &[midspan_sweep::Row], case: Case| -> Vec<Vec<f64>> {
        let rows = rows.iter().filter(|row| row.case == case);
        rows.map(|row| row.values.clone()).collect()
    };
    let leg = "proxy.gateway.client_leg";
    let (bbr, cubic) = (with("bbr", leg), with("cubic", leg));
    assert_ne!(values(&bbr, Case::Midspan), values(&cubic, Case::Midspan));
    // Without its proxies, the path has no BBR.
    assert_eq!(values(&bbr, Case::Direct), values(&cubic, Case::Direct));
    // The flow is a download: neither the leg to the server nor the client sends its data.
    for silent in ["proxy.gateway.server_leg", "host.client"] {
        assert_eq!(
            values(&with("bbr", silent), Case::Midspan),
            values(&with("cubic", silent), Case::Midspan)
        );
    }
    // A congestion control that the simulator lacks is a reason.
    let refused = with("vegas", "host.server");
    assert!(refused.iter().all(|row| {
        row.reason()
            .unwrap()
            .contains("no congestion control \"vegas\"")
    }));
}

/// How many runs a call with this store makes, and the rows and runs as text.
fn make(plan: &Plan, part: Part, store: &mut Store<StoredRun>) -> (usize, String) {
    let (mut made, mut text) = (0, String::new());
    let execution = Execution {
        part,
        ..execution(2)
    };
    let each = |step: Step<'_>| {
        match step {
            Step::Run => made += 1,
            Step::Point { rows, runs } => text.push_str(&format!("{rows:?} {runs:?}\n")),
        }
        ControlFlow::Continue(())
    };
    plan.runs().unwrap().make(&execution, store, each).unwrap();
    (made, text)
}

#[test]
fn stored_runs_are_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Store::<StoredRun>::open(&folder.path().join(name), RUNS).unwrap();
    // Flows that fail are results, too.
    let mut plan = outage("60 ms");
    plan.sweeps = vec![Sweep::parse("--sweep", "flow.0.1 MB.size=1 KB,100 KB").unwrap()];
    let (made, all) = make(&plan, Part::All, &mut open("all"));
    assert_eq!(made, 12);
    assert_eq!(make(&plan, Part::All, &mut open("all")), (0, all.clone()));
    // More repetitions: only these are made.
    plan.repetitions = 4;
    let counts = plan.runs().unwrap().counts(&Part::All, &open("all"));
    let expected = Counts {
        runs: 16,
        stored: 12,
        left: 4,
    };
    assert_eq!(counts, expected);
    plan.repetitions = 3;

    // Parts, one of them twice, in a folder and in a file.
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (shard, name, left) in [
        ("1/3", "folder", 4),
        ("0/3", "file", 4),
        ("1/3", "folder", 0),
    ] {
        let (made, _) = make(&plan, Part::Shard(shard.parse().unwrap()), &mut open(name));
        assert_eq!(made, left, "{shard}");
    }
    let shard = Part::Shard("2/3".parse().unwrap());
    let left = plan.runs().unwrap().missing(&shard, &open("file"));
    assert_eq!(left, [2, 5, 8, 11]);
    let (made, _) = make(
        &plan,
        Part::Runs(left.into_iter().collect()),
        &mut open("file"),
    );
    assert_eq!(made, 4);
    let merge = |parts: &[&str], to: &str| {
        let parts: Vec<_> = parts.iter().map(|part| folder.path().join(part)).collect();
        let to = folder.path().join(to);
        midspan_records::merge(&parts, &to).unwrap();
        std::fs::read_to_string(to).unwrap()
    };
    let parts = merge(&["folder", "file"], "parts");
    assert_eq!(merge(&["all"], "serial"), parts, "byte for byte");
    assert_eq!(make(&plan, Part::All, &mut open("parts")), (0, all));
}

#[test]
fn each_run_is_in_the_folder_as_soon_as_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let runs = plan(&[], &[]).runs().unwrap();
    let part = Part::Runs([0, 2, 3].into());
    let keys = runs.keys(&part);
    assert_eq!(keys.len(), 3);
    let open = || Store::<StoredRun>::open_some(folder.path(), RUNS, &keys).unwrap();
    let execution = Execution {
        part,
        ..execution(1)
    };
    let mut made = 0;
    let mut make_until = |last: usize| {
        let each = |step: Step<'_>| {
            if let Step::Run = step {
                made += 1;
                assert_eq!(open().len(), made);
            }
            if made == last {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        runs.make(&execution, &mut open(), each).unwrap();
        made
    };
    assert_eq!(make_until(1), 1);
    // What was stored before the end of the first call is not made again.
    assert_eq!(make_until(100), 3);
    assert_eq!(make_until(100), 3);
}

#[test]
fn a_stored_run_that_does_not_fit_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    let open = || Store::<StoredRun>::open(&name, RUNS).unwrap();
    let plan = plan(&[], &[]);
    let (_, all) = make(&plan, Part::All, &mut open());
    let text = std::fs::read_to_string(&name).unwrap();
    std::fs::write(&name, text.replacen("goodput", "weight", 1)).unwrap();
    assert_eq!(make(&plan, Part::All, &mut open()), (1, all.clone()));
    // Neither another version nor another seed is taken.
    std::fs::write(&name, text.replace(&format!("\"{RUNS}\""), "\"sim 0\"")).unwrap();
    assert_eq!(make(&plan, Part::All, &mut open()), (6, all));
    let other = Plan {
        seed: Some(1000),
        ..plan
    };
    assert_eq!(make(&other, Part::All, &mut open()).0, 6);
}

#[test]
fn a_store_that_cannot_be_written_ends_the_sweep_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    std::fs::create_dir(&name).unwrap();
    let mut store = Store::<StoredRun>::open(&name, RUNS).unwrap();
    std::fs::remove_dir(&name).unwrap();
    let mut made = 0;
    let runs = plan(&[], &[]).runs().unwrap();
    let result = runs.make(&execution(1), &mut store, |_| {
        made += 1;
        ControlFlow::Continue(())
    });
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    assert!(error.to_string().contains("runs"), "{error}");
    assert_eq!(made, 0);
}

/// Three sites; the third one is better if the direct link is long.
fn triangle(delay: &str) -> Plan {
    let mut plan = Plan {
        source: midspan_path::source("triangle").unwrap(),
        cases: vec![
            Case::Direct,
            Case::EachOverlayStatic,
            Case::Oracle,
            Case::Direct,
        ],
        flows: vec!["100 KB".to_owned()],
        ..plan(&[], &[])
    };
    let changes = [
        format!("link.direct.delay={delay}"),
        "link.direct.loss=0 %".to_owned(),
        "link.second.loss=0 %".to_owned(),
    ];
    plan.overrides = changes
        .map(|text| Override::parse("--set", &text).unwrap())
        .to_vec();
    plan
}

#[test]
fn the_oracle_has_the_best_overlay_route_of_each_run() {
    for (delay, best) in [("300 ms", "fra/sin"), ("10 ms", "sin")] {
        let plan = triangle(delay);
        let mut store = Store::in_memory(RUNS);
        let mut rows: Vec<Row> = Vec::new();
        let mut routes: Vec<Option<String>> = Vec::new();
        let execution = Execution {
            threads: 2,
            part: Part::All,
            commit: String::new(),
        };
        plan.runs()
            .unwrap()
            .make(&execution, &mut store, |step| {
                if let Step::Point { rows: new, runs } = step {
                    rows.extend(
                        new.iter()
                            .filter(|row| row.quantity == &COMPLETION_TIME)
                            .cloned(),
                    );
                    let oracle = runs.iter().filter(|run| run.case == Case::Oracle);
                    routes.extend(oracle.map(|run| run.route.clone()));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        let cases: Vec<String> = rows.iter().map(|row| row.case.to_string()).collect();
        assert_eq!(
            cases,
            [
                "direct",
                "overlay-static=here",
                "overlay-static=sin",
                "overlay-static=fra/sin",
                "oracle"
            ]
        );
        let (oracle, others) = rows.split_last().unwrap();
        let of_best = (others.iter()).find(|row| row.case.to_string().ends_with(best));
        assert_eq!(oracle.values, of_best.unwrap().values, "{delay}");
        assert_eq!(routes, vec![Some(best.to_owned()); 3], "{delay}");
        for other in &others[1..] {
            let pairs = oracle.values.iter().zip(&other.values);
            assert!(pairs.into_iter().all(|(least, value)| least <= value));
        }
        // What is stored has the route, too.
        let mut again = Vec::new();
        plan.runs()
            .unwrap()
            .make(&execution, &mut store, |step| {
                if let Step::Point { runs, .. } = step {
                    again.extend(runs.iter().filter_map(|run| run.route.clone()));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(again.len(), 3);
    }
}

#[test]
fn a_case_that_the_path_does_not_have_is_an_error_before_the_first_run() {
    let mut wrong = triangle("10 ms");
    for (case, reason) in [
        ("overlay-static=sni", "no node is called \"sni\""),
        ("overlay-static=fra", "\"fra\" is no exit"),
    ] {
        wrong.cases = vec![case.parse().unwrap()];
        let error = run(&wrong).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let mut without = plan(&[], &[]);
    without.cases = vec![Case::Oracle];
    let error = run(&without).unwrap_err().to_string();
    assert!(error.contains("no overlay node"), "{error}");
}

#[test]
fn overlay_nodes_choose_the_route_and_the_run_names_it() {
    for (delay, best) in [("300 ms", "fra/sin"), ("10 ms", "sin")] {
        let mut plan = triangle(delay);
        plan.cases = vec![Case::Overlay];
        let mut store = Store::in_memory(RUNS);
        let execution = Execution {
            threads: 2,
            part: Part::All,
            commit: String::new(),
        };
        let mut routes = Vec::new();
        plan.runs()
            .unwrap()
            .make(&execution, &mut store, |step| {
                if let Step::Point { runs, .. } = step {
                    assert!(runs.iter().all(|run| run.outcome.is_ok()), "{runs:?}");
                    routes.extend(runs.iter().map(|run| run.route.clone()));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(routes, vec![Some(best.to_owned()); 3], "{delay}");
    }
}
