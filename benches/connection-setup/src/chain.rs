//! The network namespaces of one case: client – gateway – server.

use std::net::Ipv4Addr;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::network::{Configure, End, Link, Node};
use midspan_testbed::program::{Launch, Program};

use crate::Failure;
use crate::load::Servers;

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

/// What the gateway does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// It routes packets.
    Routing,
    /// It routes and tracks connections.
    Tracking,
    /// It runs Midspan with the handshake `end-to-end`.
    EndToEnd,
    /// It runs Midspan with the handshake `early`.
    Early,
}

impl Case {
    /// All cases. The first one is the base of the comparisons.
    pub const ALL: [Self; 4] = [Self::Routing, Self::Tracking, Self::EndToEnd, Self::Early];

    /// The name in tables and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Routing => "routing",
            Self::Tracking => "routing, conntrack",
            Self::EndToEnd => "end-to-end",
            Self::Early => "early",
        }
    }

    const fn handshake(self) -> Option<&'static str> {
        match self {
            Self::Routing | Self::Tracking => None,
            Self::EndToEnd => Some("end-to-end"),
            Self::Early => Some("early"),
        }
    }
}

/// Three namespaces, servers, and in some cases a running Midspan.
pub struct Chain {
    /// The namespace in which clients run.
    pub client: NetworkNamespace,
    servers: Servers,
    midspan: Option<Midspan>,
    _gateway: NetworkNamespace,
}

impl Chain {
    /// Builds the namespaces, and starts the servers and Midspan.
    pub fn new(case: Case, threads: usize) -> Result<Self, Failure> {
        let [client, server] = ["client", "server"].map(|name| Node::host(name).make());
        let (client, server) = (client?, server?);
        let gateway = Node::router("gateway").make()?;
        link(&client, &gateway, "acc", 1)?;
        link(&server, &gateway, "wan", 2)?;
        if case != Case::Routing {
            gateway.apply_rules(TRACKING)?;
            // The benchmark opens more connections within two minutes than the table of connection
            // tracking can hold.
            gateway.set_parameter("net/netfilter/nf_conntrack_tcp_timeout_time_wait", "5")?;
        }
        let servers = Servers::start(&server, threads)?;
        let midspan = case
            .handshake()
            .map(|handshake| Midspan::start(&gateway, handshake))
            .transpose()?;
        Ok(Self {
            client,
            servers,
            midspan,
            _gateway: gateway,
        })
    }

    /// CPU time of Midspan's relay so far.
    pub fn relay_time(&self) -> Result<Duration, Failure> {
        self.midspan
            .as_ref()
            .map_or(Ok(Duration::ZERO), Midspan::relay_time)
    }

    /// Stops the servers and Midspan.
    pub fn stop(self) -> Result<(), Failure> {
        self.servers.stop();
        self.midspan.map_or(Ok(()), Midspan::stop)
    }
}

/// The smallest rule for which the kernel tracks connections.
const TRACKING: &str = "table inet host {\n chain forward {\n type filter hook forward priority \
                        filter; policy accept;\n ct state invalid drop\n }\n}\n";

/// Joins a host (10.N.0.2) and the gateway (10.N.0.1).
fn link(
    host: &NetworkNamespace,
    gateway: &NetworkNamespace,
    name: &str,
    number: u8,
) -> Result<(), Failure> {
    let far = End::new(host, "eth").address(format!("10.{number}.0.2/24"));
    let near = End::new(gateway, name).address(format!("10.{number}.0.1/24"));
    Link::between(far, near).make()?;
    Ok(host.add_route("0.0.0.0/0", Some(format!("10.{number}.0.1")), "eth")?)
}

/// A running Midspan, started from this program's executable.
struct Midspan {
    program: Program,
}

impl Midspan {
    fn start(gateway: &NetworkNamespace, handshake: &str) -> Result<Self, Failure> {
        let threads = std::thread::available_parallelism()?;
        let text = format!(
            "[relay]\nthreads = {threads}\n[log]\nlevel = \"warn\"\n[[listener]]\n\
             name = \"bench\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n\
             handshake = \"{handshake}\"\n"
        );
        let launch = Launch::new(std::env::current_exe()?).arg("run");
        let program = launch.configuration(&text).inside(gateway).ready()?;
        Ok(Self { program })
    }

    fn relay_time(&self) -> Result<Duration, Failure> {
        let relay = self.program.only_child()?.as_raw_nonzero();
        let statistics = std::fs::read_to_string(format!("/proc/{relay}/stat"))?;
        let (_, after_name) = statistics.rsplit_once(") ").ok_or("no statistics")?;
        // Fields 14 and 15 of proc(5): user and system time in ticks.
        let mut ticks = 0;
        for field in after_name.split_whitespace().skip(11).take(2) {
            ticks += field.parse::<u64>()?;
        }
        let tick = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_nanos(ticks * 1_000_000_000 / tick))
    }

    fn stop(self) -> Result<(), Failure> {
        self.program.end()?;
        Ok(())
    }
}
