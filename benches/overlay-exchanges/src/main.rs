//! Measures what the nodes of an overlay send each other: requests for rows and answers, exchanges over warm connections,
//! and the few packets of sessions that make a node count as used.
//!
//! Ten hosts with Midspan are attached to one switch (a bridge), and each has its own server behind it. Every 40 s, each
//! node opens a session to the servers of the next five nodes and ends it at once. The bytes are those that the kernel
//! counts at the node's interface, with Ethernet headers. Needs the right to make network namespaces.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use midspan_linux::namespace::NetworkNamespace;
use midspan_records::{By, Record, Records, Spread};
use midspan_testbed::network::{Configure, End, Link, Node};
use midspan_testbed::program::{Launch, Program};
use tempfile::TempDir;

/// Any error that stops the measurement.
type Failure = Box<dyn Error + Send + Sync>;

/// Exit status if the bound is missed, as of the other programs of Midspan.
const MISSED: u8 = 3;
const NODES: u8 = 10;
/// Nodes through which sessions of one node go.
const USED: u8 = 5;
/// A node counts as used for a minute after a session.
const SESSION_INTERVAL: Duration = Duration::from_secs(40);
/// Most kbit/s of a node in each direction while the legs are steady, and while every one changes.
const STEADY_LIMIT: f64 = 16.0;
const CHANGING_LIMIT: f64 = 32.0;
/// How often the delay of every leg changes.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);
const PORT: u16 = 80;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How long is measured.
#[derive(Parser, Debug, Clone)]
#[command(about, long_about = None)]
struct Plan {
    /// Seconds of the measurement
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Seconds before it, in which the nodes find each other
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
    before: u64,
    /// Change the delay of every leg each second; that of a node is 1 to 20 ms
    #[arg(long)]
    changing: bool,
    /// The program
    #[arg(long, default_value = "target/release/midspan", value_name = "FILE")]
    midspan: PathBuf,
    /// Print JSON records instead of the table
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Failure> {
    let plan = Plan::parse();
    let all = plan.before + plan.seconds;
    let (legs, limit) = match plan.changing {
        true => ("legs whose delay changes each second", CHANGING_LIMIT),
        false => ("steady legs", STEADY_LIMIT),
    };
    eprintln!(
        "{NODES} nodes, each with sessions to {USED} others, {legs}: {:.1} minutes",
        all as f64 / 60.0
    );
    let mut mesh = Mesh::start(&plan.midspan, plan.changing)?;
    mesh.run(Duration::from_secs(plan.before))?;
    let (begin, before) = (Instant::now(), mesh.bytes()?);
    mesh.run(Duration::from_secs(plan.seconds))?;
    let (seconds, after) = (begin.elapsed().as_secs_f64(), mesh.bytes()?);
    let mut is_met = true;
    let mut records = Records::default();
    for (direction, name) in ["sent", "received"].into_iter().enumerate() {
        let both = after.iter().zip(&before);
        let rates: Vec<f64> = both
            .map(|(after, before)| (after[direction] - before[direction]) as f64 * 8e-3 / seconds)
            .collect();
        let spread = Spread::of(&rates).ok_or("no node")?;
        let by_rate = rates
            .iter()
            .zip(1..)
            .max_by(|one, two| one.0.total_cmp(two.0));
        let busiest: u8 = by_rate.map_or(0, |(_, number)| number);
        is_met &= spread.greatest <= limit;
        println_unless(
            plan.json,
            &format!(
                "{name}: {:.1} kbit/s (median of the nodes), least {:.1}, greatest {:.1} (n{busiest}), at most {limit}",
                spread.median, spread.least, spread.greatest
            ),
        );
        let record = Record::new(
            "overlay exchanges",
            legs,
            name,
            "bit/s",
            By::Measurement,
            spread.median * 1e3,
        );
        records.push(record.with_spread(spread.least * 1e3, spread.greatest * 1e3));
    }
    if plan.json {
        println!("{}", records.to_json());
    }
    println_unless(
        plan.json,
        &format!(
            "{seconds:.0} s; bound {}",
            if is_met { "met" } else { "MISSED" }
        ),
    );
    Ok(match is_met {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(MISSED),
    })
}

fn println_unless(json: bool, text: &str) {
    if !json {
        println!("{text}");
    }
}

/// The nodes.
struct Mesh {
    nodes: Vec<(NetworkNamespace, Program)>,
    _hosts: Vec<NetworkNamespace>,
    _folder: TempDir,
    /// How often the delays have changed; `None` if they stay.
    changes: Option<u64>,
}

impl Mesh {
    fn start(midspan: &Path, changing: bool) -> Result<Self, Failure> {
        let switch = Node::host("switch").without_ipv6().make()?;
        switch.output_of("ip", &["link", "add", "switch", "type", "bridge"])?;
        switch.output_of("ip", &["link", "set", "switch", "up"])?;
        let server = Node::host("server").without_ipv6().make()?;
        let folder = tempfile::tempdir()?;
        let members = folder.path().join("members.toml");
        fs::write(&members, list())?;
        let mut nodes = Vec::new();
        for number in 1..=NODES {
            let node = Node::router(&format!("n{number}")).without_ipv6().make()?;
            let port = format!("n{number}");
            let end = End::new(&node, "mesh").address(format!("10.0.0.{number}/24").as_str());
            Link::between(End::new(&switch, &port), end).make()?;
            switch.output_of("ip", &["link", "set", &port, "master", "switch"])?;
            let near = End::new(&node, "servers").address(format!("10.1.{number}.1/24").as_str());
            let far = End::new(&server, &port).address(format!("10.1.{number}.2/24").as_str());
            Link::between(near, far).make()?;
            nodes.push(node);
        }
        serve(server.listen_at(PORT)?);
        let mut running = Vec::new();
        for (node, number) in nodes.into_iter().zip(1..) {
            let text = configuration(number, &members);
            let program = Launch::midspan(midspan)
                .configuration(&text)
                .inside(&node)
                .ready()?;
            running.push((node, program));
        }
        Ok(Self {
            nodes: running,
            _hosts: vec![switch, server],
            _folder: folder,
            changes: changing.then_some(0),
        })
    }

