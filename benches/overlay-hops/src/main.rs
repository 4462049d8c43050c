//! Measures what each hop of an overlay costs a session: the time until the server's first byte arrives, and the CPU
//! time of each node for a gigabyte.
//!
//! Five hosts are network namespaces in a line, whose links have no delay: client, ams, fra, sin, server. All three
//! nodes run Midspan. The same client reaches the server in three cases, in turn: over a forward listener of ams, while
//! fra and sin route packets; over one hop from ams to sin; and over two hops, by fra. Connections between the nodes are
//! warm. With `--tls`, they are encrypted, and no bound applies. Needs the right to make network namespaces.
//!
//! | module | content |
//! | --- | --- |
//! | [`sites`] | the hosts, the three Midspans, the server |
//! | [`rounds`] | runs in turn, medians, table, verdict |

mod rounds;
mod sites;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use midspan_units::BitRate;

/// Any error that stops the measurement.
type Failure = Box<dyn Error + Send + Sync>;

/// Exit status if a bound is missed, as of the other programs of Midspan.
const MISSED: u8 = 3;

/// What is measured, and how long.
#[derive(Parser, Debug, Clone)]
#[command(about, long_about = None)]
pub struct Plan {
    /// Runs of each case
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Connections of each case in each run, rounded up to a multiple of three
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    connections: u64,
    /// Seconds of the transfer in each run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The program
    #[arg(long, default_value = "target/release/midspan", value_name = "FILE")]
    midspan: PathBuf,
    /// The most that the server sends in a transfer, so that all cases have the same rate
    #[arg(long)]
    rate: Option<BitRate>,
    /// The congestion control of all hosts, by its kernel name. BBR paces what it sends by timers of the kernel, which
    /// cost a virtual machine more than the rest of a hop
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion_control: String,
    /// The server sends a file (`sendfile(2)`), as web servers do: its packets consist of single pages
    #[arg(long)]
    file: bool,
    /// Encrypt the connections between the nodes
    #[arg(long)]
    tls: bool,
    /// Print JSON records instead of the table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match rounds::run(&Plan::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(MISSED),
        Err(failure) => {
            eprintln!("overlay-hops: {failure}");
            ExitCode::FAILURE
        }
    }
}
