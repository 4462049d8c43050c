//! Compares Midspan with HAProxy, nginx and plain routing.
//!
//! veth pairs join a client, a gateway and a server, each in a network namespace of its own. The
//! program on the gateway, the *peer*, changes from run to run. All peers take turns in one
//! execution, so that disturbances of the machine affect all of them.
//!
//! | module | content |
//! | --- | --- |
//! | [`network`] | the three namespaces |
//! | [`peer`] | the programs on the gateway: none, Midspan, another build of it, HAProxy, nginx |
//! | [`server`], [`load`] | the servers and the clients |
//! | [`usage`] | CPU time and memory of the peer's processes |
//! | [`accounting`] | where the time of all cores goes while connections are opened |
//! | [`run`] | one run: start, load, read |
//! | [`rounds`] | rounds, their order, and how they are resumed |
//! | [`verdict`] | medians, paired ratios, bounds |

mod accounting;
mod load;
mod network;
mod peer;
mod rounds;
mod run;
mod server;
mod usage;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use peer::Peer;
use verdict::Verdict;

/// Any error that stops a measurement.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Exit status if a bound was missed.
const NOT_MET: u8 = 3;

/// Compares Midspan with HAProxy, nginx and plain routing: bulk, connections, memory, latency.
///
/// Example: `cargo run --release -p peers -- --rounds 5 --state target/peers.jsonl`
#[derive(Parser, Debug, Clone)]
#[command(about)]
struct Arguments {
    /// Runs of each peer, alternating
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Peers to compare; by default all except `midspan-client-rates`, and the other build if there is one
    #[arg(long, value_delimiter = ',', value_enum)]
    peers: Vec<Peer>,
    /// Seconds from the start of a peer to the first measurement. They keep the work of starting out of the
    /// CPU time of the first transfer
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    settle_seconds: f64,
    /// Congestion control of all hosts, by its kernel name. BBR paces what it sends by timers of the kernel, which
    /// cost a virtual machine more than the rest of a proxy's work
    #[arg(long, default_value = "cubic")]
    congestion_control: String,
    /// Seconds of each bulk transfer
    #[arg(long, default_value_t = 2.5, value_parser = seconds)]
    bulk_seconds: f64,
    /// Seconds of opening connections
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    connection_seconds: f64,
    /// Clients that connect at once
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Idle sessions
    #[arg(long, default_value_t = 9000)]
    sessions: usize,
    /// Rounds that measure the memory and the CPU time of idle sessions, which hardly vary
    #[arg(long, default_value_t = 3)]
    memory_rounds: usize,
    /// Seconds for which the CPU time of idle sessions is measured; as many seconds before are not
    /// counted, because the peer may still work on the last new sessions
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    idle_seconds: f64,
    /// Round trips of one byte
    #[arg(long, default_value_t = 4000)]
    round_trips: usize,
    /// Midspan's executable [default: `midspan` in the folder of this program]
    #[arg(long)]
    midspan: Option<PathBuf>,
    /// Another build of Midspan to compare with: each quantity is to be within 3 % of it
    #[arg(long)]
    other_build: Option<PathBuf>,
    /// File for finished runs; with it, an interrupted measurement can continue
    #[arg(long)]
    state: Option<PathBuf>,
    /// Print JSON records instead of tables
    #[arg(long)]
    json: bool,
}

/// Most seconds of one part of a run.
const MOST_SECONDS: f64 = 3600.0;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=MOST_SECONDS).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "a number of seconds from 0 to {MOST_SECONDS} is expected"
        )),
    }
}

fn main() -> ExitCode {
    match measure(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_MET),
        Err(failure) => {
            eprintln!("peers: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(mut arguments: Arguments) -> Result<bool, Failure> {
    if arguments.peers.is_empty() {
        let has_other = arguments.other_build.is_some();
        arguments.peers = Peer::ALL.to_vec();
        arguments
            .peers
            .retain(|peer| peer.is_usual() || (has_other && peer.is_other_build()));
    } else if arguments.other_build.is_none()
        && let Some(peer) = arguments.peers.iter().find(|peer| peer.is_other_build())
    {
        let name = peer.name();
        return Err(format!("--peers: {name} needs --other-build PROGRAM").into());
    }
    // The process leaves the host's network; an ordinary user becomes root of a user namespace.
    midspan_linux::namespace::isolate()?;
    let runs = rounds::measure(&arguments)?;
    let verdict = Verdict::of(&runs);
    if arguments.json {
        println!("{}", verdict.records.to_json());
    } else {
        verdict.print(arguments.rounds, &arguments.congestion_control);
    }
    Ok(verdict.is_met())
}
