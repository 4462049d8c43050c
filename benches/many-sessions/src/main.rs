//! Measures the CPU time for the samples of many active sessions, and whether the relay's threads wait
//! for each other because they share knowledge.
//!
//! The sessions are synthetic: they move data all the time, over a client leg with a round trip of
//! 600 ms and a queue, where the policy `auto` has most to decide. Four sessions have the same client
//! and the same server. The policy, the shared knowledge and the pace of samples are the relay's code,
//! and also the function that reads `TCP_INFO` of both legs. It reads real sockets, which the sessions
//! use in turn. Time is virtual: the threads make all samples of some seconds as fast as they can.
//!
//! | module | content |
//! | --- | --- |
//! | [`sockets`] | connected sockets whose `TCP_INFO` is read |
//! | [`sessions`] | the synthetic sessions of one thread |
//! | [`rounds`] | runs with each number of threads, in turn |
//! | [`verdict`] | medians, ratios, bounds |

mod rounds;
mod sessions;
mod sockets;
mod verdict;

use std::process::ExitCode;

use clap::Parser;

/// Any error that stops a measurement.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Exit status if a bound was missed.
const NOT_MET: u8 = 3;

/// Measures what the samples of many active sessions cost, with several numbers of threads.
///
/// Example: `cargo run --release -p many-sessions -- --rounds 7`
#[derive(Parser, Debug, Clone)]
#[command(about)]
struct Arguments {
    /// Runs with each number of threads, alternating
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Active sessions, of all threads together
    #[arg(long, default_value_t = 100_000)]
    sessions: usize,
    /// Numbers of threads. The last one is compared with the second one
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 16])]
    threads: Vec<usize>,
    /// Virtual seconds of each run that count; as many before do not
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Parts of the knowledge, each with its lock [default: as the relay]
    #[arg(long)]
    parts: Option<usize>,
    /// Sample each session ten times a second, however many there are
    #[arg(long)]
    unbounded: bool,
    /// Connections of which `TCP_INFO` is read; 0: it is not read
    #[arg(long, default_value_t = 4000)]
    connections: usize,
    /// Print JSON records instead of the table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_MET),
        Err(failure) => {
            eprintln!("many-sessions: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<bool, Failure> {
    let runs = rounds::measure(arguments)?;
    let records = verdict::records(&runs, &arguments.threads);
    if arguments.json {
        println!("{}", records.to_json());
    } else {
        verdict::print(&records, &runs);
    }
    Ok(records.all_ok())
}
