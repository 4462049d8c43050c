//! client – gateway – server, in network namespaces.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, Prefix, RouteMetrics};
use midspan_linux::nftables;
use rustix::process::{Pid, Signal, kill_process};

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
    /// All, the one that others are compared with first.
    pub const ALL: [Self; 4] = [Self::Routing, Self::Tracking, Self::EndToEnd, Self::Early];

    /// For tables and records.
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

/// Three namespaces, servers that answer, and perhaps a running Midspan.
pub struct Chain {
    /// Where clients run.
    pub client: NetworkNamespace,
    servers: Servers,
    midspan: Option<Midspan>,
    _gateway: NetworkNamespace,
}

impl Chain {
    /// Builds it, and starts what is to run in it.
    pub fn new(case: Case, threads: usize) -> Result<Self, Failure> {
        let [client, gateway, server] = ["client", "gateway", "server"].map(NetworkNamespace::new);
        let (client, gateway, server) = (client?, gateway?, server?);
        gateway.set_parameter("net/ipv4/ip_forward", "1")?;
        link(&client, &gateway, "acc", 1)?;
        link(&server, &gateway, "wan", 2)?;
        if case != Case::Routing {
            gateway.run(|| nftables::apply(TRACKING))??;
            // As many connections as are made here in two minutes do not fit into the table.
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

    /// Ends what runs in it.
    pub fn stop(self) -> Result<(), Failure> {
        self.servers.stop();
        self.midspan.map_or(Ok(()), Midspan::stop)
    }
}

/// The smallest rule for which the kernel tracks connections.
const TRACKING: &str = "table inet host {\n chain forward {\n type filter hook forward priority \
                        filter; policy accept;\n ct state invalid drop\n }\n}\n";

/// 10.N.0.2 and 10.N.0.1, the gateway.
fn link(
    host: &NetworkNamespace,
    gateway: &NetworkNamespace,
    name: &'static str,
    number: u8,
) -> Result<(), Failure> {
    let other = gateway.as_fd().try_clone_to_owned()?;
    host.run(move || -> Result<(), Failure> {
        let netlink = Netlink::open()?;
        netlink.add_veth("eth", name)?;
        netlink.move_interface(name, other.as_fd())?;
        Ok(())
    })??;
    for (namespace, interface, last) in [(host, "eth", 2), (gateway, name, 1)] {
        namespace.run(move || -> Result<(), Failure> {
            let netlink = Netlink::open()?;
            netlink.set_up("lo")?;
            netlink.add_address(interface, prefix([10, number, 0, last], 24))?;
            netlink.set_up(interface)?;
            Ok(())
        })??;
    }
    host.run(move || -> Result<(), Failure> {
        let gateway = IpAddr::from([10, number, 0, 1]);
        let everything = prefix([0; 4], 0);
        let metrics = RouteMetrics::default();
        Netlink::open()?.set_route(everything, Some(gateway), "eth", &metrics)?;
        Ok(())
    })?
}

fn prefix(address: [u8; 4], length: u8) -> Prefix {
    Prefix {
        address: address.into(),
        length,
    }
}

/// A running Midspan; this program, started again.
struct Midspan {
    helper: Child,
    _directory: tempfile::TempDir,
}

impl Midspan {
    fn start(gateway: &NetworkNamespace, handshake: &str) -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("midspan.toml");
        let threads = std::thread::available_parallelism()?;
        std::fs::write(
            &file,
            format!(
                "[relay]\nthreads = {threads}\n[log]\nlevel = \"warn\"\n[[listener]]\n\
                 name = \"bench\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n\
                 handshake = \"{handshake}\"\n"
            ),
        )?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("run")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut helper = gateway.spawn(command)?;
        let mut byte = [0];
        let mut stdout = helper.stdout.take().ok_or("no output")?;
        stdout
            .read_exact(&mut byte)
            .map_err(|_| "midspan does not start")?;
        Ok(Self {
            helper,
            _directory: directory,
        })
    }

    fn relay_time(&self) -> Result<Duration, Failure> {
        let id = self.helper.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        let relay = children.split_whitespace().next().ok_or("no relay")?;
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

    fn stop(mut self) -> Result<(), Failure> {
        let id = Pid::from_raw(i32::try_from(self.helper.id())?).ok_or("no process")?;
        kill_process(id, Signal::TERM)?;
        match self.helper.wait()?.success() {
            true => Ok(()),
            false => Err("midspan has failed".into()),
        }
    }
}
