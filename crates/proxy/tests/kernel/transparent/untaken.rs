//! Connections that Midspan does not intercept, or that the host refuses.

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use midspan_proxy::command::Request;

use super::support::*;

#[kernel_test]
fn forward_is_obeyed() {
    for text in [TRANSPARENT.to_owned(), early()] {
        let network = Network::new();
        rules(&network.gateway, STRICT);
        let _open = [network.listen(81), network.listen(82)];
        let midspan = Midspan::ready(&network.gateway, &text);
        for (server, _) in BOTH {
            let refused = network.connect(server, 81).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
            let dropped = connect_from(&network.client, server, 82, Duration::from_millis(1500));
            assert_eq!(dropped.unwrap_err().kind(), ErrorKind::TimedOut);
        }
        midspan.stop();
    }
}

#[kernel_test]
fn own_services_are_left_alone() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let ssh = listen(&network.gateway, 22);
    let mut before = network.connect(GATEWAY, 22).unwrap();
    let (mut served, _) = accept(&ssh);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    echoes(&mut before, &mut served);
    for address in [GATEWAY, OUTSIDE, OUTSIDE6] {
        let mut near = network.connect(address, 22).unwrap();
        let (mut far, _) = accept(&ssh);
        assert_eq!(far.local_addr().unwrap().port(), 22);
        echoes(&mut near, &mut far);
    }
    echoes(&mut before, &mut served);
    // Other hosts cannot connect to Midspan's own listeners, and Midspan cannot be made to connect
    // to itself.
    midspan.stop();
    echoes(&mut before, &mut served);
}

#[kernel_test]
fn exceptions_are_left_alone() {
    let network = Network::new();
    let listeners = [80, 443, 8000, 8001].map(|port| (port, network.listen(port)));
    let taken = |text: &str| -> Vec<u16> {
        let midspan = Midspan::ready(&network.gateway, &format!("{TRANSPARENT}{text}\n"));
        let mut taken = Vec::new();
        for (port, listener) in &listeners {
            for (server, _) in BOTH {
                let mut near = network.connect(server, *port).unwrap();
                let (mut far, _) = accept(listener);
                echoes(&mut near, &mut far);
                if network.taken(*port) > 0 {
                    taken.push(*port);
                }
                abort(near);
                wait_until("closed", || network.taken(*port) == 0);
            }
        }
        midspan.stop();
        taken
    };
    assert_eq!(
        taken("ports = [80, \"8000-8100\"]"),
        [80, 80, 8000, 8000, 8001, 8001]
    );
    assert_eq!(taken("except_ports = [80, 8000, 8001]"), [443, 443]);
    assert_eq!(taken("ports = [80]\nexcept = [\"10.3.0.0/16\"]"), [80]);
    assert_eq!(taken("ports = [443]\nexcept = [\"fd01::2\"]"), [443]);
    assert_eq!(taken("families = [\"ipv6\"]\nports = [80]"), [80]);
    let other = TRANSPARENT.replace("\"acc\"", "\"ppp*\"");
    let midspan = Midspan::ready(&network.gateway, &other);
    let near = network.connect(SERVER, 80).unwrap();
    assert_eq!(network.taken(80), 0);
    abort(near);
    midspan.stop();
}

#[kernel_test]
fn flows_under_way_go_on() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let mut old = Vec::new();
    for (server, _) in BOTH {
        let near = network.connect(server, PORT).unwrap();
        let (far, _) = accept(&listener);
        old.push((near, far));
    }
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (near, far) in &mut old {
        echoes(near, far);
    }
    assert_eq!(network.taken(PORT), 0);
    for (near, far) in old {
        carries(near, far, 1_000_000);
    }
    midspan.stop();
}

/// The first SYN passed the gateway before Midspan started, so the second one must pass too.
#[kernel_test]
fn a_syn_under_way_goes_on() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(PORT);
    let socket = socket(&network.client, SERVER);
    let address: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
    // The gateway tracks connections, like every gateway with NAT.
    rules(&network.gateway, STRICT);
    let waiting = std::thread::spawn(move || {
        socket.connect_timeout(&address.into(), LIMIT).unwrap();
        bounded(socket.into())
    });
    wait_until("calling", || unanswered(&network.client, PORT) == 1);
    // A moment after it was sent, the SYN is at the server, or lost there.
    std::thread::sleep(Duration::from_millis(200));
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    network.unfilter();
    let mut near = waiting.join().unwrap();
    let (mut far, _) = accept(&listener);
    assert_eq!(network.taken(PORT), 0);
    echoes(&mut near, &mut far);
    midspan.stop();
}

