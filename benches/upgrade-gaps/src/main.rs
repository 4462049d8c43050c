//! Measures what upgrades cost the sessions of a proxy: the gaps between messages that arrive, with upgrades and without
//! them. 9,000 sessions exist, of which 900 get a checked message every 10 ms, and new connections are opened
//! all the time (defaults).
//!
//! Clients, servers and Midspan run on this machine, over loopback, without privileges. Each pair has a run with upgrades
//! and one without; which is first alternates. An upgrade goes to the program `--other`, and the next one back.
//!
//! | module | content |
//! | --- | --- |
//! | [`messages`] | the messages of the moving sessions: sent, checked, and the gaps between them |
//! | [`opening`] | new connections, one after the other |
//! | [`rounds`] | runs in pairs, upgrades, table, verdict |

mod messages;
mod opening;
mod rounds;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Any error that stops the measurement.
type Failure = Box<dyn Error + Send + Sync>;

/// Exit status if a bound is missed, as of the other programs of Midspan.
const MISSED: u8 = 3;

/// What is measured, and how long.
///
/// Example: `cargo run --release -p upgrade-gaps -- --midspan NEW --other OLD`
#[derive(Parser, Debug, Clone)]
#[command(about, long_about = None)]
pub struct Plan {
    /// Pairs of runs: one with upgrades, one without
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Seconds of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Upgrades in each run with upgrades
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100))]
    upgrades: u64,
    /// Sessions
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    sessions: u64,
    /// Sessions of these that get messages
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    moving: u64,
    /// Milliseconds between two messages of a session
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    interval: u64,
    /// The program
    #[arg(long, default_value = "target/release/midspan", value_name = "FILE")]
    midspan: PathBuf,
    /// The other program, to which every second upgrade leads [default: the same]
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
    /// Print JSON records instead of the table
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Failure> {
    Ok(match rounds::run(&Plan::parse())? {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(MISSED),
    })
}
