//! Oversized segments by the policy of the real proxy, and the paper's two other starts.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_document::Source;
use midspan_path::Path;
use midspan_sim::{FlowResults, Observer, Packet, Scenario, Segment, Simulation};
use midspan_units::Time;

/// The largest packet with data on the client's leg, and the first one.
#[derive(Debug, Default)]
struct Sizes {
    largest: u32,
    first: Option<u32>,
}

impl Observer for Sizes {
    fn sent(&mut self, _: Time, packet: &Packet) {
        if let Segment::Data(data) = packet.segment
            && data.length > 200
        {
            self.first.get_or_insert(data.length);
            self.largest = self.largest.max(data.length);
        }
    }
}

fn run(start: &str, drops: bool) -> (FlowResults, Sizes) {
    let text = format!(
        r#"
[[host]]
name = "client"
[[router]]
name = "premises"
[[proxy]]
name = "gateway"
oversized_start = "{start}"
[proxy.access]
downstream = "8 Mbit/s"
upstream = "32 kbit/s"
oversized_segments = "4408 B"
[[host]]
name = "server"
[[link]]
name = "home"
between = ["client", "premises"]
drop_fragments = {drops}
[[link]]
name = "access"
between = ["premises", "gateway"]
delay = "20 ms"
up = {{ rate = "32 kbit/s" }}
down = {{ rate = "8 Mbit/s" }}
[[link]]
name = "switch"
between = ["gateway", "server"]
rate = "1 Gbit/s"
[[flow]]
name = "1 MB"
from = "client"
to = "server"
workload = "download"
size = "1 MB"
"#
    );
    let path = Path::read(&Source::new("test", text.as_str())).unwrap();
    let made = Scenario::from_path(&path, true).unwrap().remove(0);
    let mut simulation = Simulation::observed(&made.scenario, Sizes::default()).unwrap();
    let results = simulation.run();
    let data = made.flows[0].data[0].0;
    (results.flows[data].clone(), simulation.into_observer())
}

#[test]
fn every_start_comes_to_oversized_segments_where_fragments_pass() {
    for start in ["probe", "syn-ack", "duplicate"] {
        let (flow, sizes) = run(start, false);
        assert!(flow.finished.is_some(), "{start}");
        assert_eq!(sizes.largest, 4408, "{start}");
        let segments = flow.legs[1].sender.segments;
        assert!((200..500).contains(&segments), "{start}: {segments}");
    }
}

#[test]
fn where_fragments_are_dropped_only_the_syn_ack_breaks() {
    for start in ["probe", "syn-ack", "duplicate"] {
        let (flow, _) = run(start, true);
        assert_eq!(flow.finished.is_some(), start != "syn-ack", "{start}");
        assert_eq!(flow.gave_up.is_some(), start == "syn-ack", "{start}");
        if start != "syn-ack" {
            assert_eq!(flow.delivered, 1_000_000, "{start}");
        }
    }
}

#[test]
fn a_duplicate_start_ends_with_the_first_acknowledgement_of_what_went_twice() {
    let (flow, _) = run("duplicate", false);
    let again = flow.legs[1].sender.bytes_retransmitted;
    // Ten segments at first, twice as many a round trip later, when the answer arrives; each may
    // have a cut copy.
    assert!(again > 0 && again <= 20 * 1448, "{again}");
}
