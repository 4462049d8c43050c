//! Warm connections, and the counts and metrics of the overlay.

use std::fs;
use std::io::{Read, Write};
use std::time::Instant;

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::overlay::{NodeRow, OverlayReport};

use super::support::*;

/// What a node reports of another one.
fn seen(midspan: &Midspan, node: &str) -> NodeRow {
    let report: OverlayReport = page(midspan, "/overlay");
    let mut nodes = report.nodes.into_iter();
    nodes.find(|row| row.name == node).unwrap()
}

/// A first session, and then both nodes that send hops have warm connections.
fn warmed(sites: &Sites, [_sin, fra, ams]: &[Midspan; 3]) {
    let (mut client, mut server) = session(sites);
    echoes(&mut client, &mut server);
    for (midspan, next) in [(ams, "fra"), (fra, "sin")] {
        wait_until("there are warm connections", || {
            seen(midspan, next).warm.ready >= 2
        });
    }
}

#[kernel_test]
fn a_session_needs_no_new_connection_between_nodes() {
    let sites = Sites::new("");
    let nodes = sites.all();
    warmed(&sites, &nodes);
    for host in [&sites.fra, &sites.sin] {
        rules(host, NO_NEW_ONES);
    }
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    carries(
        server.try_clone().unwrap(),
        client.try_clone().unwrap(),
        1_000_000,
    );
    let row = seen(&nodes[2], "fra");
    assert_eq!((row.warm.used, row.warm.missed), (1, 1), "{row:?}");
    // They are replaced as soon as new connections are possible.
    for host in [&sites.fra, &sites.sin] {
        rules(host, "delete table inet closed");
    }
    wait_until("it is replaced", || seen(&nodes[2], "fra").warm.ready >= 2);
}

#[kernel_test]
fn a_node_that_begins_again_costs_no_session() {
    let sites = Sites::new("");
    let nodes = sites.all();
    warmed(&sites, &nodes);
    let [_sin, fra, ams] = nodes;
    drop(fra);
    let _fra = sites.fra();
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    assert!(!ams.log().contains("route broken"), "{}", ams.log());
}

/// The local ports of a host's connections to hop listeners.
fn hop_ports(host: &NetworkNamespace) -> Vec<u16> {
    let table = host.run(|| fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
    let suffix = format!(":{:04X}", 7704);
    let table = table.unwrap();
    let rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&suffix))
        .map(|row| u16::from_str_radix(row[1].rsplit(':').next().unwrap(), 16).unwrap())
        .collect()
}

/// As if a firewall between ams and fra had forgotten all connections to hop listeners.
pub fn silence_warm_connections(sites: &Sites) {
    let ports: Vec<String> = hop_ports(&sites.ams).iter().map(u16::to_string).collect();
    let silent = format!(
        "table inet silent {{\nchain in {{\ntype filter hook input priority 0; policy accept;\n\
         tcp dport 7704 tcp sport {{ {} }} drop\n}}\n}}\n",
        ports.join(", ")
    );
    rules(&sites.fra, &silent);
}

#[kernel_test]
fn a_warm_connection_without_an_acknowledgement_is_replaced() {
    let sites = Sites::new("");
    let nodes = sites.all();
    warmed(&sites, &nodes);
    silence_warm_connections(&sites);
    let begin = Instant::now();
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    assert!(begin.elapsed() < LIMIT);
    let row = seen(&nodes[2], "fra");
    assert!(row.warm.ended >= 1, "{row:?}");
    assert!(
        !nodes[2].log().contains("route broken"),
        "{}",
        nodes[2].log()
    );
}

#[kernel_test]
fn without_warm_connections_each_hop_is_a_new_one() {
    let sites = Sites::new("");
    let _others = [sites.sin(), sites.fra()];
    let text = sites.text(&blocks()[1]);
    let text = text.replace("[overlay]\n", "[overlay]\nwarm_connections = false\n");
    let ams = Midspan::ready(&sites.ams, &text);
    for _ in 0..2 {
        let (mut client, mut server) = session(&sites);
        echoes(&mut client, &mut server);
    }
    let row = seen(&ams, "fra");
    assert_eq!((row.warm.ready, row.warm.used, row.sessions_to), (0, 0, 2));
}

#[kernel_test]
fn metrics_show_nodes_routes_and_refusals() {
    let sites = Sites::new("");
    let nodes = sites.all();
    warmed(&sites, &nodes);
    drop(session(&sites));
    let [sin, fra, ams] = nodes;
    // fra, which sends this, has passed sin already.
    let mut hop = from(&sites.fra, "10.3.0.2", 7704);
    let head = "CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\nVia: 1.1 sin, 1.1 fra\r\n\r\n";
    hop.write_all(head.as_bytes()).unwrap();
    hop.read_to_string(&mut String::new()).unwrap();
    drop(hop);
    for (midspan, lines) in [
        (
            &ams,
            &[
                "midspan_overlay_sessions_total{listener=\"socks\",route=\"fra sin\"} 2",
                "midspan_overlay_node_sessions_total{node=\"fra\",direction=\"to\"} 2",
                "midspan_overlay_node_sessions_total{node=\"sin\",direction=\"to\"} 0",
                "midspan_overlay_warm_connections_taken_total{node=\"fra\",result=\"used\"} 1",
                "midspan_overlay_calls_failed_total{node=\"fra\"} 0",
            ][..],
        ),
        (
            &fra,
            &[
                "midspan_overlay_node_sessions_total{node=\"ams\",direction=\"from\"} 2",
                "midspan_overlay_sessions_total{listener=\"hops\",route=\"sin\"} 2",
            ],
        ),
        (
            &sin,
            &[
                "midspan_overlay_sessions_total{listener=\"hops\",route=\"\"} 2",
                "midspan_overlay_hops_refused_total{node=\"fra\",reason=\"looping\"} 1",
            ],
        ),
    ] {
        for line in lines {
            wait_until(line, || {
                let text = text_of(midspan, "/metrics");
                text.lines().any(|other| other == *line)
            });
        }
    }
    let text = text_of(&ams, "/metrics");
    let round_trip = "midspan_overlay_node_round_trip_seconds{node=\"fra\"} ";
    assert!(
        text.lines().any(|line| line.starts_with(round_trip)),
        "{text}"
    );
}

/// Each listener has connections of its own. Together they are more than eight from one address in each thread of the node.
#[kernel_test]
fn warm_connections_of_many_listeners_stay_open() {
    const LISTENERS: u16 = 12;
    let sites = Sites::new("");
    let _nodes = [sites.sin(), sites.fra()];
    let listener = |number: u16| {
        format!(
            "[[listener]]\nname = \"to-{number}\"\nlisten = \"10.1.0.1:{}\"\nto = \"{SERVER}:{PORT}\"\n\
             overlay = true\n",
            8000 + number
        )
    };
    let listeners: String = (0..LISTENERS).map(listener).collect();
    let ams = Midspan::ready(&sites.ams, &(sites.text(&blocks()[1]) + &listeners));
    for number in 0..LISTENERS {
        let mut client = from(&sites.client, "10.1.0.1", 8000 + number);
        let (mut server, _) = accept(&sites.listener);
        echoes(&mut client, &mut server);
    }
    let warm = || seen(&ams, "fra").warm;
    wait_until("all are warm", || warm().ready >= 2 * u64::from(LISTENERS));
    let ended = warm().ended;
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(warm().ended, ended);
}
