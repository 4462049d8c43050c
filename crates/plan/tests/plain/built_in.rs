//! The built-in paths: their plans make sense.

#![allow(clippy::unwrap_used)]

use midspan_model::leg::Limit;
use midspan_path::{Path, built_in};
use midspan_plan::{Answer, DataPath, Plan, PlanError, buffers};

fn plan(name: &str) -> Plan {
    Plan::new(&Path::load(name).unwrap()).unwrap()
}

#[test]
fn every_built_in_path_has_a_plan() {
    for path in built_in() {
        let plan = plan(path.name);
        assert!(!plan.data_paths.is_empty());
        assert!(
            plan.text().contains("one connection end to end reaches"),
            "{}",
            plan.text()
        );
        let mut proxies = plan.proxies();
        proxies.sort_unstable();
        // The hub of a two-sided path is paced at 0.95 of the rate of its link.
        let (expected, least): (&[&str], f64) = match path.name {
            "two-sided-geo" | "two-sided-geo-clean" => (&["hub", "terminal"], 0.94),
            "triangle" | "no-gain" | "brownout" | "outage" => (&["ams", "sin"], 0.98),
            "mesh5" => (&["cpt", "syd"], 0.98),
            "mesh10" => (&["cpt", "hnd"], 0.98),
            "two-uplinks" => (&["port", "ship", "teleport"], 0.98),
            _ => (&["gateway"], 0.98),
        };
        assert_eq!(proxies, expected, "{}", path.name);
        for data_path in &plan.data_paths {
            let (direct, split) = (&data_path.direct, data_path.split.as_ref().unwrap());
            assert!(
                split.throughput() > direct.throughput() * least,
                "{}",
                path.name
            );
            if let Some(advised) = &data_path.advised {
                assert!(
                    advised.throughput() > split.throughput() * 0.98,
                    "{}",
                    path.name
                );
            }
        }
    }
}

#[test]
fn flows_both_ways_make_two_ways_and_equal_ones_make_one() {
    assert_eq!(plan("lte").data_paths.len(), 2);
    assert_eq!(plan("geo").data_paths.len(), 1);
    let names: Vec<String> = plan("lte")
        .data_paths
        .iter()
        .map(|data_path| data_path.data_path.name())
        .collect();
    assert_eq!(names, ["server to client", "client to server"]);
}

#[test]
fn geo_is_bound_by_loss_and_split_it_is_not() {
    let plan = plan("geo");
    let data_path = &plan.data_paths[0];
    assert_eq!(data_path.direct.outcome.limit(), Limit::Loss);
    let gain = data_path.split.as_ref().unwrap().throughput() / data_path.direct.throughput();
    assert!(gain > 5.0, "{gain}");
}

#[test]
fn narrow_upstreams_ask_for_fewer_acks() {
    let plan = plan("hasegawa");
    let acks = &plan.data_paths[0].advice[0].acks;
    assert!(acks.congested() && acks.packets_per_ack == 9, "{acks:?}");
    assert!(acks.segment.fragments > 1 && acks.segment.segment > 4000);
    assert_eq!(
        plan.data_paths[0].direct.outcome.limit(),
        Limit::Acknowledgements
    );
    assert!(
        plan.text().contains("Thin ACKs from client"),
        "{}",
        plan.text()
    );
}

#[test]
fn small_buffers_are_seen_and_raised() {
    use midspan_document::Override;
    let set = |text: &str| Override::parse("--set", text).unwrap();
    let changes = [set("proxy.gateway.client_leg.send_buffer=64 KiB")];
    let path = Path::load_with("geo", &changes).unwrap();
    let plan = Plan::new(&path).unwrap();
    let data_path = &plan.data_paths[0];
    assert_eq!(
        data_path.split.as_ref().unwrap().outcome.limit(),
        Limit::SendBuffer
    );
    assert!(
        plan.text().contains("Set the send buffer of gateway"),
        "{}",
        plan.text()
    );
    let advised = data_path.advised.as_ref().unwrap();
    assert!(advised.throughput() > 10.0 * data_path.split.as_ref().unwrap().throughput());
    let text = plan.configuration("gateway").unwrap();
    assert!(
        text.contains("send_buffer = ") && text.contains("congestion_control = \"bbr\""),
        "{text}"
    );
    assert_eq!(plan.configuration("server"), None);
}

#[test]
fn bursts_that_overflow_a_queue_are_paced() {
    use midspan_document::Override;
    // A loss before the proxy, a short queue after it, and then a slower link.
    let changes: Vec<Override> = [
        "link.terrestrial.loss=0.1 %",
        "link.satellite.queue=5 packets",
        "link.satellite.loss=0 %",
    ]
    .map(|text| Override::parse("--set", text).unwrap())
    .into();
    let plan = Plan::new(&Path::load_with("geo", &changes).unwrap()).unwrap();
    let pacing = plan.data_paths[0].advice[0].pacing.unwrap();
    assert!(pacing.lost > 0 && pacing.burst > pacing.lost, "{pacing:?}");
    assert_eq!(pacing.rate.to_string(), "20 Mbit/s");
    assert!(
        plan.text()
            .contains("Pace gateway towards client at 20 Mbit/s"),
        "{}",
        plan.text()
    );
}

#[test]
fn a_path_without_a_proxy_is_reported() {
    let text = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nname = \"l\"\n\
                between = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\n";
    let path = Path::read(&midspan_document::Source::new("p.toml", text)).unwrap();
    let plan = Plan::new(&path).unwrap();
    assert!(
        plan.text().contains("There is no proxy on this path"),
        "{}",
        plan.text()
    );
    assert_eq!(plan.data_paths[0].data_path.name(), "b to a");
    let data_path = &DataPath::of_path(&path).unwrap()[0];
    assert!(matches!(buffers(data_path), Err(PlanError::NoProxy { .. })));
    let answer = Answer::new(data_path, &[]).unwrap();
    assert_eq!(answer.outcome.limit(), Limit::Bandwidth);
}