/// A client uses its port again within a minute, for a connection that passes untouched. The socket
/// of its last connection is in TIME-WAIT at the gateway: that of the client leg if the server has
/// closed first, that of the server leg if the client has.
#[kernel_test]
fn a_port_is_used_again_for_a_connection_that_passes() {
    for (number, translating) in [false, true].into_iter().enumerate() {
        let network = Network::new();
        let gateway = &network.gateway;
        if translating {
            rules(gateway, STRICT);
        }
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(gateway, TRANSPARENT);
        let waiting = || output(gateway, "ss", &["-Htan", "state", "time-wait"]);
        let sockets = || output(gateway, "ss", &["-Htanoe"]);
        for (server, client) in BOTH {
            for (ends, server_closes) in [(0, true), (1, false)] {
                let own = 4242 + 10 * number as u16 + ends;
                let connect = || {
                    let socket = socket(&network.client, server);
                    socket.set_reuse_address(true).unwrap();
                    let own = SocketAddr::new(client.parse().unwrap(), own);
                    socket.bind(&own.into()).unwrap();
                    let address = SocketAddr::new(server.parse().unwrap(), PORT);
                    socket.connect_timeout(&address.into(), LIMIT).unwrap();
                    let (far, _) = accept(&listener);
                    (bounded(TcpStream::from(socket)), far)
                };
                let (mut near, mut far) = connect();
                echoes(&mut near, &mut far);
                assert_eq!(network.taken(PORT), 1, "{}", sockets());
                let before = waiting().lines().count();
                let (first, second) = match server_closes {
                    true => (&mut far, &mut near),
                    false => (&mut near, &mut far),
                };
                first.shutdown(Shutdown::Write).unwrap();
                assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
                second.shutdown(Shutdown::Write).unwrap();
                wait_until("a socket waits", || waiting().lines().count() > before);
                // The client's own socket would wait, too, if the client closed it without a reset.
                abort(near);
                drop(far);
                for bypass in [true, false] {
                    let prefix = None;
                    let request = match bypass {
                        true => Request::BypassOn { prefix },
                        false => Request::BypassOff { prefix },
                    };
                    assert!(midspan.ask(&request).ok);
                    let (mut near, mut far) = connect();
                    echoes(&mut near, &mut far);
                    assert_eq!(network.taken(PORT), usize::from(!bypass), "{}", sockets());
                    abort(near);
                    // If the server's FIN came after the client's reset, connection tracking would
                    // keep its entry, and the next connection would pass.
                    assert!(is_reset(&mut far));
                    wait_until("closed", || network.taken(PORT) == 0);
                }
            }
        }
        // No packet of a connection that passes went to an old socket, so no SYN was repeated; on a
        // busy machine, one may be.
        let repeated = network.repeated_syns();
        assert!(repeated <= 1, "{repeated} connections after a repetition");
        midspan.stop();
    }
}

/// The client connects to one address, and the gateway's NAT changes it to another.
#[kernel_test]
fn what_the_host_redirects_is_left_alone() {
    let network = Network::new();
    rules(
        &network.gateway,
        "table ip nat {\n chain pre { type nat hook prerouting priority dstnat;\n \
         ip daddr 198.51.100.1 tcp dport 8080 dnat to 10.3.0.2:80\n }\n}\n",
    );
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect("198.51.100.1", 8080).unwrap();
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    assert_eq!(network.taken(PORT), 0);
    midspan.stop();
}

/// Only rules lead to the listening port; a connection directly to it is refused.
#[kernel_test]
fn the_internal_listener_serves_nobody() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let table = output(
        &network.gateway,
        "nft",
        &["list", "table", "inet", "midspan"],
    );
    for (before, address) in [
        ("tproxy ip to 127.0.0.1:", "127.0.0.1"),
        ("tproxy ip6 to [::1]:", "::1"),
    ] {
        let (_, rest) = table.split_once(before).unwrap();
        let port = rest.split_whitespace().next().unwrap().parse().unwrap();
        assert!(is_reset_early(connect_from(
            &network.gateway,
            address,
            port,
            LIMIT
        )));
        // For other hosts the port does not exist.
        for address in [GATEWAY, OUTSIDE] {
            let error = network.connect(address, port).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        // A server may use the same port number.
        let listener = network.listen(port);
        let near = network.connect(SERVER, port).unwrap();
        let (far, _) = accept(&listener);
        carries(near, far, 10_000);
    }
    midspan.stop();
}

/// A helper of connection tracking reads the data of its connections. It could not read a
/// connection that Midspan intercepts, so such connections pass untouched.
#[kernel_test]
fn control_ports_of_helpers_are_left_alone() {
    const FTP: u16 = 21;
    let network = Network::new();
    let listener = network.listen(FTP);
    for (keys, taken) in [
        ("", false),
        ("ports = [21]", true),
        ("[interception]\nhelper_ports = []", true),
        ("[interception]\nhelper_ports = [\"20-22\"]", false),
    ] {
        let midspan = Midspan::ready(&network.gateway, &format!("{TRANSPARENT}{keys}\n"));
        for (server, _) in BOTH {
            let is_taken = network.is_taken(&listener, server, 0).unwrap();
            assert_eq!(is_taken, taken, "{keys} {server}");
        }
        let log = midspan.end();
        let is_said = log.contains("interception.helper_ports");
        assert_eq!(is_said, !taken, "{keys}: {log}");
    }
}
