//! Keep-alive probes to idle peers, on both legs of every mode.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::support::*;

const FORWARD: u16 = 8080;
const SOCKS: u16 = 1080;
const HTTP: u16 = 3128;
const MODES: [u16; 4] = [PORT, FORWARD, SOCKS, HTTP];

/// One listener of each mode, each with the further `keys`.
fn all_modes(keys: &str) -> String {
    let forward = format!("listen = \"{GATEWAY}:{FORWARD}\"\nto = \"{SERVER}:{PORT}\"\n");
    let explicit = |mode: &str, port: u16| {
        format!(
            "[[listener]]\nname = \"{mode}\"\nmode = \"{mode}\"\nlisten = \"{GATEWAY}:{port}\"\n\
             clients = [\"10.1.0.0/24\"]\n{keys}"
        )
    };
    format!(
        "{TRANSPARENT}{keys}[[listener]]\nname = \"forward\"\n{forward}{keys}{}{}",
        explicit("socks5", SOCKS),
        explicit("http", HTTP),
    )
}

/// Opens a session through the listener on this port, up to the server.
fn open(network: &Network, port: u16) -> TcpStream {
    let mut near = match port {
        PORT => network.connect(SERVER, PORT),
        port => network.connect(GATEWAY, port),
    }
    .unwrap();
    let [a, b, c, d]: [u8; 4] = [10, 3, 0, 2];
    let (said, answers): (Vec<u8>, usize) = match port {
        SOCKS => ([5, 1, 0, 5, 1, 0, 1, a, b, c, d, 0, 80].to_vec(), 2 + 10),
        HTTP => {
            let request = format!("CONNECT {SERVER}:{PORT} HTTP/1.1\r\nHost: a\r\n\r\n");
            (request.into_bytes(), 0)
        }
        _ => (Vec::new(), 0),
    };
    near.write_all(&said).unwrap();
    near.read_exact(&mut vec![0; answers]).unwrap();
    if port == HTTP {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            near.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
    }
    near
}

/// The lines of `ss` for the gateway's connected sockets, with their timers.
fn sockets(network: &Network) -> Vec<String> {
    let arguments = ["-t", "-n", "-o", "-H", "state", "established"];
    let text = output(&network.gateway, "ss", &arguments);
    text.lines().map(str::to_owned).collect()
}

#[kernel_test]
fn both_legs_of_every_mode_are_probed() {
    let network = Network::new();
    let listener = network.listen(PORT);
    for (keys, timer) in [
        // `ss` rounds down: less than ten minutes are left.
        ("", Some("timer:(keepalive,9min5")),
        (
            "client_leg = { keepalive = \"3 min\" }\nserver_leg = { keepalive = \"3 min\" }\n",
            Some("timer:(keepalive,2min5"),
        ),
        (
            "client_leg = { keepalive = \"0 s\" }\nserver_leg = { keepalive = \"0 s\" }\n",
            None,
        ),
    ] {
        let midspan = Midspan::ready(&network.gateway, &all_modes(keys));
        for port in MODES {
            let mut near = open(&network, port);
            let (mut far, _) = accept(&listener);
            echoes(&mut near, &mut far);
            // Another timer runs until the sent data is acknowledged.
            let is_so = |line: &String| match timer {
                Some(timer) => line.contains(timer),
                None => !line.contains("timer:"),
            };
            wait_until("probed as told", || {
                let legs = sockets(&network);
                legs.len() == 2 && legs.iter().all(is_so)
            });
            abort(near);
            drop(far);
            wait_until("ended", || sockets(&network).is_empty());
        }
        midspan.stop();
    }
}

#[kernel_test]
fn a_client_that_has_vanished_is_found() {
    let network = Network::new();
    let listener = network.listen(PORT);
    for (parameter, value) in [("tcp_keepalive_intvl", "1"), ("tcp_keepalive_probes", "2")] {
        let parameter = format!("net/ipv4/{parameter}");
        network.gateway.set_parameter(&parameter, value).unwrap();
    }
    let text = all_modes("client_leg = { keepalive = \"1 s\" }\n");
    let midspan = Midspan::ready(&network.gateway, &text);
    let mut open: Vec<_> = MODES
        .map(|port| {
            let mut near = open(&network, port);
            let (mut far, _) = accept(&listener);
            echoes(&mut near, &mut far);
            (near, far)
        })
        .into();
    std::thread::sleep(std::time::Duration::from_secs(4));
    for (near, far) in &mut open {
        echoes(near, far);
    }
    // The peer vanishes without a FIN or a reset.
    rules(
        &network.client,
        "table inet off {\n chain c {\n type filter hook prerouting priority -500;\n drop\n }\n}\n",
    );
    for (_, far) in &mut open {
        assert!(is_reset(far), "{}", midspan.log());
    }
    wait_until("ended", || midspan.ended() == MODES.len());
    midspan.stop();
}
