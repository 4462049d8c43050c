//! The health page of a gateway that does not split all connections.

use midspan_proxy::admin::client;
use midspan_proxy::command::Request;
use rustix::process::{Signal, kill_process};

use crate::support::*;

const ADMIN: &str = "127.0.0.1:9464";

/// A page of the admin listener on the gateway.
fn page(network: &Network, page: &'static str) -> (u16, String) {
    let get = move || client::get(ADMIN.parse().unwrap(), page).unwrap();
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
