//! A client, a gateway and a server in network namespaces of their own, and Midspan on the
//! gateway.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, Prefix, RouteMetrics};
use midspan_linux::nftables;
use socket2::{Domain, SockRef, Socket, Type};

pub use super::program::{Midspan, RELAY, TRANSPARENT, TRANSPARENT_LISTENER};

pub const LIMIT: Duration = Duration::from_secs(20);

pub const CLIENT: &str = "10.1.0.2";
pub const CLIENT6: &str = "fd01::2";
pub const GATEWAY: &str = "10.1.0.1";
pub const OUTSIDE: &str = "10.2.0.1";
pub const OUTSIDE6: &str = "fd02::1";
pub const SERVER: &str = "10.3.0.2";
pub const SERVER6: &str = "fd03::2";
pub const PORT: u16 = 80;

/// client – gateway – router – server; clients are at the gateway's interface `acc`.
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
        let make = |name: &str| {
            let namespace = NetworkNamespace::new(name).unwrap();
            // Addresses can be used at once.
            for group in ["all", "default"] {
                let parameter = format!("net/ipv6/conf/{group}/accept_dad");
                namespace.set_parameter(&parameter, "0").unwrap();
                // The strictest check of source addresses.
                let parameter = format!("net/ipv4/conf/{group}/rp_filter");
                namespace.set_parameter(&parameter, "1").unwrap();
            }
            namespace.set_parameter("net/ipv4/ip_forward", "1").unwrap();
            namespace
                .set_parameter("net/ipv6/conf/all/forwarding", "1")
                .unwrap();
            up(&namespace, "lo");
            namespace
        };
        let network = Self {
            client: make("client"),
            access: with_access_router.then(|| make("access")),
            gateway: make("gateway"),
            router: make("router"),
            server: make("server"),
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

    /// A listening socket on the server, at both families' port.
    pub fn listen(&self, port: u16) -> TcpListener {
        listen(&self.server, port)
    }

    /// Takes packets to a port of the server away, as a filter on the path does.
    pub fn filter_port(&self, port: u16) {
        self.server
            .run(move || {
                nftables::apply(&format!(
                    "table inet path {{\n chain in {{\n type filter hook prerouting priority 0;\n \
                     tcp dport {port} drop\n }}\n}}\n"
                ))
            })
            .unwrap()
            .unwrap();
    }

    pub fn unfilter(&self) {
        rules(&self.server, "delete table inet path\n");
    }

    /// How many connections to a port the gateway itself holds towards the server: more than none
    /// only where Midspan stands between.
    pub fn taken(&self, port: u16) -> usize {
        self.gateway
            .run(move || {
                let suffix = format!(":{port:04X}");
                ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
                    .iter()
                    .map(|file| fs::read_to_string(file).unwrap())
                    .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
                    .filter(|line| {
                        let fields: Vec<&str> = line.split_whitespace().collect();
                        // Remote address, state: established or later, not waiting out.
                        fields[2].ends_with(&suffix)
                            && matches!(fields[3], "01" | "04" | "05" | "08")
                    })
                    .count()
            })
            .unwrap()
    }

    /// Waits until a new connection from the client, which must work, is taken or passes untouched,
    /// beside so many others that are taken.
    pub fn wait_until_taken(
        &self,
        listener: &TcpListener,
        server: &str,
        taken: bool,
        beside: usize,
    ) {
        let what = if taken { "taken" } else { "left alone" };
        wait_until(what, || {
            self.is_taken(listener, server, beside).unwrap() == taken
        });
    }

    /// Whether a new connection from the client is taken, beside so many others.
    pub fn is_taken(
        &self,
        listener: &TcpListener,
        server: &str,
        beside: usize,
    ) -> io::Result<bool> {
        let port = listener.local_addr()?.port();
        let mut near = self.connect(server, port)?;
        let (mut far, _) = accept(listener);
        let exchanged = near
            .write_all(b"ping")
            .and_then(|()| far.read_exact(&mut [0; 4]));
        let is_taken = self.taken(port) > beside;
        abort(near);
        drop(far);
        wait_until("closed", || self.taken(port) == beside);
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

    /// From the client.
    pub fn connect(&self, server: &str, port: u16) -> io::Result<TcpStream> {
        connect(&self.client, server, port, Duration::from_secs(10))
    }
}

pub fn rules(namespace: &NetworkNamespace, text: &str) {
    let text = text.to_owned();
    namespace
        .run(move || nftables::apply(&text))
        .unwrap()
        .unwrap();
}

/// Calls of a host to a port that have had no answer, by IPv4.
pub fn unanswered(namespace: &NetworkNamespace, port: u16) -> usize {
    let suffix = format!(":{port:04X}");
    namespace
        .run(move || {
            let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
            let rows = table.lines().map(str::split_whitespace);
            rows.map(Iterator::collect::<Vec<_>>)
                .filter(|row| row[2].ends_with(&suffix) && row[3] == "02")
                .count()
        })
        .unwrap()
}

/// What a program prints that is run in a namespace.
pub fn output(namespace: &NetworkNamespace, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = namespace.spawn(command).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

pub fn up(namespace: &NetworkNamespace, interface: &str) {
    let interface = interface.to_owned();
    namespace
        .run(move || Netlink::open().unwrap().set_up(&interface).unwrap())
        .unwrap();
}

/// A link between two namespaces, with the addresses 10.N.0.2 and 10.N.0.1 (fdN::2, fdN::1).
pub fn link(
    far: &NetworkNamespace,
    far_name: &str,
    near: &NetworkNamespace,
    near_name: &str,
    number: u8,
) {
    // The router is the second on its link to the gateway, and the first on that to the server.
    let other = near.as_fd().try_clone_to_owned().unwrap();
    let (a, b) = (far_name.to_owned(), near_name.to_owned());
    far.run(move || {
        let netlink = Netlink::open().unwrap();
        netlink.add_veth(&a, &b).unwrap();
        netlink.move_interface(&b, other.as_fd()).unwrap();
    })
    .unwrap();
    for (namespace, name, host) in [(far, far_name, 2), (near, near_name, 1)] {
        let name = name.to_owned();
        namespace
            .run(move || {
                let netlink = Netlink::open().unwrap();
                for (address, length) in [
                    (format!("10.{number}.0.{host}"), 24),
                    (format!("fd0{number}::{host}"), 64),
                ] {
                    let address = address.parse().unwrap();
                    netlink
                        .add_address(&name, Prefix { address, length })
                        .unwrap();
                }
                netlink.set_up(&name).unwrap();
                fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "1").unwrap();
            })
            .unwrap();
    }
}

pub fn route(namespace: &NetworkNamespace, to: &str, gateway: &str, interface: &str) {
    let (address, length) = to.split_once('/').unwrap();
    let destination = Prefix {
        address: address.parse().unwrap(),
        length: length.parse().unwrap(),
    };
    let gateway: IpAddr = gateway.parse().unwrap();
    let interface = interface.to_owned();
    namespace
        .run(move || {
            Netlink::open()
                .unwrap()
                .set_route(
                    destination,
                    Some(gateway),
                    &interface,
                    &RouteMetrics::default(),
                )
                .unwrap();
        })
        .unwrap();
}

pub fn listen(namespace: &NetworkNamespace, port: u16) -> TcpListener {
    namespace
        .run(move || {
            let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.set_only_v6(false).unwrap();
            let any: SocketAddr = format!("[::]:{port}").parse().unwrap();
            socket.bind(&any.into()).unwrap();
            socket.listen(1000).unwrap();
            TcpListener::from(socket)
        })
        .unwrap()
}

pub fn socket(namespace: &NetworkNamespace, server: &str) -> Socket {
    let domain = match server.parse::<IpAddr>().unwrap() {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    namespace
        .run(move || Socket::new(domain, Type::STREAM, None).unwrap())
        .unwrap()
}

pub fn connect(
    namespace: &NetworkNamespace,
    server: &str,
    port: u16,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = socket(namespace, server);
    let address = SocketAddr::new(server.parse().unwrap(), port);
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(bounded(socket.into()))
}

pub fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// The next connection, and from where it comes.
pub fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut descriptors = [rustix::event::PollFd::new(
        listener,
        rustix::event::PollFlags::IN,
    )];
    let limit = rustix::event::Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    let ready = rustix::event::poll(&mut descriptors, Some(&limit)).unwrap();
    assert_eq!(ready, 1, "nobody connects");
    let (stream, from) = listener.accept().unwrap();
    let address = match from.ip() {
        IpAddr::V6(six) => six.to_canonical(),
        four @ IpAddr::V4(_) => four,
    };
    (bounded(stream), SocketAddr::new(address, from.port()))
}

/// Sends bytes one way and compares; then ends that direction.
pub fn carries(mut from: TcpStream, mut to: TcpStream, count: usize) {
    let data: Vec<u8> = (0..count).map(|index| ((index * 31) >> 3) as u8).collect();
    let sent = data.clone();
    let writer: JoinHandle<TcpStream> = std::thread::spawn(move || {
        from.write_all(&sent).unwrap();
        from.shutdown(std::net::Shutdown::Write).unwrap();
        from
    });
    let mut received = Vec::new();
    to.read_to_end(&mut received).unwrap();
    assert!(received == data, "{} of {count} bytes", received.len());
    drop(writer.join().unwrap());
}

/// A few bytes there and back.
pub fn echoes(client: &mut TcpStream, server: &mut TcpStream) {
    let mut bytes = [0; 4];
    client.write_all(b"ping").unwrap();
    server.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
    server.write_all(b"pong").unwrap();
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"pong");
}

/// Waits for a reset.
pub fn is_reset(stream: &mut TcpStream) -> bool {
    let result = stream.read_exact(&mut [0; 1]);
    result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// Whether a connection that was accepted is reset, perhaps before the call has returned.
pub fn is_reset_early(connected: io::Result<TcpStream>) -> bool {
    match connected {
        Ok(mut stream) => is_reset(&mut stream),
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

/// Closes at once, so that no test waits for another's connections.
pub fn abort(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "not {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub const BOTH: [(&str, &str); 2] = [(SERVER, CLIENT), (SERVER6, CLIENT6)];

pub fn early() -> String {
    format!("{TRANSPARENT}handshake = \"early\"\n")
}

/// Masquerading, everything dropped that is not asked for, and every packet that conntrack cannot
/// place.
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
