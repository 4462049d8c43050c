//! Hosts and what is on the way between them.

use std::net::TcpListener;

use midspan_linux::namespace::NetworkNamespace;

use super::done;
use crate::network::{Configure, End, Link, Node};

/// A router with the strictest check of source addresses.
#[must_use]
#[track_caller]
pub fn node(name: &str) -> NetworkNamespace {
    done(Node::router(name).strict_sources().make())
}

/// Sets an interface up.
#[track_caller]
pub fn up(node: &NetworkNamespace, interface: &str) {
    done(node.set_up(interface));
}

/// A link with the addresses of hosts 2 (`far`) and 1 (`near`)
/// ([`numbered`](crate::network::numbered)).
#[track_caller]
pub fn link(
    far: &NetworkNamespace,
    far_name: &str,
    near: &NetworkNamespace,
    near_name: &str,
    number: u8,
) {
    let far = End::numbered(far, far_name, number, 2);
    let near = End::numbered(near, near_name, number, 1);
    done(Link::between(far, near).make());
}

/// Adds a route by a gateway.
#[track_caller]
pub fn route(node: &NetworkNamespace, to: &str, gateway: &str, interface: &str) {
    done(node.add_route(to, Some(gateway), interface));
}

/// Applies rules of nftables.
#[track_caller]
pub fn rules(node: &NetworkNamespace, text: &str) {
    done(node.apply_rules(text));
}

/// What a program prints that is run at a host.
#[track_caller]
pub fn output(node: &NetworkNamespace, program: &str, arguments: &[&str]) -> String {
    done(node.output_of(program, arguments))
}

/// A listening socket of both families.
#[must_use]
#[track_caller]
pub fn listen(node: &NetworkNamespace, port: u16) -> TcpListener {
    done(node.listen_at(port))
}
