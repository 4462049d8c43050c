//! Compares two I/O loops for the relay: raw epoll and tokio.
//!
//! Both loops run the same relay logic ([`direction`]): splice through pooled pipes for bulk data, and
//! one shared buffer per thread for small data. Both have one thread per core, each with a listener
//! (`SO_REUSEPORT`). The program starts a relay with each loop in turn, in a process of its own, opens
//! connections through it over loopback, and compares the two.
//!
//! | module | content |
//! | --- | --- |
//! | [`direction`] | relay logic that both loops share |
//! | [`epoll_loop`], [`tokio_loop`] | the two loops |
//! | [`relay_process`] | a relay in a child process: start, CPU time, memory |
//! | [`servers`], [`load`] | the servers and the clients |
//! | [`compare`] | rounds, medians, table, records |

mod compare;
mod direction;
mod epoll_loop;
mod load;
mod relay_process;
mod servers;
mod tokio_loop;

use std::error::Error;
use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Any error that stops a measurement.
type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
#[command(about, long_about = None)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Options of the measurement.
#[derive(Args, Debug, Clone)]
struct Plan {
    /// Runs of each loop, alternating
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of connections in each run
    #[arg(long, default_value_t = 2.0)]
    connection_seconds: f64,
    /// Clients that connect at once
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Idle sessions
    #[arg(long, default_value_t = 4000)]
    sessions: usize,
    /// Bytes of each bulk transfer, all flows together
    #[arg(long, default_value_t = 3_000_000_000)]
    bulk: u64,
    /// Round trips of one byte
    #[arg(long, default_value_t = 5000)]
    round_trips: usize,
    /// Print JSON records instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run one relay until standard input ends (started by the comparison)
    #[command(hide = true)]
    Relay {
        /// The loop
        shell: Shell,
        /// Addresses of the servers, which the sessions use in turn
        #[arg(required = true)]
        servers: Vec<SocketAddr>,
    },
}

/// The two loops.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Shell {
    /// Raw epoll, edge triggered
    Epoll,
    /// tokio, one current-thread runtime per core
    Tokio,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Relay { shell, servers }) => relay_process::run(shell, servers),
        None => compare::run(&arguments.plan),
    }
}
