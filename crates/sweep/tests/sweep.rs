//! Sweeps over a small path.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_document::{Override, Source, Sweep};
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_sweep::{Error, Plan};

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
        flows: Vec::new(),
        repetitions: 3,
        seed: Some(5),
        threads: 2,
    }
}

fn error(overrides: &[&str]) -> String {
    plan(overrides, &[]).run(|| ()).unwrap_err().to_string()
}

#[test]
fn every_combination_runs_with_the_same_seeds() {
    let mut plan = plan(
        &["flow.talk.count=5"],
        &[
            "link.wireless.loss=0 %,2 %,0 %",
            "link.wire.1.delay=10 ms..30 ms:2",
        ],
    );
    let mut told = 0;
    let rows = plan.run(|| told += 1).unwrap();
    // 3 · 2 points, without and with proxies, three times each.
    assert_eq!((told, plan.runs().unwrap()), (36, 36));
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
        plan.threads = threads;
        assert_eq!(plan.run(|| ()).unwrap(), rows, "{threads} threads");
    }
}

#[test]
fn five_answers_take_six_round_trips_and_the_transmissions() {
    let plan = plan(&["flow.talk.count=5", "link.wireless.loss=0 %"], &[]);
    let rows = plan.run(|| ()).unwrap();
    let talk = rows
        .iter()
        .find(|row| row.flow == "talk" && !row.proxies)
        .unwrap();
    assert!((0.6..0.62).contains(&talk.values[0]), "{talk:?}");
}

#[test]
fn a_policy_that_chooses_bbr_is_noted() {
    let notes = |policy: &str| -> Vec<Option<&str>> {
        let policy = format!("proxy.gateway.policy={policy}");
        let settings = [
            policy.as_str(),
            "flow.0.1 MB.size=10 MB",
            "link.wireless.delay=200 ms",
        ];
        let mut plan = plan(&settings, &[]);
        plan.flows = vec!["0.1 MB".into()];
        let rows = plan.run(|| ()).unwrap();
        let rows = rows.into_iter().filter(|row| row.proxies);
        rows.map(|row| row.note).collect()
    };
    let noted = notes("auto");
    assert!(!noted.is_empty());
    assert!(
        noted
            .iter()
            .all(|note| note.is_some_and(|note| note.contains("BBR")))
    );
    assert!(notes("configured").iter().all(Option::is_none));
}

#[test]
fn a_table_that_the_file_leaves_out_is_made() {
    let limit = "proxy.gateway.client_leg.pacing_rate=1 Mbit/s";
    let rows = plan(&[limit, "link.wireless.loss=0 %"], &[])
        .run(|| ())
        .unwrap();
    let slow = rows
        .iter()
        .find(|row| row.proxies && row.quantity == &GOODPUT)
        .unwrap();
    assert!(slow.values[0] < 1e6, "{slow:?}");
    plan(&["link.wireless.up.rate=5 Mbit/s", "seed=9"], &[])
        .run(|| ())
        .unwrap();
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
    let located = plan(&["flow.talk.count=x"], &[]).run(|| ()).unwrap_err();
    assert!(matches!(located, Error::Located(_)), "{located}");
    assert!(located.to_string().contains("--set:1:17: "), "{located}");
    let mut unknown = plan(&[], &[]);
    unknown.flows.push("tallk".into());
    let text = unknown.run(|| ()).unwrap_err().to_string();
    assert!(text.contains("did you mean `talk`?"), "{text}");
}

#[test]
fn what_can_never_finish_is_stopped_with_the_reason() {
    // An outage from the first second on.
    let path = PATH.replace(
        "loss = \"1 %\"",
        "schedule = { steps = [{ at = \"60 ms\", loss = \"100 %\" }] }",
    );
    let plan = Plan {
        source: Source::new("outage.toml", path),
        ..plan(&[], &[])
    };
    let text = plan.run(|| ()).unwrap_err().to_string();
    assert!(
        text.starts_with("the simulation of \"outage\" was stopped: flow \"0.1 MB\" can never"),
        "{text}"
    );
    assert!(text.contains("leg 1 was given up after"), "{text}");
}
