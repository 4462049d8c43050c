//! Five hosts in a line, three of them with Midspan.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::tcp::set_pacing_rate;
use midspan_testbed::network::{Configure, End, Link, Node};
use midspan_testbed::program::{Launch, Program, new_node_key};
use midspan_units::BitRate;
use rustix::fs::sendfile;
use rustix::process::Pid;
use tempfile::TempDir;

use crate::{Failure, Plan};

/// How sessions reach the server, each by its port of ams: without a hop, over one, and over two.
pub const CASES: [(&str, u16); 3] = [("forward", 8080), ("one hop", 8081), ("two hops", 8082)];

/// The nodes, in the order of a route.
pub const NODES: [&str; 3] = ["ams", "fra", "sin"];

const PORT: u16 = 80;
const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// A client that sends this byte gets data until it ends the connection.
const SEND: u8 = b's';
const PIECE: usize = 64 << 10;
const FILE_SIZE: usize = 16 << 20;

/// The file of members. `<NAME>` is the line that protects the connections of a node.
const MEMBERS: &str = r#"
[[node]]
name = "ams"
address = "10.2.0.1:7704"
<ams>

[[node]]
name = "fra"
address = "10.2.0.2:7704"
from = ["10.2.0.2", "10.3.0.1"]
<fra>
transit = true

[[node]]
name = "sin"
address = "10.3.0.2:7704"
<sin>
serves = ["10.4.0.0/24"]
"#;

const INGRESS: &str = r#"
[[overlay.route]]
destinations = ["10.4.0.3/32"]
through = ["sin"]

[[overlay.route]]
destinations = ["10.4.0.2/32"]
through = ["fra", "sin"]

[[listener]]
name = "forward"
listen = "10.1.0.1:8080"
to = "10.4.0.2:80"

[[listener]]
name = "one-hop"
listen = "10.1.0.1:8081"
to = "10.4.0.3:80"
overlay = true

[[listener]]
name = "two-hops"
listen = "10.1.0.1:8082"
to = "10.4.0.2:80"
overlay = true
"#;

/// The hosts, and what runs there.
pub struct Sites {
    client: NetworkNamespace,
    nodes: Vec<Program>,
    _hosts: Vec<NetworkNamespace>,
    _folder: TempDir,
}

impl Sites {
    /// Starts everything.
    pub fn start(plan: &Plan) -> Result<Self, Failure> {
        let (midspan, tls) = (plan.midspan.as_path(), plan.tls);
        let client = Node::host("client").make()?;
        let ams = Node::router("ams").make()?;
        let fra = Node::router("fra").make()?;
        let sin = Node::router("sin").make()?;
        let server = Node::host("server").make()?;
        for (number, (far, far_name), (near, near_name)) in [
            (1, (&client, "eth"), (&ams, "clients")),
            (2, (&fra, "ams"), (&ams, "fra")),
            (3, (&sin, "fra"), (&fra, "sin")),
            (4, (&server, "eth"), (&sin, "servers")),
        ] {
            let far = End::numbered(far, far_name, number, 2);
            Link::between(far, End::numbered(near, near_name, number, 1)).make()?;
        }
        for (host, to, gateway, interface) in [
            (&ams, "10.3.0.0/24", "10.2.0.2", "fra"),
            (&ams, "10.4.0.0/24", "10.2.0.2", "fra"),
            (&fra, "10.4.0.0/24", "10.3.0.2", "sin"),
            (&sin, "10.2.0.0/24", "10.3.0.1", "fra"),
            (&server, "10.2.0.0/24", "10.4.0.1", "eth"),
        ] {
            host.add_route(to, Some(gateway), interface)?;
        }
        server.add_address("eth", "10.4.0.3/24")?;
        for host in [&client, &ams, &fra, &sin, &server] {
            host.set_parameter(CONGESTION_CONTROL, &plan.congestion_control)?;
        }
        serve(server.listen_at(PORT)?, Source::new(plan)?);
        let folder = tempfile::tempdir()?;
        let members = folder.path().join("members.toml");
        let mut list = MEMBERS.to_owned();
        for name in NODES {
            let line = match tls {
                true => new_node_key(midspan, &folder.path().join(name))?,
                false => "security = \"network\"".to_owned(),
            };
            list = list.replace(&format!("<{name}>"), &line);
        }
        fs::write(&members, list)?;
        let text = |name: &str, more: &str| {
            let key = folder.path().join(name);
            let key = match tls {
                true => format!("private_key = \"{}\"\n", key.display()),
                false => String::new(),
            };
            format!(
                "[relay]\ndrain_timeout = \"0 s\"\n[log]\nlevel = \"warn\"\n[overlay]\nname = \"{name}\"\n\
                 members = \"{}\"\n{key}{more}",
                members.display()
            )
        };
        let hops = |address: &str| {
            format!("[[listener]]\nname = \"hops\"\nmode = \"hop\"\nlisten = \"{address}\"\n")
        };
        let mut nodes = Vec::new();
        for (host, text) in [
            (&ams, text("ams", INGRESS)),
            (&fra, text("fra", &hops("10.2.0.2:7704"))),
            (&sin, text("sin", &hops("10.3.0.2:7704"))),
        ] {
            let launch = Launch::midspan(midspan).configuration(&text);
            nodes.push(launch.inside(host).ready()?);
        }
        Ok(Self {
            client,
            nodes,
            _hosts: vec![ams, fra, sin, server],
            _folder: folder,
        })
    }

