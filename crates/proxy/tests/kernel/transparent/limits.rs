//! The limits of sessions apply to the SYN: connections beyond them pass untouched.

use std::net::TcpStream;
use std::time::Instant;

use socket2::{SockAddr, Socket};

use super::support::*;

/// A port whose packets the path drops.
const DARK: u16 = 7;

fn with(limits: &str) -> String {
    format!("[limits]\n{limits}\n{TRANSPARENT}")
}

#[kernel_test]
fn caps_hold_at_the_syn_and_a_reload_changes_them() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(DARK);
    let midspan = Midspan::ready(&network.gateway, &with("sessions_per_client = 1"));
    let mut open: Vec<(TcpStream, TcpStream)> = Vec::new();
    // In both cases the server sees the client's address, and every connection works.
    let mut connect = |server: &str, taken: usize, what: &str| {
        let near = network.connect(server, PORT).unwrap();
        let (far, from) = accept(&listener);
        assert_eq!(from.port(), near.local_addr().unwrap().port());
        open.push((near, far));
        for (near, far) in &mut open {
            echoes(near, far);
        }
        assert_eq!(network.taken(PORT), taken, "{what}: {}", midspan.log());
    };
    let reload = |limits: &str| {
        let answer = midspan.reload(&with(limits));
        assert!(answer.ok, "{:?}", answer.error);
    };
    connect(SERVER, 1, "the first");
    connect(SERVER, 1, "beyond the client's");
    connect(SERVER6, 2, "another client");
    reload("sessions_per_client = 2");
    connect(SERVER, 3, "the client's second");
    connect(SERVER, 3, "beyond the client's two");
    reload("sessions = 3");
    connect(SERVER6, 3, "beyond all");
    reload("sessions = 4");
    connect(SERVER6, 4, "of all");
    for (near, _) in open.drain(..) {
        abort(near);
    }
    // The four intercepted connections have ended, so their places are free.
    wait_until("ended", || midspan.ended() == 4);
    // A held SYN has a place as well.
    reload("sessions = 1");
    let held: Socket = socket(&network.client, SERVER);
    held.set_nonblocking(true).unwrap();
    let address = std::net::SocketAddr::new(SERVER.parse().unwrap(), DARK);
    let _ = held.connect(&SockAddr::from(address));
    wait_until("held", || unanswered(&network.gateway, DARK) == 1);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    assert_eq!(network.taken(PORT), 0, "{}", midspan.log());
    reload("sessions = 2");
    let mut second = network.connect(SERVER, PORT).unwrap();
    let (mut served, _) = accept(&listener);
    echoes(&mut second, &mut served);
    assert_eq!(network.taken(PORT), 1, "{}", midspan.log());
    abort(near);
    abort(second);
    drop(held);
    midspan.stop();
}

/// Connections beyond the rate of their client pass untouched; those of another client are intercepted.
#[kernel_test]
fn connections_beyond_the_rate_pass_untouched() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &with("connection_rate_per_client = 2"));
    let mut open: Vec<(TcpStream, TcpStream)> = Vec::new();
    let begin = Instant::now();
    for _ in 0..20 {
        let near = network.connect(SERVER, PORT).unwrap();
        open.push((near, accept(&listener).0));
    }
    let most = 2 + 2 * (usize::try_from(begin.elapsed().as_secs()).unwrap() + 1);
    let taken = network.taken(PORT);
    assert!((2..=most).contains(&taken), "{taken} of at most {most}");
    assert!(taken < 20, "{}", midspan.log());
    let near = network.connect(SERVER6, PORT).unwrap();
    open.push((near, accept(&listener).0));
    assert_eq!(network.taken(PORT), taken + 1, "{}", midspan.log());
    for (near, far) in &mut open {
        echoes(near, far);
    }
    assert!(midspan.log().contains("connection_rate_per_client"));
    for (near, _) in open {
        abort(near);
    }
    midspan.stop();
}
