use super::*;
use crate::health::{HelperState, Passing};
use crate::overlay::{LegRow, NodeRow, SessionsRow, WarmRow};
use midspan_gateway::interception::Quic;
use midspan_policy::servers::{Health, Server};

const DOCUMENTATION: &str = include_str!("../../../../../docs/observability.md");

/// The name of the metric in queries.
fn queried_name(metric: &Metric) -> String {
    let unit = metric.unit.map(|unit| format!("_{unit}"));
    let total = (metric.kind == Kind::Counter).then_some("_total");
    let name = metric.name;
    format!(
        "{name}{}{}",
        unit.unwrap_or_default(),
        total.unwrap_or_default()
    )
}

fn table() -> String {
    let row = |metric: &Metric| {
        let labels: Vec<String> = metric.labels.iter().map(|it| format!("`{it}`")).collect();
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let name = queried_name(metric);
        let help = metric.help.trim();
        format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "))
    };
    metrics().map(row).collect()
}

#[test]
fn the_documentation_has_them_all() {
    let table = table();
    assert!(
        DOCUMENTATION.contains(&table),
        "docs/observability.md must have this table:\n{table}"
    );
}

fn server() -> ServerReading {
    ServerReading {
        server: Server::Name("a.example".to_owned(), 80),
        health: Some(Health::Suspect),
        sessions: 3,
        failed_checks: 4,
    }
}

fn snapshot() -> Snapshot {
    let distribution = |bounds: &[u64]| HistogramTotals {
        counts: (0..=bounds.len() as u64).collect(),
        sum: 2_500_000,
    };
    let mut totals = ListenerTotals {
        opened: 7,
        ..ListenerTotals::default()
    };
    totals.setup[1] = distribution(TIME_BOUNDS);
    Snapshot {
        statistics: Statistics::default(),
        memory: MemoryUse {
            used: 1,
            reserved: 2,
            budget: Some(3),
            queues: Some((4, 5)),
        },
        listeners: [("a \"name\"".to_owned(), totals)].into(),
        servers: [("web".to_owned(), vec![server()])].into(),
        gate: Some(GateStatistics::default()),
        verdicts: (1, 2),
        fragments: Fragments::default(),
        tail_loss_probes: Some(5),
        refused_system_calls: 0,
        gains: GainTotals::default(),
        overlay: OverlayReport {
            nodes: vec![NodeRow {
                name: "fra".to_owned(),
                health: "up".to_owned(),
                leg: LegRow {
                    rtt_seconds: Some(0.25),
                    ..LegRow::default()
                },
                sessions_to: 8,
                hops_refused: vec![("looping".to_owned(), 9)],
                warm: WarmRow {
                    ready: 2,
                    ..WarmRow::default()
                },
                ..NodeRow::default()
            }],
            routes: vec![SessionsRow {
                listener: "socks".to_owned(),
                route: vec!["fra".to_owned(), "sin".to_owned()],
                sessions: 3,
            }],
            ..OverlayReport::default()
        },
        known: Known {
            helper: HelperState {
                passing: Some(Passing::default()),
                quic: Some(Quic {
                    bytes_to_clients: 1_280,
                    ..Quic::default()
                }),
                process: Some(OwnUse {
                    descriptor_limit: Some(1024),
                    ..OwnUse::default()
                }),
                ..HelperState::default()
            },
            ..Known::default()
        },
        log_lines_lost: 6,
        process: Some(OwnUse {
            cpu_milliseconds: 1_250,
            descriptors: 7,
            ..OwnUse::default()
        }),
    }
}

#[test]
fn the_text_is_as_its_format_says() {
    let text = encode(snapshot()).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "# TYPE midspan_sessions_opened counter",
        "midspan_sessions_opened_total{listener=\"a \\\"name\\\"\"} 7",
        "# UNIT midspan_session_setup_seconds seconds",
        "midspan_session_setup_seconds_sum{listener=\"a \\\"name\\\"\",handshake=\"early\"} 2.5",
        "midspan_leg_round_trip_time_seconds_count{listener=\"a \\\"name\\\"\",leg=\"client\"} 0",
        "midspan_host_tail_loss_probes_total 5",
        "midspan_relay_refused_system_calls_total 0",
        "midspan_server_state{listener=\"web\",server=\"a.example:80\",state=\"up\"} 0",
        "midspan_server_state{listener=\"web\",server=\"a.example:80\",state=\"suspect\"} 1",
        "midspan_server_state{listener=\"web\",server=\"a.example:80\",state=\"no_address\"} 0",
        "midspan_server_sessions{listener=\"web\",server=\"a.example:80\"} 3",
        "midspan_server_failed_checks_total{listener=\"web\",server=\"a.example:80\"} 4",
        "midspan_passing{reason=\"firewall\"} 0",
        "midspan_state{state=\"running\"} 1",
        "midspan_state{state=\"passing\"} 0",
        "midspan_config_last_reload_successful 1",
        "midspan_untouched_quic_packets_total{direction=\"to_client\"} 0",
        "midspan_untouched_quic_bytes_total{direction=\"to_client\"} 1280",
        "# UNIT process_cpu_seconds seconds",
        "process_cpu_seconds_total{process=\"relay\"} 1.25",
        "process_cpu_seconds_total{process=\"helper\"} 0.0",
        "process_open_fds{process=\"relay\"} 7",
        "process_max_fds{process=\"helper\"} 1024",
        "midspan_log_lines_lost_total{process=\"relay\"} 6",
        "midspan_overlay_node_state{node=\"fra\",state=\"up\"} 1",
        "midspan_overlay_node_state{node=\"fra\",state=\"down\"} 0",
        "midspan_overlay_node_round_trip_seconds{node=\"fra\"} 0.25",
        "midspan_overlay_node_sessions_total{node=\"fra\",direction=\"to\"} 8",
        "midspan_overlay_hops_refused_total{node=\"fra\",reason=\"looping\"} 9",
        "midspan_overlay_warm_connections{node=\"fra\"} 2",
        "midspan_overlay_sessions_total{listener=\"socks\",route=\"fra sin\"} 3",
        "midspan_bypasses_total{reason=\"full\"} 0",
        "midspan_session_setup_seconds_bucket{le=\"+Inf\",listener=\"a \\\"name\\\"\",handshake=\"early\"} 171",
        "midspan_session_setup_seconds_bucket{le=\"0.0001\",listener=\"a \\\"name\\\"\",handshake=\"early\"} 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    let setup: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with("midspan_session_setup_seconds_bucket"))
        .filter(|line| line.contains("early"))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(setup.len(), TIME_BOUNDS.len() + 1);
    assert!(setup.is_sorted(), "cumulative: {setup:?}");
    let (last, most) = (setup.last(), 18 * 19 / 2);
    assert_eq!(last, Some(&most));
}

#[test]
fn every_metric_is_there_once() {
    let text = encode(snapshot()).unwrap();
    for metric in metrics() {
        let help = format!("# HELP {}", metric.name);
        assert!(text.contains(&help), "{help}");
        let name = |metric: &Metric| (metric.name, metric.unit);
        let same = metrics().filter(|other| name(other) == name(metric));
        assert_eq!(same.count(), 1, "{}", metric.name);
        assert!(metric.help.trim().ends_with('.'), "{}", metric.name);
    }
}
