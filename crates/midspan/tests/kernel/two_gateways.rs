//! Two gateways with keepalived, by the example of `deploy/keepalived`: one fails in several ways, and the other one takes
//! over. The seconds that a takeover takes are printed, and not judged: other programs disturb them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::network::{Configure, End, Link, Node};
use midspan_testbed::program::{Launch, Program};
use midspan_testbed::testing::{connect_from, echoes, is_reset, stop_process, wait_within};
use midspan_testbed::{kernel_test, skip};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::MIDSPAN;

const KEEPALIVED: &str = "/usr/sbin/keepalived";
const CONNTRACKD: &str = "/usr/sbin/conntrackd";
const EXAMPLE: &str = include_str!("../../../../deploy/keepalived/keepalived.conf");
const CONFIGURATION: &str = r#"
[relay]
threads = 1
pipe_size = "64 KiB"
pipe_memory = "1 MiB"
drain_timeout = "0 s"

[interception]
takeover_reset = true

[[listener]]
name = "clients"
mode = "transparent"
interfaces = ["eth1"]
families = ["ipv4"]
"#;

const SERVER: &str = "198.51.100.2";
const PORT: u16 = 80;
/// Nothing here is a bound: a busy machine may need long.
const LIMIT: Duration = Duration::from_secs(60);

/// A network segment to which hosts are attached.
struct Segment(NetworkNamespace);

impl Segment {
    fn new(name: &str) -> Self {
        let segment = Node::host(name).make().unwrap();
        ip(&segment, "link add switch type bridge forward_delay 0");
        ip(&segment, "link set switch up");
        Self(segment)
    }

    fn attach(&self, port: &str, host: &NetworkNamespace, interface: &str, address: &str) {
        let end = End::new(host, interface).address(address);
        Link::between(End::new(&self.0, port), end).make().unwrap();
        ip(&self.0, &format!("link set {port} master switch"));
    }
}

fn ip(node: &NetworkNamespace, arguments: &str) {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    node.output_of("ip", &arguments).unwrap();
}

struct Gateway {
    node: NetworkNamespace,
    folder: TempDir,
    midspan: Program,
    keepalived: Program,
    /// If the entries of connection tracking are copied.
    conntrackd: Option<Program>,
}

/// conntrackd between the addresses of both gateways at the clients' side. It writes the other one's entries into the kernel at
/// once, so that no script has to do this at a takeover.
fn conntrackd(number: u8, file: &dyn Fn(&str) -> String) -> String {
    let other = 3 - number;
    format!(
        "Sync {{\n Mode FTFW {{\n  DisableExternalCache On\n }}\n UDP {{\n  IPv4_address 192.0.2.1{number}\n  \
         IPv4_Destination_Address 192.0.2.1{other}\n  Port 3780\n  Interface eth1\n  Checksum on\n }}\n}}\n\
         General {{\n HashSize 1024\n HashLimit 4096\n LogFile off\n Syslog off\n LockFile {}\n \
         UNIX {{\n  Path {}\n  Backlog 20\n }}\n NetlinkBufferSize 2097152\n NetlinkBufferSizeMaxGrowth 8388608\n \
         Filter From Userspace {{\n  Protocol Accept {{\n   TCP\n  }}\n  Address Ignore {{\n   IPv4_address 127.0.0.1\n  }}\n }}\n}}\n",
        file("conntrackd.lock"),
        file("conntrackd.ctl"),
    )
}

impl Gateway {
    fn node(number: u8, clients: &Segment, servers: &Segment) -> NetworkNamespace {
        let node = Node::router(&format!("gateway{number}"))
            .without_ipv6()
            .parameter("net/netfilter/nf_conntrack_tcp_loose", "0")
            .make()
            .unwrap();
        let port = format!("gateway{number}");
        clients.attach(&port, &node, "eth1", &format!("192.0.2.1{number}/24"));
        servers.attach(&port, &node, "eth0", &format!("198.51.100.1{number}/24"));
        node
    }

    /// Starts Midspan and keepalived. The first gateway has the higher priority.
    fn start(node: NetworkNamespace, number: u8, copies_entries: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let midspan = Launch::midspan(MIDSPAN).configuration(CONFIGURATION);
        let midspan = midspan.inside(&node).ready().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(file("midspan.toml"), CONFIGURATION).unwrap();
        let socket = midspan.socket().unwrap().display().to_string();
        let mut text = EXAMPLE
            .replace(
                "/usr/bin/midspan status",
                &format!("{MIDSPAN} status --socket {socket}"),
            )
            .replace(
                "/usr/bin/midspan takeover",
                &format!("{MIDSPAN} takeover --config {}", file("midspan.toml")),
            )
            // The folder of a build may belong to any user.
            .replace("    enable_script_security\n", "");
        assert_eq!(text.matches(MIDSPAN).count(), 2);
        if number > 1 {
            text = text
                .replace("gateway-1", "gateway-2")
                .replace("state MASTER", "state BACKUP")
                .replace("priority 150", "priority 100");
        }
        fs::write(file("keepalived.conf"), text).unwrap();
        let keepalived = Launch::new(KEEPALIVED)
            .args(["--dont-fork", "--log-console", "--log-detail", "--vrrp"])
            .args(["--use-file", &file("keepalived.conf")])
            .args([
                "--pid",
                &file("keepalived.pid"),
                "--vrrp_pid",
                &file("vrrp.pid"),
            ])
            .inside(&node)
            .start()
            .unwrap();
        let conntrackd = copies_entries.then(|| {
            fs::write(file("conntrackd.conf"), conntrackd(number, &file)).unwrap();
            Launch::new(CONNTRACKD)
                .args(["-C", &file("conntrackd.conf")])
                .inside(&node)
                .start()
                .unwrap()
        });
        Self {
            node,
            folder,
            midspan,
            keepalived,
            conntrackd,
        }
    }

