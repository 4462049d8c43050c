//! Connections over several paths (MPTCP, RFC 8684).

use std::net::TcpListener;

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::command::Request;
use socket2::{Domain, Protocol, Socket, Type};

use super::support::*;

/// `IPPROTO_MPTCP`.
const MPTCP: Protocol = Protocol::MPTCP;
/// A second address of the client, from which it opens its second path.
const SECOND: &str = "10.1.0.7";

fn succeeds(namespace: &NetworkNamespace, command: &str) -> bool {
    let command = format!("{command} && echo done");
    output(namespace, "sh", &["-c", &command]).ends_with("done\n")
}

/// A counter of the kernel's MPTCP.
fn counted(namespace: &NetworkNamespace, name: &str) -> u64 {
    let text = output(namespace, "nstat", &["-a", "-s", "-z", name]);
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The first subflow was opened before Midspan started; the SYN of the second one reaches Midspan.
#[kernel_test]
fn a_further_path_passes() {
    let network = Network::new();
    let listener = network.server.run(|| -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(MPTCP))?;
        let address: std::net::SocketAddr = "0.0.0.0:80".parse().unwrap();
        socket.bind(&address.into())?;
        socket.listen(10)?;
        Ok(socket.into())
    });
    let limits = "ip mptcp limits set subflow 2 add_addr_accepted 2";
    if !succeeds(&network.client, limits) || !succeeds(&network.server, limits) {
        return skip("the kernel or `ip` has no MPTCP");
    }
    let Ok(listener) = listener.unwrap() else {
        return skip("the kernel has no MPTCP");
    };
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    assert!(midspan.ask(&Request::BypassOn { prefix: None }).ok);
    let socket = network
        .client
        .run(|| Socket::new(Domain::IPV4, Type::STREAM, Some(MPTCP)).unwrap())
        .unwrap();
    let server: std::net::SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
    socket.connect_timeout(&server.into(), LIMIT).unwrap();
    let mut near = bounded(socket.into());
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    let second = format!(
        "ip address add {SECOND}/24 dev eth && ip mptcp endpoint add {SECOND} dev eth subflow"
    );
    assert!(succeeds(&network.client, &second));
    wait_until("joined by a second path", || {
        counted(&network.server, "MPTcpExtMPJoinAckRx") == 1
    });
    echoes(&mut near, &mut far);
    assert_eq!(network.taken(PORT), 0);
    // The server's program sees no second connection.
    listener.set_nonblocking(true).unwrap();
    let further = listener.accept().map(drop);
    assert_eq!(further.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // A new connection is intercepted, and is a TCP connection for both ends.
    let socket = network
        .client
        .run(|| Socket::new(Domain::IPV4, Type::STREAM, Some(MPTCP)).unwrap())
        .unwrap();
    socket.connect_timeout(&server.into(), LIMIT).unwrap();
    let mut third = bounded(socket.into());
    listener.set_nonblocking(false).unwrap();
    let (mut served, _) = accept(&listener);
    echoes(&mut third, &mut served);
    assert_eq!(network.taken(PORT), 1);
    carries(third, served, 1_000_000);
    carries(near, far, 1_000_000);
    let log = midspan.end();
    assert!(log.contains("left_alone=multipath 1"), "{log}");
}
