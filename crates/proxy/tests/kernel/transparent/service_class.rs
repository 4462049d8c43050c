//! The DSCP of the packets of both legs.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::tcp;
use midspan_units::Dscp;

use super::support::*;

/// Captures all packets of a host's interfaces.
fn captured(host: &NetworkNamespace) -> socket2::Socket {
    use socket2::{Domain, Protocol, Socket, Type};
    let every_protocol = Protocol::from(i32::from(3_u16.to_be())); // ETH_P_ALL
    let open = move || Socket::new(Domain::PACKET, Type::DGRAM, Some(every_protocol));
    let socket = host.run(open).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// What captured packets have in the field of DSCP and ECN.
#[derive(Debug, Default)]
struct Seen {
    /// The DSCPs of SYNs.
    syns: BTreeSet<u8>,
    /// The DSCPs of SYN-ACKs.
    answers: BTreeSet<u8>,
    /// The DSCPs of packets with data.
    data: BTreeSet<u8>,
    /// The ECN bits of packets with data.
    ecn: BTreeSet<u8>,
    /// The DSCPs of packets without data: the kernel may send some before it passes a client on.
    bare: BTreeSet<u8>,
}

/// The captured packets from `from` with this port of the client.
fn seen(captured: &socket2::Socket, from: &str, port: u16) -> Seen {
    let from: IpAddr = from.parse().unwrap();
    let (mut reader, mut buffer, mut seen) = (captured, [0; 2048], Seen::default());
    while let Ok(length) = reader.read(&mut buffer) {
        let Ok(packet) = LaxSlicedPacket::from_ip(&buffer[..length]) else {
            continue;
        };
        let (source, field) = match packet.net {
            Some(LaxNetSlice::Ipv4(four)) => {
                let header = four.header();
                let field = header.dcp().value() << 2 | header.ecn().value();
                (IpAddr::from(header.source_addr()), field)
            }
            Some(LaxNetSlice::Ipv6(six)) => {
                let header = six.header();
                (IpAddr::from(header.source_addr()), header.traffic_class())
            }
            _ => continue,
        };
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
            continue;
        };
        if source != from || ![tcp.source_port(), tcp.destination_port()].contains(&port) {
            continue;
        }
        let class = field >> 2;
        match (tcp.syn(), tcp.ack()) {
            (true, false) => seen.syns.insert(class),
            (true, true) => seen.answers.insert(class),
            (false, _) if tcp.payload().is_empty() => seen.bare.insert(class),
            (false, _) if tcp.payload().is_empty() => seen.bare.insert(class),
            (false, _) => seen.data.insert(class),
        };
        if !tcp.syn() && !tcp.payload().is_empty() {
            seen.ecn.insert(field & 3);
        }
    }
    seen
}

/// A connection of the client whose packets have this class.
fn call(network: &Network, class: u8, server: &str, port: u16) -> TcpStream {
    let socket = socket(&network.client, server);
    tcp::set_dscp(&socket, Dscp::from_number(class.into()).unwrap()).unwrap();
    let address = SocketAddr::new(server.parse().unwrap(), port);
    socket
        .connect_timeout(&address.into(), std::time::Duration::from_secs(10))
        .unwrap();
    bounded(socket.into())
}

/// A session with bytes in both directions, and what was captured of it at the client (packets from
/// `near_from`) and at the server (packets from `far_from`).
struct Session {
    near: TcpStream,
    far: TcpStream,
    at_client: Seen,
    at_server: Seen,
}

/// Opens a session through Midspan at `to`, with what `negotiate` sends first.
fn session(
    network: &Network,
    listener: &std::net::TcpListener,
    class: u8,
    (to, port): (&str, u16),
    far_from: &str,
    negotiate: impl FnOnce(&mut TcpStream),
) -> Session {
    let captures = (captured(&network.client), captured(&network.server));
    let mut near = call(network, class, to, port);
    negotiate(&mut near);
    let (mut far, from) = accept(listener);
    echoes(&mut near, &mut far);
    let port = near.local_addr().unwrap().port();
    Session {
        at_client: seen(&captures.0, to, port),
        at_server: seen(&captures.1, far_from, from.port()),
        near,
        far,
    }
}

fn only(class: u8) -> BTreeSet<u8> {
    BTreeSet::from([class])
}

impl Session {
    /// Both legs have the class. The SYN-ACK to the client has `answer`.
    #[track_caller]
    fn has(&self, class: u8, answer: u8) {
        let near = &self.at_client;
        let seen = (&near.answers, &near.data);
        assert_eq!(seen, (&only(answer), &only(class)), "client leg");
        let far = &self.at_server;
        let seen = [&far.syns, &far.data, &far.bare];
        assert_eq!(seen, [&only(class); 3], "server leg");
    }
}

const EF: u8 = 46;
const AF41: u8 = 34;

