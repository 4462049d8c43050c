//! Sessions that start by what earlier ones of the same client have left, and what a policy cannot
//! have in the simulator.

#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_path::Path;
use midspan_sim::tcp::Variant;
use midspan_sim::{FlowResults, PathFlowParts, Scenario, Simulation};
use midspan_units::TimeSpan;

/// Two clients behind one long access link each, a proxy, and flows.
fn path(policy: &str, loss: &str, flows: &str) -> Path {
    let text = format!(
        r#"
[[host]]
name = "client"
[[host]]
name = "other"
[[proxy]]
name = "proxy"
policy = "{policy}"
[[host]]
name = "server"
[[link]]
name = "access"
between = ["client", "proxy"]
rate = "50 Mbit/s"
delay = "250 ms"
queue = "4 MB"
loss = "{loss}"
[[link]]
name = "other-access"
between = ["other", "proxy"]
rate = "50 Mbit/s"
delay = "250 ms"
queue = "4 MB"
[[link]]
name = "core"
between = ["proxy", "server"]
rate = "1 Gbit/s"
delay = "5 ms"
queue = "4 MB"
{flows}
[run]
flows = "together"
"#
    );
    Path::read(&Source::new("test", text.as_str())).unwrap()
}

fn download(name: &str, from: &str, start: u32, size: &str) -> String {
    format!(
        "[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"server\"\n\
         workload = \"download\"\nsize = \"{size}\"\nstart = \"{start} s\"\n"
    )
}

/// How long each flow took, and whether its proxy sent with BBR at the end.
fn run(path: &Path) -> Vec<(TimeSpan, bool)> {
    let made = Scenario::from_path(path, true).unwrap().remove(0);
    let mut simulation = Simulation::new(&made.scenario).unwrap();
    let results = simulation.run();
    let of = |parts: &PathFlowParts| {
        let flow: &FlowResults = &results.flows[parts.data[0].0];
        let start = path.flows[parts.flow].start;
        let end = flow.finished.unwrap().nanoseconds();
        let took = TimeSpan::from_nanoseconds(end - start.nanoseconds());
        let sender = simulation.sender(parts.data[0], 1).unwrap();
        (took, sender.configuration().variant == Variant::Bbr)
    };
    made.flows.iter().map(of).collect()
}

fn times(path: &Path) -> Vec<TimeSpan> {
    run(path).into_iter().map(|(took, _)| took).collect()
}

/// Whether times differ by less than a millisecond: requests of other flows shift packets a little.
fn is_close(one: TimeSpan, other: TimeSpan) -> bool {
    one.nanoseconds().abs_diff(other.nanoseconds()) < 1_000_000
}

const ROUND_TRIP: TimeSpan = TimeSpan::from_milliseconds(500);

#[test]
fn a_first_start_is_larger_and_a_known_path_larger_still() {
    let flows = [
        download("first", "client", 0, "20 MB"),
        download("second", "client", 60, "20 MB"),
        download("stranger", "other", 120, "20 MB"),
    ];
    let flows = flows.concat();
    let auto = times(&path("auto", "0", &flows));
    let configured = times(&path("configured", "0", &flows));
    // 80 segments instead of 10 save at least two doublings.
    assert!(
        auto[0] + ROUND_TRIP <= configured[0],
        "{auto:?} {configured:?}"
    );
    assert!(auto[1] + ROUND_TRIP / 2 <= auto[0], "{auto:?}");
    // Another client is not known: the handshake has shown that both legs are long, and both starts are bounded.
    assert!(is_close(auto[2], auto[0]), "{auto:?}");
    assert!(auto[1] < auto[2], "{auto:?}");
    assert!(is_close(configured[1], configured[0]), "{configured:?}");
}

#[test]
fn a_configured_window_is_not_replaced() {
    let text = download("first", "client", 0, "2 MB") + &download("next", "client", 60, "2 MB");
    let mut path = path("auto", "0", &text);
    for node in &mut path.nodes {
        if let midspan_path::NodeKind::Proxy(settings) = &mut node.kind {
            settings.client_leg.initial_window = Some(10);
        }
    }
    let [first, next] = times(&path)[..] else {
        panic!("two flows");
    };
    // Another window would save round trips. What the first session shows of the client's window is used
    // earlier by the next one, so their times differ a little.
    let difference = first.nanoseconds().abs_diff(next.nanoseconds());
    assert!(
        difference < ROUND_TRIP.nanoseconds() / 10,
        "{first:?} {next:?}"
    );
}

#[test]
fn those_that_start_at_once_share_what_a_cold_start_may_take() {
    let alone = times(&path(
        "auto",
        "0",
        &download("alone", "client", 0, "100 KB"),
    ));
    let many: Vec<String> = (0..8)
        .map(|number| download(&format!("f{number}"), "client", 0, "100 KB"))
        .collect();
    let many = times(&path("auto", "0", &many.concat()));
    // The first gets 80 segments, the last ten. The flights of the others delay the first by some milliseconds.
    assert!(many[0] < alone[0] + ROUND_TRIP / 2, "{many:?} {alone:?}");
    assert!(
        many[7] + ROUND_TRIP / 20 >= many[0] + ROUND_TRIP,
        "{many:?}"
    );
}

#[test]
fn a_choice_of_bbr_is_carried_out_and_learned() {
    let flows = download("first", "client", 0, "4 MB") + &download("next", "client", 300, "100 KB");
    let chosen = |policy| -> Vec<bool> {
        let path = path(policy, "1 %", &flows);
        run(&path).into_iter().map(|(_, bbr)| bbr).collect()
    };
    assert_eq!(chosen("auto"), [true, true]);
    assert_eq!(chosen("configured"), [false, false]);
    let clean = run(&path("auto", "0", &flows));
    assert!(clean.iter().all(|(_, bbr)| !bbr));
}
