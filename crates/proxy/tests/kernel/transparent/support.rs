//! A client, a gateway and a server in network namespaces of their own, and Midspan on the
//! gateway.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
pub use midspan_testbed::kernel_tests::slowness;
pub use midspan_testbed::testing::*;
pub use midspan_testbed::{kernel_test, skip, skip_part};

pub use crate::common::{Control, RELAY};

pub const TRANSPARENT: &str = "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n\
    [[listener]]\nname = \"test\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n";
pub const TRANSPARENT_LISTENER: &str =
    "[[listener]]\nname = \"test\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n";

pub const CLIENT: &str = "10.1.0.2";
pub const CLIENT6: &str = "fd01::2";
pub const GATEWAY: &str = "10.1.0.1";
pub const OUTSIDE: &str = "10.2.0.1";
pub const OUTSIDE6: &str = "fd02::1";
pub const SERVER: &str = "10.3.0.2";
pub const SERVER6: &str = "fd03::2";
pub const PORT: u16 = 80;

/// client – gateway – router – server; clients are behind the gateway's interface `acc`.
pub struct Network {
    pub client: NetworkNamespace,
    /// A router between client and gateway, in some networks.
    pub access: Option<NetworkNamespace>,
    pub gateway: NetworkNamespace,
    pub router: NetworkNamespace,
    pub server: NetworkNamespace,
}

impl Network {
    pub fn new() -> Self {
        Self::build(false)
    }

    /// client – access router – gateway – router – server.
    pub fn with_access_router() -> Self {
        Self::build(true)
    }

    fn build(with_access_router: bool) -> Self {
        let network = Self {
            client: node("client"),
            access: with_access_router.then(|| node("access")),
            gateway: node("gateway"),
            router: node("router"),
            server: node("server"),
        };
        match &network.access {
            None => link(&network.client, "eth", &network.gateway, "acc", 1),
            Some(access) => {
                link(&network.client, "eth", access, "inner", 1);
                link(access, "outer", &network.gateway, "acc", 5);
                route(access, "0.0.0.0/0", "10.5.0.1", "outer");
                route(access, "::/0", "fd05::1", "outer");
                route(&network.gateway, "10.1.0.0/24", "10.5.0.2", "acc");
                route(&network.gateway, "fd01::/64", "fd05::2", "acc");
            }
        }
        link(&network.router, "near", &network.gateway, "wan", 2);
        link(&network.server, "eth", &network.router, "far", 3);
        for (namespace, interface, near) in [
            (&network.client, "eth", true),
            (&network.server, "eth", false),
        ] {
            let subnet = if near { 1 } else { 3 };
            route(
                namespace,
                "0.0.0.0/0",
                &format!("10.{subnet}.0.1"),
                interface,
            );
            route(namespace, "::/0", &format!("fd0{subnet}::1"), interface);
        }
        route(&network.gateway, "0.0.0.0/0", "10.2.0.2", "wan");
        route(&network.gateway, "::/0", "fd02::2", "wan");
        route(&network.router, "10.1.0.0/16", "10.2.0.1", "near");
        route(&network.router, "fd01::/64", "fd02::1", "near");
        network
    }

    /// A listening socket on the server, for both families.
    pub fn listen(&self, port: u16) -> TcpListener {
        listen(&self.server, port)
    }

    /// Drops packets to a port of the server, like a filter on the path.
    pub fn filter_port(&self, port: u16) {
        let text = format!(
            "table inet path {{\n chain in {{\n type filter hook prerouting priority 0;\n \
             tcp dport {port} drop\n }}\n}}\n"
        );
        rules(&self.server, &text);
    }

    pub fn unfilter(&self) {
        rules(&self.server, "delete table inet path\n");
    }

    /// Number of the gateway's own connections to a port of the server. It is above zero only if
    /// Midspan has intercepted connections.
    pub fn taken(&self, port: u16) -> usize {
        // The kernel does not list its sockets in one step. While other sockets open and close, the
        // list can have one twice or not at all, so it is read until it gives the same number twice.
        let mut last = self.listed(port);
        loop {
            let next = self.listed(port);
            if next == last {
                return next;
            }
            last = next;
        }
    }

    fn listed(&self, port: u16) -> usize {
        self.gateway
            .run(move || {
                let suffix = format!(":{port:04X}");
                ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
                    .iter()
                    .map(|file| fs::read_to_string(file).unwrap())
                    .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
                    .filter_map(|line| {
                        let fields: Vec<&str> = line.split_whitespace().collect();
                        // Remote address, and state: established or later, without TIME-WAIT.
                        let is_one = fields[2].ends_with(&suffix)
                            && matches!(fields[3], "01" | "04" | "05" | "08");
                        is_one.then(|| (fields[1].to_owned(), fields[2].to_owned()))
                    })
                    // While sockets change, the kernel may list one twice.
                    .collect::<BTreeSet<_>>()
                    .len()
            })
            .unwrap()
    }

