//! The health page of a gateway that does not split all connections.

use midspan_proxy::client;
use midspan_proxy::command::Request;
use rustix::process::{Signal, kill_process};

use super::support::*;

const ADMIN: &str = "127.0.0.1:9464";

/// A page of the admin listener on the gateway.
fn page(network: &Network, page: &'static str) -> (u16, String) {
    let get = move || client::get(ADMIN.parse::<std::net::SocketAddr>().unwrap(), page).unwrap();
    network.gateway.run(get).unwrap()
}

fn has_line(network: &Network, line: &str) -> bool {
    let (status, text) = page(network, "/metrics");
    status == 200 && text.lines().any(|other| other == line)
}

#[kernel_test]
fn health_tells_what_is_not_done() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let text = format!("[admin]\nlisten = \"{ADMIN}\"\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    let is_ok = || page(&network, "/health") == (200, "ok\n".to_owned());
    let passes = |reason: &str| {
        let said = format!("new connections pass untouched: {reason}\n");
        page(&network, "/health") == (503, said)
    };
    wait_until("ok", is_ok);
    wait_until("nothing passes", || {
        has_line(&network, "midspan_passing{reason=\"bypass\"} 0")
    });
    // Bypassed by the operator: one prefix, and everything.
    let prefix = Some("192.0.2.0/24".to_owned());
    assert!(midspan.ask(&Request::BypassOn { prefix }).ok);
    wait_until("one prefix", || {
        has_line(&network, "midspan_bypassed_prefixes 1")
    });
    assert!(is_ok());
    assert!(midspan.ask(&Request::BypassOn { prefix: None }).ok);
    wait_until("bypassed", || passes("bypass"));
    wait_until("all passes", || {
        has_line(&network, "midspan_passing{reason=\"bypass\"} 1")
    });
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    wait_until("ok again", is_ok);
    // Stopped by the host's firewall.
    rules(
        &network.gateway,
        "table inet closed {\n chain in {\n type filter hook input priority filter; policy drop;\n \
         meta l4proto ipv6-icmp accept\n iifname \"lo\" tcp dport 9464 accept\n \
         ct state established,related accept\n }\n}\n",
    );
    wait_until("firewall", || passes("firewall"));
    wait_until("obstacles", || {
        !has_line(&network, "midspan_firewall_obstacles 0")
    });
    rules(&network.gateway, "delete table inet closed\n");
    wait_until("lets pass again", is_ok);
    // A configuration file with an error.
    assert!(!midspan.reload("nonsense").ok);
    wait_until("a reload that failed", || {
        has_line(&network, "midspan_reloads_total{result=\"failed\"} 1")
    });
    assert!(midspan.reload(&text).ok);
    wait_until("a reload", || {
        has_line(&network, "midspan_reloads_total{result=\"ok\"} 1")
    });
    // The proxy ends.
    let near = network.connect(SERVER, PORT).unwrap();
    let _far = accept(&listener);
    kill_process(midspan.helper(), Signal::TERM).unwrap();
    wait_until("draining", || {
        let (status, said) = page(&network, "/health");
        status == 503 && said.starts_with("draining")
    });
    assert!(has_line(&network, "midspan_draining 1"));
    abort(near);
    let mut midspan = midspan;
    assert!(midspan.wait().success());
}

/// Both processes report what they use; the state and the last reload are metrics.
#[kernel_test]
fn metrics_have_the_processes_and_the_state() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let settings = format!("[admin]\nlisten = \"127.0.0.1:9464\"\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &settings);
    let value = |name: &'static str| -> Option<f64> {
        let page = || crate::common::get("/metrics").1;
        let text = network.gateway.run(page).unwrap();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse().unwrap())
    };
    wait_until("the helper has reported", || {
        value("process_open_fds{process=\"helper\"}").is_some_and(|count| count >= 5.0)
    });
    for name in [
        "process_resident_memory_bytes{process=\"relay\"}",
        "process_resident_memory_bytes{process=\"helper\"}",
        "process_virtual_memory_bytes{process=\"relay\"}",
    ] {
        assert!(value(name).unwrap() > 100_000.0, "{name}");
    }
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    for name in [
        "process_start_time_seconds{process=\"relay\"}",
        "process_start_time_seconds{process=\"helper\"}",
        "midspan_config_last_reload_success_timestamp_seconds",
    ] {
        let age = now - value(name).unwrap();
        assert!((-2.0..3_600.0).contains(&age), "{name}: {age} s ago");
    }
    let before = value("process_open_fds{process=\"relay\"}").unwrap();
    let limit = value("process_max_fds{process=\"relay\"}").unwrap();
    assert!(before < limit, "{before} of {limit}");
    let sessions: Vec<_> = (0..10)
        .map(|_| (network.connect(SERVER, PORT).unwrap(), accept(&listener)))
        .collect();
    wait_until("two descriptors for each session", || {
        value("process_open_fds{process=\"relay\"}").unwrap() >= before + 20.0
    });
    drop(sessions);
    let spent = value("process_cpu_seconds_total{process=\"relay\"}").unwrap();
    wait_until("each question costs time", || {
        value("process_cpu_seconds_total{process=\"relay\"}").unwrap() > spent
    });

    assert_eq!(value("midspan_state{state=\"running\"}"), Some(1.0));
    let everything = Request::BypassOn { prefix: None };
    assert!(midspan.ask(&everything).ok);
    wait_until("passing", || {
        value("midspan_state{state=\"passing\"}") == Some(1.0)
    });
    assert_eq!(value("midspan_state{state=\"running\"}"), Some(0.0));
    assert_eq!(value("midspan_config_last_reload_successful"), Some(1.0));
    assert!(!midspan.reload("nonsense = 1\n").ok);
    wait_until("a reload failed", || {
        value("midspan_config_last_reload_successful") == Some(0.0)
    });
    assert!(midspan.reload(&settings).ok);
    wait_until("a reload succeeded", || {
        value("midspan_config_last_reload_successful") == Some(1.0)
    });
}
