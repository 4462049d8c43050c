//! How the client is answered.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use midspan_linux::namespace;
use midspan_linux::raw_packet::{Family, RawSocket};

use crate::support::*;

pub fn a_closed_port_refuses() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (server, _) in BOTH {
        let refused = network.connect(server, 9).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    }
    midspan.stop();
}

pub fn a_filtered_port_times_out() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (server, _) in BOTH {
        let result = connect(&network.client, server, PORT, Duration::from_secs(4));
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    // A client that is still there when the server answers at last is connected.
    let waiting = {
        let socket = socket(&network.client, SERVER);
        let address: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
        std::thread::spawn(move || {
            socket.connect_timeout(&address.into(), LIMIT).unwrap();
            bounded(socket.into())
        })
    };
    std::thread::sleep(Duration::from_millis(500));
    network.unfilter();
    let mut near = waiting.join().unwrap();
    let (mut far, from) = accept(&listener);
    assert_eq!(from, near.local_addr().unwrap());
    assert_eq!(network.taken(PORT), 1);
    echoes(&mut near, &mut far);
    abort(near);
    midspan.stop();
}

pub fn an_unreachable_host_is_reported() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    // The router has no route there, and says so.
    for server in ["10.99.0.1", "fd99::1"] {
        let error = network.connect(server, PORT).unwrap_err();
        let unreachable = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
        assert!(unreachable.contains(&error.kind()), "{server}: {error}");
    }
    midspan.stop();
}

pub fn early_data_is_kept() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(PORT);
    let midspan = Midspan::ready(&network.gateway, &early());
    for (server, client) in BOTH {
        let start = Instant::now();
        let mut near = network.connect(server, PORT).unwrap();
        assert!(start.elapsed() < Duration::from_millis(900), "not early");
        near.write_all(b"first ").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        network.unfilter();
        let (mut far, from) = accept(&listener);
        assert_eq!(from.ip().to_string(), client);
        near.write_all(b"second").unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut far, &mut text).unwrap();
        assert_eq!(text, "first second");
        network.filter_port(PORT);
    }
    // A refusal can only be shown as a reset.
    assert!(is_reset_early(network.connect(SERVER, 9)));
    midspan.stop();
}

/// SYNs from many invented clients to a server that never answers.
pub fn spoofed_syns_stop_nobody() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(7);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let raw = network
        .client
        .run(|| RawSocket::open(Family::V4))
        .unwrap()
        .unwrap();
    let sender = std::thread::spawn(move || {
        let mut raw = RawSocket::from_socket(raw);
        let start = Instant::now();
        let mut sent = 0_u32;
        while start.elapsed() < Duration::from_secs(4) {
            // 10,000 a second, if the machine can.
            while f64::from(sent) < start.elapsed().as_secs_f64() * 10_000.0 {
                raw.send(&spoofed_syn(sent), 0).unwrap();
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        sent
    });
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    let mut connections = 0;
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(3) {
        let begin = Instant::now();
        let mut near = network.connect(SERVER, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        slowest = slowest.max(begin.elapsed());
        echoes(&mut near, &mut far);
        abort(near);
        connections += 1;
    }
    let sent = sender.join().unwrap();
    println!("  {sent} spoofed SYNs; beside them {connections} connections, slowest {slowest:?}");
    assert!(sent > 8000 && connections > 20);
    assert!(
        midspan.log().contains("too many are being opened"),
        "{}",
        midspan.log()
    );
    midspan.stop();
}

fn spoofed_syn(number: u32) -> Vec<u8> {
    // Hosts that there might be behind the client's interface.
    let host = 3 + (number % 250) as u8;
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 1, 0, host], [10, 3, 0, 2], 64)
        .tcp(2000 + (number % 50_000) as u16, 7, number, 65535)
        .syn()
        .write(&mut packet, &[])
        .unwrap();
    packet
}

/// `cargo test --release -p midspan-proxy --test transparent -- measure`: what a connection's
/// set-up takes without a proxy and with each handshake, over links without delay; medians.
pub fn measure() {
    namespace::isolate().unwrap();
    for (name, text) in [
        ("no proxy", None),
        ("end-to-end", Some(TRANSPARENT.to_owned())),
        ("early", Some(early())),
    ] {
        let network = Network::new();
        let listener = network.listen(PORT);
        let midspan = text.map(|text| Midspan::ready(&network.gateway, &text));
        let mut times = Vec::new();
        let start = Instant::now();
        for _ in 0..20_000 {
            let socket = socket(&network.client, SERVER);
            let address: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
            let begin = Instant::now();
            socket.connect(&address.into()).unwrap();
            times.push(begin.elapsed());
            let (far, _) = accept(&listener);
            abort(socket.into());
            abort(far);
        }
        let rate = f64::from(20_000) / start.elapsed().as_secs_f64();
        times.sort_unstable();
        let (half, most) = (times[10_000], times[19_800]);
        println!(
            "{name}: {half:?}, 99 % below {most:?}; {rate:.0} connections/s one after another"
        );
        if let Some(midspan) = midspan {
            midspan.stop();
        }
    }
}
