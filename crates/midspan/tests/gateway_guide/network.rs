//! The network of the page's picture: client, gateway, router, server.

use std::os::fd::AsFd;
use std::process::Command;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, Prefix, RouteMetrics};

pub const SERVER: &str = "198.51.100.80";
/// What the server sees of clients behind the gateway's masquerade.
pub const OUTSIDE: &str = "203.0.113.2";

pub struct Network {
    pub client: NetworkNamespace,
    pub gateway: NetworkNamespace,
    _router: NetworkNamespace,
    pub server: NetworkNamespace,
}

impl Network {
    pub fn new() -> Self {
        let [client, gateway, router, server] =
            ["client", "gateway", "router", "server"].map(|name| {
                let node = NetworkNamespace::new(name).unwrap();
                // The strictest check of source addresses.
                for group in ["all", "default"] {
                    let parameter = format!("net/ipv4/conf/{group}/rp_filter");
                    node.set_parameter(&parameter, "1").unwrap();
                }
                on(&node, |netlink| netlink.set_up("lo").unwrap());
                node
            });
        router.set_parameter("net/ipv4/ip_forward", "1").unwrap();
        link(
            &client,
            "eth0",
            "192.168.10.2",
            &gateway,
            "eth1",
            "192.168.10.1",
        );
        link(&gateway, "eth0", OUTSIDE, &router, "near", "203.0.113.1");
        link(&server, "eth0", SERVER, &router, "far", "198.51.100.1");
        for (node, gateway) in [
            (&client, "192.168.10.1"),
            (&gateway, "203.0.113.1"),
            (&server, "198.51.100.1"),
        ] {
            let gateway = gateway.parse().unwrap();
            on(node, move |netlink| {
                let everything = prefix("0.0.0.0", 0);
                let metrics = RouteMetrics::default();
                netlink
                    .set_route(everything, Some(gateway), "eth0", &metrics)
                    .unwrap();
            });
        }
        // The router knows nothing of the addresses behind the gateway: without its masquerade
        // no answer comes back.
        Self {
            client,
            gateway,
            _router: router,
            server,
        }
    }

    /// The node that the page calls so.
    pub fn place(&self, name: &str) -> &NetworkNamespace {
        match name {
            "client" => &self.client,
            "gateway" => &self.gateway,
            _ => panic!("the page runs commands at \"{name}\""),
        }
    }
}

fn on(node: &NetworkNamespace, change: impl FnOnce(&Netlink) + Send + 'static) {
    node.run(move || change(&Netlink::open().unwrap())).unwrap();
}

fn prefix(address: &str, length: u8) -> Prefix {
    Prefix {
        address: address.parse().unwrap(),
        length,
    }
}

fn link(
    one: &NetworkNamespace,
    name: &'static str,
    address: &'static str,
    other: &NetworkNamespace,
    other_name: &'static str,
    other_address: &'static str,
) {
    let namespace = other.as_fd().try_clone_to_owned().unwrap();
    on(one, move |netlink| {
        // Both ends are made here, where `other_name` may be taken.
        netlink.add_veth(name, "moved").unwrap();
        netlink.move_interface("moved", namespace.as_fd()).unwrap();
    });
    run(other, &format!("ip link set moved name {other_name}"));
    for (node, name, address) in [(one, name, address), (other, other_name, other_address)] {
        on(node, move |netlink| {
            netlink.add_address(name, prefix(address, 24)).unwrap();
            netlink.set_up(name).unwrap();
        });
    }
}

/// Runs a shell command; what it prints.
pub fn run(node: &NetworkNamespace, command: &str) -> String {
    let output = node.spawn(shell(command)).unwrap().wait_with_output();
    let output = output.unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(
        output.status.success(),
        "{command}: {}\n{stdout}{stderr}",
        output.status
    );
    stdout + &stderr
}

/// A shell command, bounded in time.
pub fn shell(command: &str) -> Command {
    let mut shell = Command::new("timeout");
    shell
        .args(["60", "sh", "-ec", command])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    shell
}