    fn entries(&self) -> String {
        self.node
            .output_of("cat", &["/proc/net/nf_conntrack"])
            .unwrap()
    }

    /// Whether connection tracking has this client's port, in a connection that is established and passes untouched: the
    /// legs of sessions have other zones.
    fn tracks(&self, port: u16) -> bool {
        let entries = self.entries();
        let client = format!(" sport={port} ");
        entries.lines().any(|line| {
            line.contains("ESTABLISHED") && line.contains(&client) && line.contains(" zone=0 ")
        })
    }

    /// What keepalived has written.
    fn log(&self) -> String {
        // To standard error, or with --log-console to standard output.
        self.keepalived.log()
    }

    fn has_address(&self) -> bool {
        let shown = ["-4", "-oneline", "addr", "show", "dev", "eth1"];
        let addresses = self.node.output_of("ip", &shown).unwrap();
        addresses.contains("192.0.2.1/24")
    }

    /// All processes of both programs.
    fn processes(&self) -> Vec<Pid> {
        let programs = [&self.keepalived, &self.midspan]
            .into_iter()
            .chain(&self.conntrackd);
        let of = |program: &Program| {
            let mut all = program.children();
            all.push(program.pid().unwrap());
            all
        };
        programs.flat_map(of).collect()
    }

    fn kill(mut self) -> NetworkNamespace {
        for process in self.processes() {
            // One may have ended with another one.
            let _ = kill_process(process, Signal::KILL);
        }
        self.keepalived.kill();
        self.midspan.kill();
        self.conntrackd.iter_mut().for_each(Program::kill);
        drop(self.folder);
        self.node
    }
}

struct Site {
    client: NetworkNamespace,
    server: NetworkNamespace,
    listener: TcpListener,
    first: Option<Gateway>,
    second: Gateway,
    _segments: [Segment; 2],
}

impl Site {
    fn new(copies_entries: bool) -> Self {
        let (clients, servers) = (Segment::new("clients"), Segment::new("servers"));
        let client = Node::host("client").without_ipv6().make().unwrap();
        clients.attach("client", &client, "eth0", "192.0.2.2/24");
        ip(&client, "route add default via 192.0.2.1");
        let server = Node::host("server").without_ipv6().make().unwrap();
        servers.attach("server", &server, "eth0", "198.51.100.2/24");
        ip(&server, "route add 192.0.2.0/24 via 198.51.100.1");
        let listener = server.listen_at(PORT).unwrap();
        let [one, two] = [1, 2].map(|number| Gateway::node(number, &clients, &servers));
        let second = Gateway::start(two, 2, copies_entries);
        let first = Gateway::start(one, 1, copies_entries);
        let site = Self {
            client,
            server,
            listener,
            first: Some(first),
            second,
            _segments: [clients, servers],
        };
        site.wait_for_first();
        site
    }

    fn first(&self) -> &Gateway {
        self.first.as_ref().unwrap()
    }

    /// The first gateway has the address, and connections pass.
    fn wait_for_first(&self) {
        wait_within(LIMIT, "the first gateway works", || {
            self.first().has_address() && !self.second.has_address()
        });
        self.seconds_until_connected();
    }

    /// Waits until the second gateway has the address and new connections work, and prints the times: a first gateway whose
    /// programs are dead may still forward connections untouched.
    fn print_takeover(&self, how: &str) {
        let begin = Instant::now();
        let first = self.seconds_until_connected();
        wait_within(LIMIT, "the second gateway has the address", || {
            self.second.has_address()
        });
        let address = begin.elapsed().as_secs_f64();
        let last = address + self.seconds_until_connected();
        println!(
            "{how}: a new connection after {first:.3} s; the address moved after {address:.3} s, a new connection over the \
             second gateway after {last:.3} s"
        );
    }

    /// The time until a new connection works.
    fn seconds_until_connected(&self) -> f64 {
        let begin = Instant::now();
        wait_within(LIMIT, "a new connection", || self.connection().is_some());
        begin.elapsed().as_secs_f64()
    }

