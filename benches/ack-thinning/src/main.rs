//! Measures how many ACKs per second `midspan thin` handles on one core.
//!
//! A veth pair joins two network namespaces. A sender writes pure ACKs of 100 flows (default) through
//! a raw socket as fast as possible. The ACKs pass the rules and the packet queue of a real `midspan
//! thin`, whose worker process has one thread. The other host answers each ACK with an RST, so the
//! worker also reads headers of arriving packets. The program prints the number of ACKs that the worker
//! judged per second, its processor time for each of them, and their share of all ACKs: if the queue is
//! full, an ACK passes without a verdict. Needs root, or a user who may make namespaces.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::num::NonZeroI32;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use midspan_linux::namespace::{self, NetworkNamespace};
use midspan_linux::raw_packet::{Family, RawSocket};
use midspan_records::{By, Record};
use midspan_testbed::network::{End, Link, Node};
use midspan_testbed::program::Launch;
use midspan_thin::{RunOptions, Settings, Status, Watcher};

type Failure = Box<dyn Error + Send + Sync>;

/// Hertz of the times in `/proc/PID/stat` (`USER_HZ`; 100 on all machines that Linux supports).
const TICKS: f64 = 100.0;

#[derive(Parser)]
#[command(about, long_about = None)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
    #[command(subcommand)]
    command: Option<Role>,
}

/// Options of the measurement.
#[derive(Args, Debug, Clone)]
struct Plan {
    /// Policy to measure
    #[arg(long, default_value = "fda:4")]
    policy: String,
    /// Flows that send ACKs
    #[arg(long, default_value_t = 100)]
    flows: u16,
    /// Seconds for which ACKs are sent
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Print JSON records instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Role {
    /// Run `midspan thin` (started by the measurement)
    #[command(hide = true)]
    Thin {
        /// The policy
        policy: String,
    },
    /// Run the worker process (started by `midspan thin`)
    #[command(hide = true)]
    ThinWorker,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Role::Thin { policy }) => Ok(midspan_thin::run(RunOptions {
            settings: Settings {
                policy: policy.parse()?,
                ..Settings::new("up")
            },
            worker_arguments: vec!["thin-worker".to_owned()],
            pages: None,
            ready: Some(&mut std::io::stdout()),
            watch: Some(&mut Lines),
        })?),
        Some(Role::ThinWorker) => Ok(midspan_thin::worker_main()?),
        None => measure(&arguments.plan),
    }
}

/// Prints each report as a line.
#[derive(Debug)]
struct Lines;

impl Watcher for Lines {
    fn handle_status(&mut self, status: &Status) {
        if let Ok(line) = serde_json::to_string(status) {
            println!("{line}");
        }
    }
}

fn measure(plan: &Plan) -> Result<(), Failure> {
    namespace::isolate()?;
    let (client, _server) = network()?;
    let launch = Launch::new(std::env::current_exe()?).args(["thin", &plan.policy]);
    let mut agent = launch.inside(&client).start()?;
    let output = agent.take_output().ok_or("no output")?;
    let mut lines = BufReader::new(output).lines();
    lines.next().ok_or("the agent does not start")??;
    let worker = agent.only_child()?.as_raw_nonzero();
    let before = processor_time(worker)?;
    let (flows, span) = (plan.flows, Duration::from_secs(plan.seconds));
    // The thread returns the namespace too, so that the namespace exists until `midspan thin` ends.
    let sender = std::thread::spawn(move || (client.run(move || send(flows, span)), client));
    let start = Instant::now();
    let mut status = Status::default();
    while start.elapsed() < span {
        let line = lines.next().ok_or("the agent has ended")??;
        status = serde_json::from_str(&line)?;
    }
    let used = processor_time(worker)? - before;
    let (sent, _client) = sender.join().map_err(|_| "the sender has failed")?;
    let sent = sent??;
    agent.kill();
    print(plan, &status, used, sent);
    Ok(())
}

fn print(plan: &Plan, status: &Status, used: f64, sent: u64) {
    let seen = status.acks_seen as f64;
    let rate = seen / status.running.as_seconds();
    let each = used / seen.max(1.0);
    let case = format!("{} with {} flows", plan.policy, plan.flows);
    let record = |quantity, unit, value| {
        Record::new(
            "ACK thinning",
            &case,
            quantity,
            unit,
            By::Measurement,
            value,
        )
    };
    let records = [
        record("ACKs judged a second", "1/s", rate),
        record("processor time for an ACK", "s", each),
        record("ACKs a second of processor time", "1/s", 1.0 / each),
        record("ACKs sent", "packets", sent as f64),
        record("share of ACKs judged", "share", seen / sent.max(1) as f64),
        record("share of ACKs saved", "share", status.saved_share()),
    ];
    if plan.json {
        println!("{}", serde_json::json!({ "records": records }));
        return;
    }
    println!("{case}:");
    println!("  {rate:.0} ACKs judged a second");
    println!(
        "  {:.1} µs of processor time for each, so {:.0} a second on one core",
        each * 1e6,
        1.0 / each
    );
    println!(
        "  {sent} sent, {:.1} % judged (the others found the queue full and passed)",
        100.0 * seen / sent.max(1) as f64
    );
    println!("  {:.1} % saved", 100.0 * status.saved_share());
}

/// A client with the interface `up`, and a server on the other end of the veth pair.
fn network() -> Result<(NetworkNamespace, NetworkNamespace), Failure> {
    let client = Node::host("client").make()?;
    let server = Node::host("server").make()?;
    let near = End::new(&client, "up").address("10.1.0.2/24");
    let far = End::new(&server, "down").address("10.1.0.1/24");
    Link::between(near, far).make()?;
    Ok((client, server))
}

/// Seconds of processor time that a process has used (proc_pid_stat(5)).
fn processor_time(process: NonZeroI32) -> Result<f64, Failure> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in brackets may contain any character; the times are fields 14 and 15.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut times = fields.split_whitespace().skip(11).take(2);
    let mut next = || -> Result<f64, Failure> { Ok(times.next().ok_or("no time")?.parse()?) };
    Ok((next()? + next()?) / TICKS)
}

/// Sends ACKs of `flows` flows in turn. Each ACK covers two segments more than the flow's last one.
/// Returns the number of ACKs.
fn send(flows: u16, span: Duration) -> Result<u64, Failure> {
    let mut socket = RawSocket::from_socket(RawSocket::open(Family::V4)?);
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend([10, 1, 0, 2, 10, 1, 0, 1]);
    packet.extend([
        0, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 2, 0, 0, 0, 0, 0,
    ]);
    let start = Instant::now();
    let (mut sent, mut number) = (0, 1_u32);
    while start.elapsed() < span {
        number = number.wrapping_add(2920);
        for flow in 0..flows {
            packet[20..22].copy_from_slice(&(10_000 + flow).to_be_bytes());
            packet[28..32].copy_from_slice(&number.to_be_bytes());
            match socket.send(&packet, 0) {
                Ok(()) => sent += 1,
                // The device's queue is full.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) if error.raw_os_error() == Some(105) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(sent)
}
