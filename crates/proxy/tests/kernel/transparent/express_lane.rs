//! `firewall_cache`: the host's firewall is asked once about a client, a server and its port, and again when the
//! time is over or its rules have changed.

use std::time::Duration;

use midspan_proxy::command::Request;
use rustix::process::{Signal, kill_process};

use super::support::*;

/// Counts the SYNs that are forwarded, before the firewall decides.
const COUNTED: &str = "table inet seen {\n chain forward {\n type filter hook forward priority -10;\n \
    tcp dport 80 tcp flags & (syn | ack) == syn counter\n }\n}\n";

fn cached(time: &str) -> String {
    format!("{}firewall_cache = \"{time}\"\n", early())
}

/// The number of SYNs that the firewall was asked about.
fn seen(network: &Network) -> usize {
    let text = output(&network.gateway, "nft", &["list", "table", "inet", "seen"]);
    let (_, rest) = text.split_once("counter packets ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Opens connections until the firewall is asked about none of several in a row, for longer than the interval in which
/// Midspan looks for changes of rules. Each must be intercepted, and work.
fn wait_until_cached(network: &Network, listener: &std::net::TcpListener, server: &str) {
    wait_until("cached", || {
        let before = seen(network);
        (0..20).all(|_| {
            assert!(network.is_taken(listener, server, 0).unwrap());
            seen(network) == before
        })
    });
}

#[kernel_test]
fn the_firewall_is_asked_once() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    rules(&network.gateway, COUNTED);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &cached("60 s"));
    for (server, _) in BOTH {
        wait_until_cached(&network, &listener, server);
        // The firewall is asked about another port, and forbids it.
        assert!(network.connect(server, 81).is_err());
    }
    // A new rule counts for connections that the firewall had permitted.
    let run = |command: &str| output(&network.gateway, "sh", &["-c", command]);
    run("nft insert rule inet filter forward tcp dport 80 reject with tcp reset");
    for (server, _) in BOTH {
        wait_until("forbidden", || network.connect(server, PORT).is_err());
        assert!(network.connect(server, PORT).is_err());
    }
    run("nft flush chain inet filter forward; nft add rule inet filter forward accept");
    for (server, _) in BOTH {
        wait_until("permitted", || network.connect(server, PORT).is_ok());
        while listener_has(&listener) {}
        wait_until_cached(&network, &listener, server);
    }
    assert!(!midspan.log().contains("firewall_cache is not used"));
    midspan.stop();
}

/// Takes a waiting connection, if there is one.
fn listener_has(listener: &std::net::TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    let has = listener.accept().is_ok();
    listener.set_nonblocking(false).unwrap();
    has
}

#[kernel_test]
fn the_firewall_is_asked_again_after_the_time() {
    let network = Network::new();
    rules(&network.gateway, COUNTED);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &cached("1 s"));
    let asks = |expected: bool| {
        let before = seen(&network);
        assert!(network.is_taken(&listener, SERVER, 0).unwrap());
        (seen(&network) > before) == expected
    };
    for _ in 0..2 {
        wait_until("cached", || asks(false));
        // Connections in the meantime do not prolong the time.
        wait_until("asked again", || {
            std::thread::sleep(Duration::from_millis(50));
            asks(true)
        });
    }
    midspan.stop();
}

#[kernel_test]
fn rules_that_depend_on_earlier_connections_are_asked_each_time() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    rules(&network.gateway, COUNTED);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &cached("60 s"));
    wait_until_cached(&network, &listener, SERVER);
    let run = |command: &str| output(&network.gateway, "sh", &["-c", command]);
    run("nft insert rule inet filter forward tcp dport 80 limit rate 1000/second accept");
    wait_until("closed", || {
        midspan.log().contains("firewall_cache is not used")
    });
    assert!(midspan.log().contains("limits a rate"), "{}", midspan.log());
    for _ in 0..3 {
        let before = seen(&network);
        assert!(network.is_taken(&listener, SERVER, 0).unwrap());
        assert_eq!(seen(&network), before + 1);
    }
    run("nft flush chain inet filter forward; nft add rule inet filter forward accept");
    wait_until("opened", || {
        midspan.log().contains("firewall_cache is in use")
    });
    wait_until_cached(&network, &listener, SERVER);
    midspan.stop();
}

#[kernel_test]
fn known_clients_of_the_automatic_policy_use_it_too() {
    let network = Network::new();
    rules(&network.gateway, COUNTED);
    let listener = network.listen(PORT);
    let text = format!("{}policy = \"auto\"\n", cached("60 s"));
    let midspan = Midspan::ready(&network.gateway, &text);
    // The first connections get larger initial windows, about which the relay decides.
    wait_until_cached(&network, &listener, SERVER);
    midspan.stop();
}

#[kernel_test]
fn without_a_relay_connections_pass_untouched() {
    let network = Network::new();
    rules(&network.gateway, COUNTED);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &cached("60 s"));
    wait_until_cached(&network, &listener, SERVER);
    assert!(midspan.ask(&Request::BypassOn { prefix: None }).ok);
    assert!(!network.is_taken(&listener, SERVER, 0).unwrap());
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    wait_until_cached(&network, &listener, SERVER);
    midspan.stop();
    assert!(!network.is_taken(&listener, SERVER, 0).unwrap());
    let left = output(&network.gateway, "nft", &["list", "tables"]);
    assert!(!left.contains("express"), "{left}");
}

/// The rules of a killed Midspan stay. A SYN for which no relay listens is lost, and the next one passes.
#[kernel_test]
fn killed_together_they_fail_open() {
    let network = Network::new();
    rules(&network.gateway, COUNTED);
    let listener = network.listen(PORT);
    let mut midspan = Midspan::ready(&network.gateway, &cached("60 s"));
    for (server, _) in BOTH {
        wait_until_cached(&network, &listener, server);
    }
    kill_process(midspan.relay(), Signal::KILL).unwrap();
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    midspan.wait();
    for (server, _) in BOTH {
        assert!(!network.is_taken(&listener, server, 0).unwrap());
    }
    // The next run works like a first one, and leaves nothing behind.
    let midspan = Midspan::ready(&network.gateway, &cached("60 s"));
    wait_until_cached(&network, &listener, SERVER);
    midspan.stop();
    let left = output(&network.gateway, "nft", &["list", "tables"]);
    assert!(!left.contains("express"), "{left}");
}
