//! Measures what a hop between two nodes of an overlay costs, plain and with TLS: the CPU time of each node's relay
//! for a download, which is read as GB/s of one core.
//!
//! For each case, veth pairs without delay join a client, the ingress, the exit and a server, which are network
//! namespaces. The ingress decrypts what the exit has encrypted; towards the client and the server, nothing is
//! encrypted. Needs the right to make network namespaces.

mod chain;

use std::error::Error;
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use midspan_linux::namespace;
use midspan_proxy::RunOptions;
use midspan_records::Spread;

use chain::{Case, Chain, NODES};

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
    /// Downloads of each case, in an order that alternates
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Bytes of a download in MB
    #[arg(long, default_value_t = 2000)]
    megabytes: u64,
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
            ready: Some(std::io::stdout().as_fd().try_clone_to_owned()?),
            log_level: None,
        })?),
        Some(Command::Relay) => Ok(midspan_proxy::relay_main()?),
        None => compare(&arguments.plan),
    }
}

/// Measures both cases and prints a table.
fn compare(plan: &Plan) -> Result<(), Failure> {
    namespace::isolate()?;
    let chains = [Chain::new(Case::Plain)?, Chain::new(Case::Tls)?];
    let mut runs: [Vec<[f64; 3]>; 2] = [Vec::new(), Vec::new()];
    for round in 0..plan.rounds {
        for step in 0..2 {
            let place = (round + step) % 2;
            runs[place].push(chains[place].download(plan.megabytes * 1_000_000)?);
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    for chain in chains {
        chain.stop()?;
    }
    println!("{:<28} {:>26} {:>26}", "", Case::Plain.name(), Case::Tls.name());
    let [ingress, exit] = NODES;
    let rows = [
        ("download, GB/s".to_owned(), 0),
        (format!("{ingress}, GB/s of a core"), 1),
        (format!("{exit}, GB/s of a core"), 2),
    ];
    for (name, quantity) in rows {
        print!("{name:<28}");
        for of_case in &runs {
            let values: Vec<f64> = of_case.iter().map(|run| run[quantity]).collect();
            let spread = Spread::of(&values).ok_or("no runs")?;
            let text = format!("{:.2} ({:.2} … {:.2})", spread.median, spread.low, spread.high);
            print!(" {text:>26}");
        }
        println!();
    }
    Ok(())
}