    /// Both ends of a new connection over which data passes; `None` if none is made soon.
    fn connection(&self) -> Option<(TcpStream, TcpStream)> {
        let soon = Duration::from_millis(100);
        let mut client = connect_from(&self.client, SERVER, PORT, soon).ok()?;
        client.set_read_timeout(Some(soon)).unwrap();
        client.write_all(b"?").ok()?;
        self.listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + soon;
        while Instant::now() < deadline {
            // Connections of earlier attempts come first.
            let Ok((mut server, from)) = self.listener.accept() else {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            server.set_nonblocking(false).unwrap();
            server.set_read_timeout(Some(soon)).unwrap();
            if from.port() == client.local_addr().unwrap().port()
                && server.read_exact(&mut [0]).is_ok()
            {
                for stream in [&client, &server] {
                    stream.set_read_timeout(Some(LIMIT)).unwrap();
                }
                return Some((client, server));
            }
        }
        None
    }

    fn session(&self) -> (TcpStream, TcpStream) {
        let mut session = None;
        wait_within(LIMIT, "a session", || {
            session = self.connection();
            session.is_some()
        });
        session.unwrap()
    }
}

/// Both ends of a session of the dead gateway are reset, at the latest after their next packet.
fn assert_ended((mut client, mut server): (TcpStream, TcpStream)) {
    for end in [&mut client, &mut server] {
        let begin = Instant::now();
        // If only programs were killed, the kernel of the first gateway has reset the connection already. Then the first
        // call returns that error.
        let is_ended = match end.write_all(b"next") {
            Ok(()) => is_reset(end),
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_ended);
        println!(
            "reset {:.3} s after its next packet",
            begin.elapsed().as_secs_f64()
        );
    }
}

#[kernel_test]
fn the_second_gateway_takes_over_and_gives_back() {
    if !Path::new(KEEPALIVED).exists() {
        return skip(&format!("there is no {KEEPALIVED} (package keepalived)"));
    }
    let mut site = Site::new(false);

    // Killed.
    let session = site.session();
    let node = site.first.take().unwrap().kill();
    site.print_takeover("killed");
    assert_ended(session);
    // The address of the dead gateway would be there twice.
    ip(&node, "addr del 192.0.2.1/24 dev eth1");
    ip(&node, "addr del 198.51.100.1/24 dev eth0");
    site.first = Some(Gateway::start(node, 1, false));
    site.wait_for_first();
    let (mut client, mut server) = site.session();
    echoes(&mut client, &mut server);

    // Its link is down.
    ip(&site.first().node, "link set eth1 down");
    site.print_takeover("link down");
    assert_ended((client, server));
    ip(&site.first().node, "link set eth1 up");
    site.wait_for_first();

    // Stopped, both programs and Midspan alone.
    let session = site.session();
    let stopped = site.first().processes();
    stopped.iter().for_each(|process| stop_process(*process));
    site.print_takeover("both programs stopped");
    assert_ended(session);
    for process in stopped {
        kill_process(process, Signal::CONT).unwrap();
    }
    site.wait_for_first();
    let helper = site.first().midspan.pid().unwrap();
    stop_process(helper);
    site.print_takeover("Midspan stopped");
    kill_process(helper, Signal::CONT).unwrap();
    site.wait_for_first();

    // It came back once each time, and has stayed.
    let entered = |gateway: &Gateway| {
        gateway
            .log()
            .matches("(clients) Entering MASTER STATE")
            .count()
    };
    let before = [entered(site.first()), entered(&site.second)];
    for _ in 0..10 {
        let (mut client, mut server) = site.session();
        echoes(&mut client, &mut server);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(
        [entered(site.first()), entered(&site.second)],
        before,
        "{}",
        site.first().log()
    );
    // Four takeovers, and perhaps one at the start, before the first gateway was there.
    assert!((4..=5).contains(&before[1]), "{}", site.second.log());
    drop(site.server);
}

/// Connections that had passed the first gateway untouched continue over the second one.
#[kernel_test]
fn untouched_connections_continue_with_conntrackd() {
    for program in [KEEPALIVED, CONNTRACKD] {
        if !Path::new(program).exists() {
            return skip(&format!(
                "there is no {program} (packages keepalived, conntrackd)"
            ));
        }
    }
    if !Path::new("/proc/net/nf_conntrack").exists() {
        return skip("this kernel has no /proc/net/nf_conntrack");
    }
    let mut site = Site::new(true);
    let socket = site.first().midspan.socket().unwrap().display().to_string();
    let bypass = ["bypass", "on", "--socket", &socket];
    site.first().node.output_of(MIDSPAN, &bypass).unwrap();
    let (mut client, mut server) = site.session();
    let port = client.local_addr().unwrap().port();
    assert!(site.first().tracks(port), "{}", site.first().entries());
    wait_within(LIMIT, "the second gateway has the entry", || {
        site.second.tracks(port)
    });
    drop(site.first.take().unwrap().kill());
    site.print_takeover("killed");
    echoes(&mut client, &mut server);
}