    /// Opens a connection; returns it and the seconds until the server's first byte.
    pub fn open(&self, port: u16) -> Result<(TcpStream, f64), Failure> {
        let opened = self
            .client
            .run(move || -> std::io::Result<(TcpStream, f64)> {
                let begin = Instant::now();
                let mut stream = TcpStream::connect(("10.1.0.1", port))?;
                stream.set_read_timeout(Some(ANSWER_LIMIT))?;
                stream.read_exact(&mut [0])?;
                Ok((stream, begin.elapsed().as_secs_f64()))
            })?;
        Ok(opened?)
    }

    /// Downloads for this time; returns the bytes.
    pub fn download(&self, port: u16, time: Duration) -> Result<u64, Failure> {
        let (mut stream, _) = self.open(port)?;
        stream.write_all(&[SEND])?;
        let end = Instant::now() + time;
        let (mut bytes, mut buffer) = (0, vec![0; 4 * PIECE]);
        while Instant::now() < end {
            match stream.read(&mut buffer)? {
                0 => return Err("the server has ended a download".into()),
                count => bytes += count as u64,
            }
        }
        Ok(bytes)
    }

    /// The CPU time of each node so far, in seconds: its helper and its relay.
    pub fn cpu_seconds(&self) -> Result<Vec<f64>, Failure> {
        let mut all = Vec::new();
        for node in &self.nodes {
            let mut processes = node.children();
            processes.push(node.pid()?);
            all.push(processes.iter().map(|process| of_process(*process)).sum());
        }
        Ok(all)
    }
}

/// The CPU time of all threads of a process (`/proc/PID/task/TID/schedstat`), in seconds.
fn of_process(process: Pid) -> f64 {
    let folder = format!("/proc/{}/task", process.as_raw_nonzero());
    let Ok(threads) = fs::read_dir(folder) else {
        return 0.0;
    };
    let of_thread = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    let nanoseconds: f64 = threads.filter_map(|thread| of_thread(thread.ok()?)).sum();
    nanoseconds / 1e9
}

/// What the server sends.
#[derive(Clone)]
struct Source {
    /// The most that it sends.
    rate: Option<BitRate>,
    /// The file that it sends again and again, instead of bytes of its own memory.
    file: Option<Arc<File>>,
}

impl Source {
    fn new(plan: &Plan) -> Result<Self, Failure> {
        let file = match plan.file {
            true => {
                let mut file = tempfile::tempfile()?;
                file.write_all(&vec![0; FILE_SIZE])?;
                Some(Arc::new(file))
            }
            false => None,
        };
        Ok(Self {
            rate: plan.rate,
            file,
        })
    }

    /// Sends one byte, and without end if the client requests it.
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        set_pacing_rate(&stream, self.rate)?;
        stream.write_all(&[1])?;
        let mut request = [0];
        if stream.read(&mut request)? != 1 || request != [SEND] {
            return Ok(());
        }
        let piece = vec![0; PIECE];
        loop {
            match &self.file {
                Some(file) => {
                    let mut offset = 0;
                    while offset < FILE_SIZE as u64 {
                        sendfile(&stream, file, Some(&mut offset), FILE_SIZE)?;
                    }
                }
                None => stream.write_all(&piece)?,
            }
        }
    }
}

/// A server that answers each client in a thread.
fn serve(listener: TcpListener, source: Source) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let source = source.clone();
            std::thread::spawn(move || {
                // The client may have ended the connection at any moment.
                let _ = source.answer(stream);
            });
        }
    });
}