    /// Opens sessions for this time.
    fn run(&mut self, time: Duration) -> Result<(), Failure> {
        let end = Instant::now() + time;
        loop {
            for ((node, _), number) in self.nodes.iter().zip(1..) {
                for other in used(number) {
                    let port = 8000 + u16::from(other);
                    node.run(move || session(port))??;
                }
            }
            let next = end.min(Instant::now() + SESSION_INTERVAL);
            self.wait_until(next)?;
            if Instant::now() >= end {
                return Ok(());
            }
        }
    }

    /// Waits, and meanwhile changes the delays if they change.
    fn wait_until(&mut self, end: Instant) -> Result<(), Failure> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.changes.is_none() {
                std::thread::sleep(left);
                continue;
            }
            self.change_delays()?;
            std::thread::sleep(left.min(CHANGE_INTERVAL));
        }
    }

    /// Gives each node another delay towards the switch.
    fn change_delays(&mut self) -> Result<(), Failure> {
        let Some(changes) = &mut self.changes else {
            return Ok(());
        };
        *changes += 1;
        for ((node, _), number) in self.nodes.iter().zip(0..) {
            let delay = format!("{}ms", delay(number, *changes));
            let netem = ["qdisc", "replace", "dev", "mesh", "root", "netem", "delay"];
            node.output_of("tc", &[netem.as_slice(), &[&delay]].concat())?;
        }
        Ok(())
    }

    /// The bytes that each node has sent and received at the switch.
    fn bytes(&self) -> Result<Vec<[u64; 2]>, Failure> {
        let of = |(node, _): &(NetworkNamespace, Program)| {
            let shown = node.output_of("ip", &["-json", "-statistics", "link", "show", "mesh"])?;
            counted(&shown).ok_or_else(|| format!("ip prints no statistics: {shown}").into())
        };
        self.nodes.iter().map(of).collect()
    }
}

/// The bytes in the output of `ip -json -statistics`.
fn counted(shown: &str) -> Option<[u64; 2]> {
    let of = |direction: &str| {
        let (_, after) = shown.split_once(&format!("\"{direction}\":{{\"bytes\":"))?;
        after.split(',').next()?.parse().ok()
    };
    Some([of("tx")?, of("rx")?])
}

/// The delay of a node in milliseconds, 1…20, after this number of changes: each change is one of 7 or 13 ms.
const fn delay(node: u64, changes: u64) -> u64 {
    (node * 3 + changes * 7) % 20 + 1
}

/// The nodes through which sessions of this node go.
fn used(number: u8) -> impl Iterator<Item = u8> {
    (1..=USED).map(move |step| (number - 1 + step) % NODES + 1)
}

fn list() -> String {
    let node = |number: u8| {
        format!(
            "[[node]]\nname = \"n{number}\"\naddress = \"10.0.0.{number}:7704\"\nsecurity = \"network\"\n\
             transit = true\nserves = [\"10.1.{number}.0/24\"]\n"
        )
    };
    (1..=NODES).map(node).collect()
}

/// A node that chooses the route to each server, and accepts hops.
fn configuration(number: u8, members: &Path) -> String {
    let mut text = format!(
        "[relay]\nthreads = 1\ndrain_timeout = \"0 s\"\n[log]\nlevel = \"warn\"\n[overlay]\nname = \"n{number}\"\n\
         members = \"{}\"\nmeasure = true\n[[listener]]\nname = \"hops\"\nmode = \"hop\"\n\
         listen = \"10.0.0.{number}:7704\"\n",
        members.display()
    );
    for other in used(number) {
        text += &format!(
            "[[listener]]\nname = \"to-n{other}\"\nlisten = \"127.0.0.1:{}\"\nto = \"10.1.{other}.2:80\"\n\
             overlay = true\n",
            8000 + u16::from(other)
        );
    }
    for other in used(number) {
        text += &format!(
            "[[overlay.route]]\ndestinations = [\"10.1.{other}.0/24\"]\nexits = [\"n{other}\"]\n"
        );
    }
    text
}

/// A session that ends after the server's first byte.
fn session(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.read_exact(&mut [0])
}

/// A server that sends one byte to each client.
fn serve(listener: TcpListener) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The client may have ended the connection.
            let _ = stream.write_all(&[1]);
        }
    });
}
