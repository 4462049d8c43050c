//! Options of `midspan plan` and `midspan compare`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use midspan_units::{BitRate, ByteSize, TimeSpan};

use crate::output_arguments::Output;

/// Options of `midspan plan`.
#[derive(Debug, Args)]
pub struct PlanOptions {
    /// Another question.
    #[command(subcommand)]
    pub command: Option<PlanCommand>,
    /// The path as it stands.
    #[command(flatten)]
    pub path: PlanPathOptions,
}

/// Questions under `midspan plan`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Rank the possible places of proxies
    #[command(after_help = "Example:  midspan plan place transatlantic --proxies 1")]
    Place(PlaceOptions),
    /// Choose the nodes of a network to make overlay nodes, and the routes over them
    #[command(after_help = "Example:  midspan plan network mesh5 --nodes 3 --size '10 MB'")]
    Network(NetworkOptions),
    /// Throughput as a function of the proxies' send buffer, and the knee of the curve
    #[command(after_help = "Example:  midspan plan buffers geo --plot buffers.svg")]
    Buffers(BuffersOptions),
    /// Compare variants of a path
    #[command(
        after_help = "Example:  midspan plan whatif geo link.satellite.loss='1 %' \
                      'link.satellite.down.rate=50 Mbit/s'"
    )]
    Whatif(WhatifOptions),
    /// Compare the analysis with the simulator on random paths
    #[command(after_help = "Example:  midspan plan agreement --seeds 101-300")]
    Agreement(AgreementOptions),
}

/// A path, and how results are given.
#[derive(Debug, Args)]
pub struct PathOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Another value for a key of the path file, as in `link.satellite.loss=1 %`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// How results are given.
    #[command(flatten)]
    pub results: ResultOptions,
}

/// How results are given.
#[derive(Debug, Args)]
pub struct ResultOptions {
    /// Write a report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the plot as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan plan PATH`.
#[derive(Debug, Args)]
pub struct PlanPathOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH", required_unless_present = "measurement")]
    pub path: Option<String>,
    /// Another value for a key of the path file, as in `link.satellite.loss=1 %`
    #[arg(long, value_name = "KEY=VALUE", requires = "path")]
    pub set: Vec<String>,
    /// Measurements, instead of a path.
    #[command(flatten)]
    pub measured: MeasuredOptions,
    /// Rate of the slowest link, which no measurement contains
    #[arg(long, value_name = "RATE", requires = "measurement")]
    pub rate: Option<BitRate>,
    /// How results are given.
    #[command(flatten)]
    pub results: ResultOptions,
    /// Write the recommended proxy configuration to a new file; `-` prints it
    #[arg(long, value_name = "FILE", requires = "path")]
    pub write_config: Option<PathBuf>,
    /// Replace the file of --write-config if it exists
    #[arg(long, requires = "write_config")]
    pub force: bool,
    /// The proxy of this configuration, if the path has several
    #[arg(long, value_name = "NODE", requires = "write_config")]
    pub proxy: Option<String>,
    /// The name that --write-config had; now an error.
    #[arg(long = "config", value_name = "FILE", hide = true)]
    pub old_config: Option<PathBuf>,
}

/// Measurements; `-` is standard input.
#[derive(Debug, Args)]
#[group(id = "measurement", multiple = false, conflicts_with = "path")]
pub struct MeasuredOptions {
    /// Output of `ss -tin` on the sending host
    #[arg(long, value_name = "FILE")]
    pub from_ss: Option<PathBuf>,
    /// A capture (pcap or pcapng) of a connection
    #[arg(long, value_name = "FILE")]
    pub from_pcap: Option<PathBuf>,
    /// Output of `ping`
    #[arg(long, value_name = "FILE")]
    pub from_ping: Option<PathBuf>,
    /// Output of `iperf3 --json`
    #[arg(long, value_name = "FILE")]
    pub from_iperf3: Option<PathBuf>,
    /// The metrics of a running proxy: `http://ADDRESS:PORT/metrics`, or a file of them
    #[arg(long, value_name = "URL|FILE")]
    pub from_metrics: Option<PathBuf>,
}

/// Options of `midspan plan place`.
#[derive(Debug, Args)]
pub struct PlaceOptions {
    /// The path.
    #[command(flatten)]
    pub path: PathOptions,
    /// Number of proxies; the default is one and, if there is room, two
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=62))]
    pub proxies: Option<u32>,
    /// Number of placements to show
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub keep: u32,
}

/// Options of `midspan plan network`.
#[derive(Debug, Args)]
pub struct NetworkOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Another value for a key of the path file, as in `link.satellite.loss=1 %`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Most overlay nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// The size of the transfers that are to be fast
    #[arg(long, value_name = "SIZE", default_value = "1 MB")]
    pub size: ByteSize,
    /// Write a report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan plan buffers`.
#[derive(Debug, Args)]
pub struct BuffersOptions {
    /// The path.
    #[command(flatten)]
    pub path: PathOptions,
}

/// Options of `midspan plan whatif`.
#[derive(Debug, Args)]
pub struct WhatifOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The variants: other values for keys of the path file; several joined by `;` make one
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub variants: Vec<String>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan plan agreement`.
#[derive(Debug, Args)]
pub struct AgreementOptions {
    /// Seeds of the paths, first and last; the analysis was fitted to the seeds 1-100
    #[arg(long, default_value = "101-300", value_name = "FIRST-LAST", value_parser = seeds)]
    pub seeds: (u64, u64),
    /// Keep simulated results in this file; a second call continues from there
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Number of paths to show, the worst first
    #[arg(long, default_value_t = 10)]
    pub worst: usize,
    /// Write the plot as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// A time limit, from a second to a day.
pub fn timeout(text: &str) -> Result<TimeSpan, String> {
    const LEAST: TimeSpan = TimeSpan::from_milliseconds(1_000);
    const MOST: TimeSpan = TimeSpan::from_milliseconds(24 * 3_600_000);
    match text.parse::<TimeSpan>() {
        Ok(time) if (LEAST..=MOST).contains(&time) => Ok(time),
        Ok(_) => Err("write a time from 1 s to 24 h".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Most seeds of one run.
const MOST_SEEDS: u64 = 100_000;

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last && last - first < MOST_SEEDS => Ok((first, last)),
        _ => Err("write the first and the last seed, as in 101-300, at most 100,000".to_owned()),
    }
}

/// Options of `midspan compare`.
#[derive(Debug, Args)]
pub struct CompareOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Another value for a key of the path file, as in `link.satellite.loss=1 %`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Only the flows of these names
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub flows: Vec<String>,
    /// How often simulator and lab run each flow; each simulation has a seed of its own
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Write a page with the figures, all numbers and where they come from
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Leave the lab out
    #[arg(long)]
    pub without_lab: bool,
    /// Most time that one transfer of the lab may take
    #[arg(long, default_value = "5 min", value_name = "TIME", value_parser = timeout)]
    pub timeout: TimeSpan,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}
