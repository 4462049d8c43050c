//! Each alert fires, with its times divided by 60, when what it is about happens, and not before.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use midspan_proxy::command::Request;
use midspan_testbed::program::Launch;

use crate::board::{SETTINGS, download};
use crate::common::{Control, metric};
use crate::prometheus::{Monitoring, alerts};
use crate::support::*;

/// A listener with room for one session, and one without such a limit.
const FORWARD: &str = "[[listener]]\nname = \"narrow\"\nlisten = \"10.1.0.1:8000\"\n\
    to = \"10.3.0.2:80\"\nsessions = 1\n\
    [[listener]]\nname = \"wide\"\nlisten = \"10.1.0.1:8001\"\nto = \"10.3.0.2:80\"\n";

/// More lines than the log keeps.
const MANY_SESSIONS: usize = 6_000;

struct Alerts<'a> {
    monitoring: &'a Monitoring<'a>,
    missing: Vec<String>,
}

impl Alerts<'_> {
    /// The alert does not fire yet; then `provoke` makes it fire.
    #[track_caller]
    fn fires(&mut self, name: &str, provoke: impl FnOnce()) {
        let place = self.missing.iter().position(|missing| missing == name);
        self.missing.remove(place.unwrap());
        assert!(!self.monitoring.has_alert(name), "{name} fires already");
        provoke();
        self.monitoring.wait_for_alert(name);
    }
}

/// A session of the forward listener without a limit.
fn session(network: &Network, listener: &TcpListener) -> [TcpStream; 2] {
    let near = network.connect(GATEWAY, 8001).unwrap();
    [near, accept(listener).0]
}

/// Writes until nothing more fits.
fn fill(mut stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[7; 16_384]).is_ok() {}
}

#[kernel_test]
fn each_alert_fires() {
    let network = Network::new();
    let listener = network.listen(PORT);
    // A log that is not read until the end.
    let (log, writer) = std::io::pipe().unwrap();
    let settings = format!("{SETTINGS}{FORWARD}");
    let launch = Launch::this_program("run").configuration(&settings);
    let midspan = Midspan::of(launch.log_to(writer).inside(&network.gateway));
    let monitoring = Monitoring::start(&network.gateway);
    let mut expected = Alerts {
        monitoring: &monitoring,
        missing: alerts(),
    };
    assert_eq!(expected.missing.len(), 9);

    expected.fires("MidspanSessionsShed", || {
        let _first = network.connect(GATEWAY, 8000).unwrap();
        let _server = accept(&listener);
        assert!(is_reset_early(network.connect(GATEWAY, 8000)));
    });
    expected.fires("MidspanReloadFailed", || {
        assert!(!midspan.reload("nonsense = 1\n").ok);
    });
    assert!(midspan.reload(&settings).ok);
    expected.fires("MidspanNotRunning", || {
        assert!(midspan.ask(&Request::BypassOn { prefix: None }).ok);
    });
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    expected.fires("MidspanStoppedByFirewall", || {
        let text = "table inet host {\n chain in {\n \
                    type filter hook input priority 0; policy accept;\n \
                    tcp dport { 9090, 9093, 9464 } accept\n \
                    iifname \"lo\" tcp flags & (syn | ack) == syn drop\n }\n}\n";
        rules(&network.gateway, text);
    });
    rules(&network.gateway, "delete table inet host\n");
    wait_until("it intercepts again", || {
        midspan.status().state == "running"
    });

    expected.fires("MidspanGainBelowOne", || {
        // Half of them are of the control group.
        for _ in 0..140 {
            download(&network, &listener, 20_000);
        }
    });
    expected.fires("MidspanServerLegLossy", || {
        let text = format!(
            "table inet path {{\n chain forward {{\n type filter hook forward priority 0;\n \
             tcp dport {PORT} tcp flags & (syn | fin) == 0 meta length > 100 \
             numgen inc mod 5 == 0 drop\n }}\n}}\n"
        );
        rules(&network.router, &text);
        // For longer than the alert waits.
        let start = std::time::Instant::now();
        while start.elapsed().as_secs() < 15 {
            let [near, far] = session(&network, &listener);
            carries(near, far, 200_000);
        }
    });
    rules(&network.router, "delete table inet path\n");
    expected.fires("MidspanMemoryNearlyFull", || {
        // Neither end reads, so the data stays in the queues. From 7/8 on, Midspan resets idle sessions: then there
        // are new ones, until the alert has waited long enough.
        let mut sessions = Vec::new();
        let reserved = || metric("midspan_memory_reserved_bytes") / (16.0 * 1_048_576.0);
        wait_until("memory nearly full", || {
            if network.gateway.run(reserved).unwrap() < 0.8 {
                let ends = session(&network, &listener);
                ends.iter().for_each(fill);
                sessions.push(ends);
            }
            monitoring.has_alert("MidspanMemoryNearlyFull")
        });
        println!("{} sessions whose ends read nothing", sessions.len());
    });
    expected.fires("MidspanSessionLinesLost", || {
        for _ in 0..MANY_SESSIONS {
            let [near, far] = session(&network, &listener);
            abort(near);
            drop(far);
        }
    });
    expected.fires("MidspanDown", || drop(midspan));
    assert_eq!(expected.missing, [""; 0], "alerts without a test");
    drop(log);
}