/// By default, both legs have the class of the client's SYN, at every kind of listener. Only
/// packets that the kernel sends before it passes the client on have the listening socket's class.
#[kernel_test]
fn both_legs_have_the_class_of_the_client_s_syn() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let mut settings = String::from("[relay]\nthreads = 2\npipe_size = \"64 KiB\"\n");
    let mut add = |name: &str, keys: &str| {
        settings.push_str(&format!("[[listener]]\nname = \"{name}\"\n{keys}"));
    };
    for (number, inside, server) in [
        (4, GATEWAY.to_owned(), SERVER.to_owned()),
        (6, "[fd01::1]".to_owned(), format!("[{SERVER6}]")),
    ] {
        add(
            &format!("forward{number}"),
            &format!("listen = \"{inside}:8000\"\nto = \"{server}:{PORT}\"\n"),
        );
        for (mode, port) in [("socks5", 8001), ("http", 8002)] {
            let clients = "clients = [\"10.1.0.0/24\", \"fd01::/64\"]\n";
            let keys = format!("listen = \"{inside}:{port}\"\nmode = \"{mode}\"\n{clients}");
            add(&format!("{mode}{number}"), &keys);
        }
    }
    let before = settings.clone();
    for handshake in ["end-to-end", "early"] {
        let transparent = format!("{TRANSPARENT_LISTENER}handshake = \"{handshake}\"\n");
        let midspan = Midspan::ready(&network.gateway, &format!("{before}{transparent}"));
        for (server, client) in BOTH {
            for class in [EF, 0] {
                let session = session(&network, &listener, class, (server, PORT), client, |_| {});
                session.has(class, 0);
            }
        }
        drop(midspan);
    }
    let _midspan = Midspan::ready(&network.gateway, &before);
    for (inside, server, outside) in [
        (GATEWAY, SERVER.to_owned(), OUTSIDE),
        ("fd01::1", format!("[{SERVER6}]"), OUTSIDE6),
    ] {
        let forward = session(&network, &listener, EF, (inside, 8000), outside, |_| {});
        forward.has(EF, 0);
        let socks = session(&network, &listener, EF, (inside, 8001), outside, |near| {
            let mut request = vec![5, 1, 0, 5, 1, 0];
            match server.trim_matches(['[', ']']).parse().unwrap() {
                IpAddr::V4(four) => {
                    request.push(1);
                    request.extend(four.octets());
                }
                IpAddr::V6(six) => {
                    request.push(4);
                    request.extend(six.octets());
                }
            }
            request.extend(PORT.to_be_bytes());
            near.write_all(&request).unwrap();
            assert_eq!(exactly::<4>(near), [5, 0, 5, 0]);
            let _ = exactly::<3>(near);
            let rest = if inside == GATEWAY { 5 } else { 17 };
            near.read_exact(&mut vec![0; rest]).unwrap();
        });
        socks.has(EF, 0);
        let http = session(&network, &listener, EF, (inside, 8002), outside, |near| {
            let request = format!("CONNECT {server}:{PORT} HTTP/1.1\r\nHost: {server}\r\n\r\n");
            near.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                answer.extend(exactly::<1>(near));
            }
        });
        http.has(EF, 0);
    }
}

/// The ECN bits belong to TCP: with ECN, packets with data are ECN-capable (RFC 3168), whatever
/// their class is.
#[kernel_test]
fn the_ecn_bits_stay_tcp_s() {
    let network = Network::new();
    let listener = network.listen(PORT);
    for host in [&network.client, &network.gateway, &network.server] {
        let ecn = || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").unwrap();
        host.run(ecn).unwrap();
    }
    let _midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (server, client) in BOTH {
        let session = session(&network, &listener, EF, (server, PORT), client, |_| {});
        session.has(EF, 0);
        // ECT(0).
        assert_eq!(session.at_client.ecn, only(2), "{server}");
        assert_eq!(session.at_server.ecn, only(2), "{server}");
    }
}

/// What the host's rules set is what leaves.
#[kernel_test]
fn the_host_s_later_rules_win() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let text = format!(
        "table inet host {{\n chain post {{\n type filter hook postrouting priority mangle;\n \
         oifname \"wan\" tcp dport {PORT} ip dscp set cs1\n \
         oifname \"wan\" tcp dport {PORT} ip6 dscp set cs1\n }}\n}}\n"
    );
    rules(&network.gateway, &text);
    let _midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (server, client) in BOTH {
        let session = session(&network, &listener, EF, (server, PORT), client, |_| {});
        assert_eq!(session.at_client.data, only(EF), "{server}");
        assert_eq!(session.at_server.syns, only(8), "{server}");
        assert_eq!(session.at_server.data, only(8), "{server}");
    }
}

/// Sessions keep their class after a reload. A fixed class is also that of the SYN-ACK.
#[kernel_test]
fn a_reload_changes_the_service_class_of_new_sessions() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut sessions = Vec::new();
    let steps = [
        ("", AF41, 0),
        ("dscp = \"ef\"\n", EF, EF),
        ("dscp = 46\nhandshake = \"early\"\n", EF, EF),
        ("dscp = \"client\"\n", AF41, 0),
        ("dscp = 0\n", 0, 0),
    ];
    for (keys, class, answer) in steps {
        let reloaded = midspan.reload(&format!("{TRANSPARENT}{keys}"));
        assert!(reloaded.ok, "{:?}", reloaded.error);
        for (server, client) in BOTH {
            let session = session(&network, &listener, AF41, (server, PORT), client, |_| {});
            session.has(class, answer);
            sessions.push((session, server, client, class));
        }
    }
    for (session, server, client, class) in &mut sessions {
        let captures = (captured(&network.client), captured(&network.server));
        echoes(&mut session.near, &mut session.far);
        let port = session.near.local_addr().unwrap().port();
        let near = seen(&captures.0, server, port);
        let far = seen(&captures.1, client, port);
        assert_eq!((near.data, far.data), (only(*class), only(*class)));
    }
}
