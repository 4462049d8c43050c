//! Measures what `midspan top` costs the sessions of a proxy: the 99th percentile of the round-trip
//! times of one byte through the proxy, with `midspan top` and without it. Meanwhile, 9,000 sessions exist,
//! of which 900 move data (defaults). The program also measures the time of the relay's threads for one
//! answer of `/summary` and of `/sessions`.
//!
//! Clients, servers, Midspan and `midspan top` run on this machine, over loopback, without privileges. Each
//! pair has a run with `midspan top` and one without; which is first alternates.
//!
//! | module | content |
//! | --- | --- |
//! | [`crowd`] | the sessions, and the data that some of them move |
//! | [`ping`] | the round-trip times of one byte |
//! | [`rounds`] | runs in pairs, medians, table, verdict |
//! | [`relay_time`] | what the answers cost the relay |

mod crowd;
mod ping;
mod relay_time;
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
#[derive(Parser, Debug, Clone)]
#[command(about, long_about = None)]
pub struct Plan {
    /// Pairs of runs: one with `midspan top`, one without
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Seconds of each run
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Sessions
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    sessions: u64,
    /// Sessions of these that move data
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    moving: u64,
    /// Seconds between two answers for `midspan top`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
    /// Answers of each page whose cost is read
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    answers: u64,
    /// The program
    #[arg(long, default_value = "target/release/midspan", value_name = "FILE")]
    midspan: PathBuf,
    /// Print JSON records instead of the tables
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Failure> {
    Ok(match rounds::run(&Plan::parse())? {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(MISSED),
    })
}
