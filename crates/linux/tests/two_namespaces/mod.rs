//! A proxy and a client in network namespaces of their own, joined by a veth pair.
#![allow(missing_docs, dead_code, clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use midspan_linux::initial_window::{MarkField, Place};
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, Prefix, RouteMetrics};
use midspan_linux::tcp;
use socket2::{Domain, Socket, Type};

pub const LIMIT: Duration = Duration::from_secs(10);

pub fn place() -> Place {
    Place {
        marks: MarkField::new(0x0f00_0000).unwrap(),
        table: 7700,
        priority: 32_765,
    }
}

pub fn connect_namespaces(proxy: &NetworkNamespace, client: &NetworkNamespace) {
    proxy
        .run(|| Netlink::open().unwrap().add_veth("near", "far").unwrap())
        .unwrap();
    let descriptor = std::os::fd::AsFd::as_fd(client)
        .try_clone_to_owned()
        .unwrap();
    proxy
        .run(move || {
            let netlink = Netlink::open().unwrap();
            let far = std::os::fd::AsFd::as_fd(&descriptor);
            netlink.move_interface("far", far).unwrap();
        })
        .unwrap();
    set_up(proxy, "near", "192.0.2.1", "2001:db8::1");
    set_up(client, "far", "192.0.2.2", "2001:db8::2");
    client
        .run(|| {
            let netlink = Netlink::open().unwrap();
            netlink
                .add_address("lo", prefix("198.51.100.1", 32))
                .unwrap();
        })
        .unwrap();
    set_route(proxy, "198.51.100.0", Some("192.0.2.2"));
}

pub fn set_up(namespace: &NetworkNamespace, interface: &'static str, four: &str, six: &str) {
    // Without this an IPv6 address is of no use for its first second.
    namespace
        .set_parameter(&format!("net/ipv6/conf/{interface}/accept_dad"), "0")
        .unwrap();
    let (four, six) = (prefix(four, 24), prefix(six, 64));
    namespace
        .run(move || {
            let netlink = Netlink::open().unwrap();
            netlink.set_up("lo").unwrap();
            netlink.set_up(interface).unwrap();
            netlink.add_address(interface, four).unwrap();
            netlink.add_address(interface, six).unwrap();
        })
        .unwrap();
}

pub fn prefix(address: &str, length: u8) -> Prefix {
    let address = address.parse().unwrap();
    Prefix { address, length }
}

pub fn set_route(namespace: &NetworkNamespace, to: &str, gateway: Option<&str>) {
    let to = prefix(to, 24);
    let gateway: Option<IpAddr> = gateway.map(|gateway| gateway.parse().unwrap());
    namespace
        .run(move || {
            let metrics = RouteMetrics::default();
            let netlink = Netlink::open().unwrap();
            netlink.set_route(to, gateway, "near", &metrics).unwrap();
        })
        .unwrap();
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
