//! Intercepted connections, as both ends see them.

use std::net::SocketAddr;

use super::support::*;

#[kernel_test]
fn addresses_are_kept() {
    for text in [TRANSPARENT.to_owned(), early()] {
        let network = Network::new();
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &text);
        for (server, client) in BOTH {
            for upwards in [true, false] {
                let near = network.connect(server, PORT).unwrap();
                let (far, from) = accept(&listener);
                assert_eq!(from.ip().to_string(), client);
                assert_eq!(from.port(), near.local_addr().unwrap().port());
                assert_eq!(near.peer_addr().unwrap().ip().to_string(), server);
                assert_eq!(network.taken(PORT), 1, "not taken: {}", midspan.log());
                match upwards {
                    true => carries(near, far, 3_000_000),
                    false => carries(far, near, 3_000_000),
                }
                wait_until("closed", || network.taken(PORT) == 0);
            }
        }
        midspan.stop();
    }
}

#[kernel_test]
fn a_strict_gateway() {
    for text in [TRANSPARENT.to_owned(), early()] {
        let network = Network::new();
        rules(&network.gateway, STRICT);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &text);
        for (server, outside) in [(SERVER, OUTSIDE), (SERVER6, OUTSIDE6)] {
            for upwards in [true, false] {
                let near = network.connect(server, PORT).unwrap();
                let (far, from) = accept(&listener);
                assert_eq!(from.ip().to_string(), outside);
                assert_eq!(network.taken(PORT), 1);
                match upwards {
                    true => carries(near, far, 1_000_000),
                    false => carries(far, near, 1_000_000),
                }
                wait_until("closed", || network.taken(PORT) == 0);
            }
        }
        let table = output(
            &network.gateway,
            "nft",
            &["list", "table", "inet", "filter"],
        );
        for line in table.lines().filter(|line| line.contains("invalid")) {
            assert!(line.contains("packets 0"), "dropped: {table}");
        }
        midspan.stop();
        // The next connection passes untouched again.
        let mut near = network.connect(SERVER, PORT).unwrap();
        let (mut far, from) = accept(&listener);
        assert_eq!(from.ip().to_string(), OUTSIDE);
        assert_eq!(network.taken(PORT), 0);
        echoes(&mut near, &mut far);
    }
}

/// The server closed the connection first, so the gateway's socket of the client leg is in
/// TIME-WAIT. The client's socket is not, and the client uses its port again.
#[kernel_test]
fn a_port_is_used_again() {
    for text in [TRANSPARENT.to_owned(), early()] {
        let network = Network::new();
        rules(&network.gateway, STRICT);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &text);
        for (server, client) in BOTH {
            for _ in 0..3 {
                let socket = socket(&network.client, server);
                socket.set_reuse_address(true).unwrap();
                let own: SocketAddr = match server.contains(':') {
                    true => format!("[{client}]:4242"),
                    false => format!("{client}:4242"),
                }
                .parse()
                .unwrap();
                socket.bind(&own.into()).unwrap();
                let address = SocketAddr::new(server.parse().unwrap(), PORT);
                socket.connect_timeout(&address.into(), LIMIT).unwrap();
                let near = bounded(socket.into());
                let (far, _) = accept(&listener);
                carries(far, near, 10_000);
                // Both ends are closed before the port is used again.
                wait_until("closed", || network.taken(PORT) == 0);
            }
        }
        // Four connections use a port again; on a busy machine, one SYN may be repeated.
        let repeated = network.repeated_syns();
        assert!(repeated <= 1, "{repeated} connections after a repetition");
        midspan.stop();
    }
}

#[kernel_test]
fn listeners_and_windows() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let first = network.listen(PORT);
    let second = network.listen(8443);
    let windows = "client_leg = { initial_window = 20 }\nserver_leg = { initial_window = 20 }\n";
    let text = format!(
        "{TRANSPARENT}ports = [80]\n{windows}\
         [[listener]]\nname = \"other\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n\
         handshake = \"early\"\n{windows}\
         [[listener]]\nname = \"forward\"\nlisten = \"10.1.0.1:22\"\nto = \"10.3.0.2:80\"\n{windows}"
    );
    let midspan = Midspan::ready(&network.gateway, &text);
    for (server, _) in BOTH {
        for (port, listener) in [(PORT, &first), (8443, &second)] {
            let near = network.connect(server, port).unwrap();
            let (far, _) = accept(listener);
            assert_eq!(network.taken(port), 1);
            carries(near, far, 500_000);
        }
        // The first listener's handshake is end to end, the second one's is early.
        assert!(is_reset_early(network.connect(server, 9)));
    }
    let near = network.connect(GATEWAY, 22).unwrap();
    let (far, from) = accept(&first);
    assert_eq!(from.ip().to_string(), OUTSIDE);
    carries(near, far, 500_000);
    midspan.stop();
}
