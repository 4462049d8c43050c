//! The network in the guide's picture: client, gateway, router, server.

use std::process::Command;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::network::{Configure, End, Link, Node};

pub const SERVER: &str = "198.51.100.80";
/// The address of clients behind the gateway's masquerade, as seen by the server.
pub const OUTSIDE: &str = "203.0.113.2";

pub struct Network {
    pub client: NetworkNamespace,
    pub gateway: NetworkNamespace,
    _router: NetworkNamespace,
    pub server: NetworkNamespace,
}

impl Network {
    pub fn new() -> Self {
        // The strictest check of source addresses.
        let [client, gateway, server] = ["client", "gateway", "server"]
            .map(|name| Node::host(name).strict_sources().make().unwrap());
        let router = Node::router("router").strict_sources().make().unwrap();
        let link = |(one, name, address), (other, other_name, other_address)| {
            let one = End::new(one, name).address(format!("{address}/24"));
            let other = End::new(other, other_name).address(format!("{other_address}/24"));
            Link::between(one, other).make().unwrap();
        };
        link(
            (&client, "eth0", "192.168.10.2"),
            (&gateway, "eth1", "192.168.10.1"),
        );
        link(
            (&gateway, "eth0", OUTSIDE),
            (&router, "near", "203.0.113.1"),
        );
        link((&server, "eth0", SERVER), (&router, "far", "198.51.100.1"));
        for (node, gateway) in [
            (&client, "192.168.10.1"),
            (&gateway, "203.0.113.1"),
            (&server, "198.51.100.1"),
        ] {
            node.add_route("0.0.0.0/0", Some(gateway), "eth0").unwrap();
        }
        // The router has no route to the addresses behind the gateway: without the masquerade no
        // answer comes back.
        Self {
            client,
            gateway,
            _router: router,
            server,
        }
    }

    /// The node with this name in the guide.
    pub fn place(&self, name: &str) -> &NetworkNamespace {
        match name {
            "client" => &self.client,
            "gateway" => &self.gateway,
            _ => panic!("the page runs commands at \"{name}\""),
        }
    }
}

/// Runs a shell command and returns its output.
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

/// A shell command with a time limit.
pub fn shell(command: &str) -> Command {
    let mut shell = Command::new("timeout");
    shell
        .args(["60", "sh", "-ec", command])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    shell
}
