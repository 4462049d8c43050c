//! ICMP errors reach the socket of the right leg.

use std::fs;
use std::io::Write;

use midspan_linux::namespace::NetworkNamespace;

use super::support::*;

/// A router forwards only packets of up to 1300 bytes and reports this by ICMP: on the server's
/// side for an upload, on the client's side for a download.
#[kernel_test]
fn the_path_mtu_is_found_on_both_legs() {
    for nat in ["", STRICT] {
        for text in [TRANSPARENT.to_owned(), early()] {
            let network = Network::with_access_router();
            rules(&network.gateway, nat);
            let access = network.access.as_ref().unwrap();
            let listener = network.listen(PORT);
            let midspan = Midspan::ready(&network.gateway, &text);
            for (router, interface, upwards) in
                [(&network.router, "far", true), (access, "inner", false)]
            {
                let narrow = |mtu| {
                    output(router, "ip", &["link", "set", interface, "mtu", mtu]);
                };
                narrow("1300");
                for (server, _) in BOTH {
                    let near = network.connect(server, PORT).unwrap();
                    let (far, _) = accept(&listener);
                    assert_eq!(network.taken(PORT), 1);
                    match upwards {
                        true => carries(near, far, 1_000_000),
                        false => carries(far, near, 1_000_000),
                    }
                    wait_until("closed", || network.taken(PORT) == 0);
                }
                narrow("1500");
            }
            midspan.stop();
        }
    }
}

/// A router sends "destination unreachable" during a session. The leg concerned gets the error, the
/// other end does not notice, and the session continues when the path works again.
#[kernel_test]
fn unreachable_in_mid_session_reaches_its_leg() {
    for nat in ["", STRICT] {
        let network = Network::with_access_router();
        rules(&network.gateway, nat);
        let access = network.access.as_ref().unwrap();
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
        for (server, client) in BOTH {
            let mut near = network.connect(server, PORT).unwrap();
            let (mut far, from) = accept(&listener);
            assert_eq!(network.taken(PORT), 1);
            echoes(&mut near, &mut far);
            let (is_six, length) = (
                server.contains(':'),
                if server.contains(':') { 128 } else { 32 },
            );
            let seen = |namespace: &NetworkNamespace| unreachable(namespace, is_six);
            for (router, upwards, host) in
                [(&network.router, true, server), (access, false, client)]
            {
                let before = [&network.gateway, &network.client, &network.server].map(seen);
                let host = format!("{host}/{length}");
                let family = if is_six { "-6" } else { "-4" };
                output(
                    router,
                    "ip",
                    &[family, "route", "add", "unreachable", &host],
                );
                match upwards {
                    true => near.write_all(b"data").unwrap(),
                    false => far.write_all(b"data").unwrap(),
                }
                wait_until("told", || seen(&network.gateway).0 > before[0].0);
                output(
                    router,
                    "ip",
                    &[family, "route", "del", "unreachable", &host],
                );
                let mut bytes = [0; 4];
                let reader = if upwards { &mut far } else { &mut near };
                std::io::Read::read_exact(reader, &mut bytes).unwrap();
                assert_eq!(&bytes, b"data");
                let after = [&network.gateway, &network.client, &network.server].map(seen);
                // The kernel counts a message without a socket as an error.
                assert_eq!(
                    after[0].1, before[0].1,
                    "{server}, {from}, upwards: {upwards}"
                );
                assert_eq!(after[1..], before[1..], "{server}, upwards: {upwards}");
            }
            echoes(&mut near, &mut far);
            abort(near);
            wait_until("closed", || network.taken(PORT) == 0);
        }
        midspan.stop();
    }
}

/// Number of "destination unreachable" messages that a host has received, and of ICMP messages that
/// it could not assign to a socket.
fn unreachable(namespace: &NetworkNamespace, is_six: bool) -> (u64, u64) {
    namespace
        .run(move || {
            let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            let number = |text: Option<&str>| text.unwrap().parse().unwrap();
            if is_six {
                let text = read("snmp6").unwrap();
                let find = |name: &str| {
                    let line = text
                        .lines()
                        .find(|line| line.split_whitespace().next() == Some(name));
                    number(line.unwrap().split_whitespace().nth(1))
                };
                return (find("Icmp6InDestUnreachs"), find("Icmp6InErrors"));
            }
            let text = read("snmp").unwrap();
            let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
            let names: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
            let values: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
            let find = |name: &str| {
                let place = names.iter().position(|known| *known == name).unwrap();
                number(values.get(place).copied())
            };
            (find("InDestUnreachs"), find("InErrors"))
        })
        .unwrap()
}
