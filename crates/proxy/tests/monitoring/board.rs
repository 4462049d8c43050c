//! Each expression of the board returns a series after the traffic that belongs to it.

use std::net::TcpListener;

use serde_json::Value;

use crate::prometheus::Monitoring;
use crate::support::*;

const BOARD: &str = include_str!("../../../../deploy/grafana/midspan.json");
/// The kinds of panels that every Grafana has.
const KINDS: [&str; 4] = ["stat", "timeseries", "heatmap", "table"];

/// A listener that chooses windows and measures its gain. Splitting cannot help here, because the
/// client's leg is slow.
pub const SETTINGS: &str = "[admin]\nlisten = \"127.0.0.1:9464\"\n\
    [limits]\nmemory = \"16 MiB\"\nsessions_per_client = 100000\n[interception]\nleave_alone_time = \"0 s\"\n\
    [relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n\
    [[listener]]\nname = \"clients\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n\
    policy = \"auto\"\ncontrol_group = \"50 %\"\nclient_leg = { pacing_rate = \"4 Mbit/s\" }\n";

/// One download through the gateway.
pub fn download(network: &Network, listener: &TcpListener, bytes: usize) {
    let near = network.connect(SERVER, PORT).unwrap();
    let (far, _) = accept(listener);
    carries(far, near, bytes);
}

/// The expressions of the board's panels, with the values that Grafana puts in.
fn expressions() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let panels = board["panels"].as_array().unwrap();
    assert_eq!(panels.len(), 14);
    let mut all = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(KINDS.contains(&panel["type"].as_str().unwrap()), "{title}");
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression
                .replace("$__rate_interval", "20s")
                .replace("$__range", "60s")
                .replace("$instance", ".*")
                .replace("$listener", ".*");
            assert!(!expression.contains('$'), "{title}: {expression}");
            all.push((title.to_owned(), expression));
        }
    }
    all
}

#[kernel_test]
fn each_expression_of_the_board_returns_a_series() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, SETTINGS);
    let monitoring = Monitoring::start(&network.gateway);
    // Until both groups have the five flows that a gain needs.
    wait_until("a gain", || {
        download(&network, &listener, 20_000);
        monitoring.count("midspan_split_gain_ratio") > 0
    });
    let mut missing = expressions();
    let count = missing.len();
    wait_until("every expression has a series", || {
        download(&network, &listener, 20_000);
        missing.retain(|(_, expression)| monitoring.count(expression) == 0);
        if !missing.is_empty() {
            println!("{} of {count} without a series: {missing:?}", missing.len());
        }
        missing.is_empty()
    });
    println!("{count} expressions of the board have series");
    midspan.stop();
}
