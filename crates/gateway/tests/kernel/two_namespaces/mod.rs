//! A proxy and a client in network namespaces of their own, joined by a veth pair.
#![allow(missing_docs, dead_code, clippy::unwrap_used)]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use midspan_gateway::initial_window::{MarkField, WindowNumbers};
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::tcp;
use midspan_testbed::network::{Configure, End, Link, Node};
use socket2::{Domain, Socket, Type};

pub const LIMIT: Duration = Duration::from_secs(10);

pub fn numbers() -> WindowNumbers {
    WindowNumbers {
        marks: MarkField::new(0x0f00_0000).unwrap(),
        table: 7700,
        priority: 32_765,
    }
}

/// The proxy and the client.
pub fn two_namespaces() -> (NetworkNamespace, NetworkNamespace) {
    let proxy = Node::host("proxy").make().unwrap();
    let client = Node::host("client").make().unwrap();
    Link::between(
        End::new(&proxy, "near")
            .address("192.0.2.1/24")
            .address("2001:db8::1/64"),
        End::new(&client, "far")
            .address("192.0.2.2/24")
            .address("2001:db8::2/64"),
    )
    .make()
    .unwrap();
    client.add_address("lo", "198.51.100.1").unwrap();
    proxy
        .add_route("198.51.100.0/24", Some("192.0.2.2"), "near")
        .unwrap();
    (proxy, client)
}

pub fn listener(address: SocketAddr, mark: Option<u32>) -> TcpListener {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    if let Some(mark) = mark {
        tcp::set_mark(&socket, mark).unwrap();
    }
    socket.bind(&address.into()).unwrap();
    socket.listen(16).unwrap();
    socket.into()
}

pub fn connect(from: SocketAddr, to: SocketAddr, mark: Option<u32>) -> TcpStream {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    if let Some(mark) = mark {
        tcp::set_mark(&socket, mark).unwrap();
    }
    socket.bind(&from.into()).unwrap();
    socket.connect_timeout(&to.into(), LIMIT).unwrap();
    socket.into()
}
