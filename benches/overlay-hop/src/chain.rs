//! The network namespaces of one case: client – ingress – exit – server.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_policy::overlay::{NodeKey, NodeSecret};
use midspan_testbed::network::{Configure, End, Link, Node};
use midspan_testbed::program::{Launch, Program};
use tempfile::NamedTempFile;

use crate::Failure;

/// The nodes: the ingress and the exit.
pub const NODES: [&str; 2] = ["ingress", "exit"];

/// How the hop between the two nodes is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Not at all.
    Plain,
    /// By TLS.
    Tls,
}

impl Case {
    /// The name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "TLS",
        }
    }
}

/// Four namespaces, and two running Midspans.
pub struct Chain {
    client: NetworkNamespace,
    server: TcpListener,
    nodes: [Program; 2],
    _namespaces: [NetworkNamespace; 3],
    _files: Vec<NamedTempFile>,
}

impl Chain {
    /// Builds the namespaces, and starts both nodes.
    pub fn new(case: Case) -> Result<Self, Failure> {
        let make = |name: &str| Node::host(name).make();
        let (client, ingress, exit, server) =
            (make("client")?, make("ingress")?, make("exit")?, make("server")?);
        for (number, left, right) in [
            (1, &client, &ingress),
            (2, &ingress, &exit),
            (3, &exit, &server),
        ] {
            let near = End::new(left, format!("r{number}")).address(format!("10.{number}.0.1/24"));
            let far = End::new(right, format!("l{number}")).address(format!("10.{number}.0.2/24"));
            Link::between(near, far).make()?;
        }
        let (members, files) = members(case)?;
        let text = |place: usize, listener: &str| {
            let key = match case {
                Case::Plain => String::new(),
                Case::Tls => format!("private_key = \"{}\"\n", files[place].path().display()),
            };
            format!(
                "[relay]\nthreads = 1\n[log]\nlevel = \"warn\"\n[overlay]\nname = \"{}\"\n\
                 members = \"{}\"\n{key}{listener}",
                NODES[place],
                members.path().display()
            )
        };
        let exit_text = text(
            1,
            "[[listener]]\nname = \"hops\"\nmode = \"hop\"\nlisten = \"10.2.0.2:7704\"\n",
        );
        let ingress_text = text(
            0,
            "[[overlay.route]]\ndestinations = [\"all\"]\nthrough = [\"exit\"]\n[[listener]]\n\
             name = \"bench\"\nlisten = \"10.1.0.2:8080\"\nto = \"10.3.0.2:80\"\noverlay = true\n",
        );
        let start = |text: &str, at: &NetworkNamespace| -> Result<Program, Failure> {
            let launch = Launch::new(std::env::current_exe()?).arg("run");
            Ok(launch.configuration(text).inside(at).ready()?)
        };
        let exit_program = start(&exit_text, &exit)?;
        let ingress_program = start(&ingress_text, &ingress)?;
        let listener = server.run(|| TcpListener::bind("10.3.0.2:80"))??;
        Ok(Self {
            client,
            server: listener,
            nodes: [ingress_program, exit_program],
            _namespaces: [ingress, exit, server],
            _files: files.into_iter().chain([members]).collect(),
        })
    }

    /// The rate of a download of this many bytes, and how many bytes each node's relay moves per second of its CPU
    /// time, in GB/s.
    pub fn download(&self, bytes: u64) -> Result<[f64; 3], Failure> {
        let address: SocketAddr = "10.1.0.2:8080".parse()?;
        let mut client = self.client.run(|| TcpStream::connect(address))??;
        let (mut server, _) = self.server.accept()?;
        let before = [relay_time(&self.nodes[0])?, relay_time(&self.nodes[1])?];
        let begin = Instant::now();
        let sending = std::thread::spawn(move || -> std::io::Result<()> {
            let piece = vec![7; 1 << 20];
            let mut left = bytes;
            while left > 0 {
                let count = left.min(1 << 20);
                server.write_all(&piece[..usize::try_from(count).unwrap_or(0)])?;
                left -= count;
            }
            Ok(())
        });
        let (mut buffer, mut read) = (vec![0; 1 << 20], 0);
        loop {
            match client.read(&mut buffer)? {
                0 => break,
                count => read += count as u64,
            }
        }
        sending.join().map_err(|_| "the server has panicked")??;
        let seconds = begin.elapsed().as_secs_f64();
        if read != bytes {
            return Err(format!("{read} of {bytes} bytes have arrived").into());
        }
        let gigabytes = bytes as f64 / 1e9;
        let mut rates = [gigabytes / seconds, 0.0, 0.0];
        for (place, node) in self.nodes.iter().enumerate() {
            let used = relay_time(node)?.saturating_sub(before[place]);
            rates[place + 1] = gigabytes / used.as_secs_f64();
        }
        Ok(rates)
    }

    /// Stops both nodes.
    pub fn stop(self) -> Result<(), Failure> {
        for node in self.nodes {
            node.end()?;
        }
        Ok(())
    }
}

/// The file of members, and the files of the private keys.
fn members(case: Case) -> Result<(NamedTempFile, Vec<NamedTempFile>), Failure> {
    let (mut text, mut files) = (String::new(), Vec::new());
    for (name, last) in NODES.into_iter().zip(1..) {
        let secret = NodeSecret::new(midspan_tls::new_secret()?);
        let public = NodeKey::new(midspan_tls::public_key(secret.bytes())?);
        let security = match case {
            Case::Plain => "security = \"network\"".to_owned(),
            Case::Tls => format!("key = \"{public}\""),
        };
        text += &format!(
            "[[node]]\nname = \"{name}\"\naddress = \"10.2.0.{last}:7704\"\n{security}\n\
             serves = [\"10.3.0.0/24\"]\n"
        );
        let mut file = NamedTempFile::new()?;
        file.write_all(secret.to_text().as_bytes())?;
        files.push(file);
    }
    let mut members = NamedTempFile::new()?;
    members.write_all(text.as_bytes())?;
    let readable = Permissions::from_mode(0o644);
    members.as_file().set_permissions(readable)?;
    Ok((members, files))
}

/// The CPU time of a node's relay so far.
fn relay_time(node: &Program) -> Result<Duration, Failure> {
    let relay = node.only_child()?.as_raw_nonzero();
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
