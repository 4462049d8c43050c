//! Measures the cost of opening a connection through a transparent listener: the time that the
//! client's `connect` takes, and connections per second.
//!
//! For each case, veth pairs without delay join a client, a gateway and a server, which are network
//! namespaces. The gateway routes packets; or it routes and tracks connections, as every gateway
//! with NAT or a stateful firewall does; or it tracks connections and runs Midspan with one of the
//! two handshakes. Needs the right to make network namespaces, and `nft`.
//!
//! | module | content |
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
        /// The configuration file
        file: PathBuf,
    },
    /// Run the relay (started by Midspan)
    #[command(hide = true)]
    Relay,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Run { file }) => Ok(midspan_proxy::run(RunOptions {
            configuration: file,
            relay_arguments: vec!["relay".to_owned()],
            // No upgrade.
            trial_arguments: Vec::new(),
            ready: Some(std::io::stdout().as_fd().try_clone_to_owned()?),
            log_level: None,
        })?),
        Some(Command::Relay) => Ok(midspan_proxy::relay_main()?),
        None => compare::run(&arguments.plan),
    }
}
