//! Servers whose answers do not come back through the gateway.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use super::support::*;

/// A network in which client and server have a link of their own. The client's packets pass the
/// gateway; the server's answers do not.
pub fn asymmetric() -> Network {
    let network = Network::new();
    link(&network.server, "back", &network.client, "side", 6);
    for (namespace, interface) in [(&network.client, "side"), (&network.server, "eth")] {
        for interface in ["all", interface] {
            let parameter = format!("net/ipv4/conf/{interface}/rp_filter");
            namespace.set_parameter(&parameter, "0").unwrap();
        }
    }
    route(&network.server, "10.1.0.0/24", "10.6.0.1", "back");
    route(&network.server, "fd01::/64", "fd06::1", "back");
    network
}

/// Connects, checks that the connection works, and returns the number of repeated SYNs.
pub fn connects(network: &Network, server: &str, listener: &TcpListener) -> u64 {
    let before = network.repeated_syns();
    let mut near = network.connect(server, PORT).unwrap();
    let repeated = network.repeated_syns() - before;
    let (mut far, _) = accept(listener);
    echoes(&mut near, &mut far);
    assert_eq!(network.taken(PORT), 0);
    abort(near);
    repeated
}

#[kernel_test]
fn the_first_connection_waits_and_the_next_do_not() {
    let network = asymmetric();
    let listener = network.listen(PORT);
    for (server, _) in BOTH {
        connects(&network, server, &listener);
    }
    let text = format!("[interception]\nasymmetric_route_time = \"12 s\"\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    // On a busy machine, one SYN may be repeated.
    let all_at_once = |server| {
        let next = [(); 3].map(|()| connects(&network, server, &listener));
        assert!(next.iter().sum::<u64>() <= 1, "{server}: {next:?}");
    };
    for (server, _) in BOTH {
        let first = connects(&network, server, &listener);
        assert!(first > 0, "not taken");
        all_at_once(server);
        println!("  {server}: {first} SYNs repeated, then none");
    }
    wait_until("logged", || {
        midspan.log().contains("do not come back this way")
    });
    // After this time, new connections do not wait either, and the asymmetric route is stored
    // again.
    std::thread::sleep(Duration::from_secs(12));
    for (server, _) in BOTH {
        all_at_once(server);
    }
    // When the answers pass the gateway again, connections are intercepted after the stored time.
    output(&network.server, "ip", &["route", "del", "10.1.0.0/24"]);
    std::thread::sleep(Duration::from_secs(12));
    connects(&network, SERVER, &listener);
    network.wait_until_taken(&listener, SERVER, true, 0);
    midspan.stop();
}

/// A connection that was accepted early is lost; the next ones pass untouched.
#[kernel_test]
fn after_an_early_handshake_the_next_pass() {
    let network = asymmetric();
    let listener = network.listen(PORT);
    let text = format!("{}connect_timeout = \"2 s\"\n", early());
    let midspan = Midspan::ready(&network.gateway, &text);
    for (server, _) in BOTH {
        assert!(is_reset_early(network.connect(server, PORT)));
        let next = [(); 3].map(|()| connects(&network, server, &listener));
        assert!(next.iter().sum::<u64>() <= 1, "{server}: {next:?}");
    }
    midspan.stop();
}

/// A server that does not answer at all is no evidence of an asymmetric route, and connections to
/// another server in its network are intercepted.
#[kernel_test]
fn a_dead_server_stays_dead() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(7);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (server, _) in BOTH {
        let result = connect_from(&network.client, server, 7, Duration::from_secs(5));
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        assert_eq!(network.taken(PORT), 1);
        echoes(&mut near, &mut far);
        abort(near);
        wait_until("closed", || network.taken(PORT) == 0);
    }
    assert!(!midspan.log().contains("do not come back this way"));
    midspan.stop();
}

/// A server that answers after the client's SYN has passed untouched answers through the gateway,
/// so this is no asymmetric route either.
#[kernel_test]
fn a_late_answer_is_no_proof() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| network.connect(SERVER, PORT).unwrap());
        // By now the client's second repeated SYN has passed, and the third has not.
        std::thread::sleep(Duration::from_millis(3500));
        network.unfilter();
        let mut near = waiting.join().unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        assert_eq!(network.taken(PORT), 0);
        abort(near);
    });
    let near = network.connect(SERVER, PORT).unwrap();
    assert_eq!(network.taken(PORT), 1);
    abort(near);
    assert!(!midspan.log().contains("do not come back this way"));
    midspan.stop();
}
