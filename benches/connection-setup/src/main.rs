//! What opening a connection costs through a transparent listener: the time from the client's
//! `connect` to its return, and connections per second.
//!
//! A client, a gateway and a server are network namespaces joined by veth pairs without delay, one
//! such chain for each case. The gateway routes; or routes and tracks connections, as every one
//! with NAT or a stateful firewall does; or runs Midspan with one of its two handshakes. Needs the
//! right to make network namespaces, and `nft`.
//!
//! | module | job |
//! | --- | --- |
//! | [`chain`] | namespaces, the gateway's rules, Midspan in a process of its own |
//! | [`load`] | clients and servers |
//! | [`compare`] | rounds, medians, table, records |

mod chain;
mod compare;
mod load;

use std::error::Error;
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use midspan_proxy::RunOptions;

/// Anything that stops a measurement.
type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
#[command(about, long_about = None)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
    #[command(subcommand)]
    command: Option<Command>,
}

/// How much to measure.
#[derive(Args, Debug, Clone)]
struct Plan {
    /// Runs of each case, in an order that alternates
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Connections one after another in each run
    #[arg(long, default_value_t = 2000)]
    connections: usize,
    /// Seconds of concurrent connections in each run
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Clients that connect at once
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Print JSON records instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run Midspan (started by the comparison)
    #[command(hide = true)]
    Run {
        /// Its configuration
        file: PathBuf,
    },
    /// Run its relay (started by it)
    #[command(hide = true)]
    Relay,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Run { file }) => Ok(midspan_proxy::run(RunOptions {
            configuration: file,
            relay_arguments: vec!["relay".to_owned()],
            ready: Some(std::io::stdout().as_fd().try_clone_to_owned()?),
        })?),
        Some(Command::Relay) => Ok(midspan_proxy::relay_main()?),
        None => compare::run(&arguments.plan),
    }
}