    /// Opens connections from the client until one is intercepted or passes untouched, as expected.
    /// Each one must work. `others` other connections are intercepted at the same time.
    pub fn wait_until_taken(
        &self,
        listener: &TcpListener,
        server: &str,
        taken: bool,
        others: usize,
    ) {
        let what = if taken { "taken" } else { "left alone" };
        wait_until(what, || {
            self.is_taken(listener, server, others).unwrap() == taken
        });
    }

    /// Whether a new connection from the client is intercepted, next to `others` other ones.
    pub fn is_taken(
        &self,
        listener: &TcpListener,
        server: &str,
        others: usize,
    ) -> io::Result<bool> {
        let port = listener.local_addr()?.port();
        // What the client gave up earlier may have reached the server.
        listener.set_nonblocking(true)?;
        while listener.accept().is_ok() {}
        listener.set_nonblocking(false)?;
        let mut near = self.connect(server, port)?;
        let (mut far, _) = accept(listener);
        let exchanged = near
            .write_all(b"ping")
            .and_then(|()| far.read_exact(&mut [0; 4]));
        let is_taken = self.taken(port) > others;
        abort(near);
        drop(far);
        wait_until("closed", || self.taken(port) == others);
        exchanged.map(|()| is_taken)
    }

    /// SYNs that the client has repeated.
    pub fn repeated_syns(&self) -> u64 {
        let count = || {
            let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
            let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
            let mut next = || lines.next().unwrap().split_whitespace();
            let (names, mut values) = (next(), next());
            let place = names.take_while(|name| *name != "TCPSynRetrans").count();
            values.nth(place).unwrap().parse().unwrap()
        };
        self.client.run(count).unwrap()
    }

    /// Connects from the client.
    pub fn connect(&self, server: &str, port: u16) -> io::Result<TcpStream> {
        connect_from(&self.client, server, port, Duration::from_secs(10))
    }
}

/// Number of a host's connections to a port that have had no answer yet.
pub fn unanswered(namespace: &NetworkNamespace, port: u16) -> usize {
    let suffix = format!(":{port:04X}");
    namespace
        .run(move || {
            let table = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            let tables = table("tcp").unwrap() + &table("tcp6").unwrap();
            let rows = tables.lines().map(str::split_whitespace);
            rows.map(Iterator::collect::<Vec<_>>)
                .filter(|row| row[2].ends_with(&suffix) && row[3] == "02")
                .count()
        })
        .unwrap()
}

/// Whether an accepted connection is reset, perhaps before `connect` returned.
pub fn is_reset_early(connected: io::Result<TcpStream>) -> bool {
    match connected {
        Ok(mut stream) => is_reset(&mut stream),
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

pub const BOTH: [(&str, &str); 2] = [(SERVER, CLIENT), (SERVER6, CLIENT6)];

pub fn early() -> String {
    format!("{TRANSPARENT}handshake = \"early\"\n")
}

/// Rules that masquerade, drop all connections that are not permitted, and drop every packet that
/// connection tracking cannot assign.
pub const STRICT: &str = r#"
table ip nat {
    chain post { type nat hook postrouting priority srcnat;
        ip saddr 10.1.0.0/16 oifname != "acc" masquerade
    }
}
table ip6 nat {
    chain post { type nat hook postrouting priority srcnat;
        ip6 saddr fd01::/16 oifname != "acc" masquerade
    }
}
table inet filter {
    chain input { type filter hook input priority filter; policy drop;
        iifname "lo" accept
        meta l4proto ipv6-icmp accept
        ct state invalid counter drop
        ct state established,related accept
        tcp dport 22 accept
    }
    chain forward { type filter hook forward priority filter; policy drop;
        ct state invalid counter drop
        ct state established,related accept
        tcp dport 81 reject with tcp reset
        tcp dport 82 drop
        iifname "acc" accept
    }
    chain output { type filter hook output priority filter; policy accept;
        ct state invalid counter drop
    }
}
"#;

/// The number of sessions that have ended, from the log. All data about these sessions has been
/// recorded.
pub trait Ended {
    fn ended(&self) -> usize;
}

impl Ended for Midspan {
    fn ended(&self) -> usize {
        self.log().matches("session ended").count()
    }
}
