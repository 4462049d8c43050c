//! Commands and options; their help texts are the reference.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use midspan_lab::Case;
use midspan_reproduce::Paper;

/// A TCP performance-enhancing proxy for Linux, and the lab that shows what it does.
#[derive(Debug, Parser)]
#[command(name = "midspan", version, max_term_width = 100)]
#[command(after_help = "First try:  midspan demo")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Download real files over an emulated satellite path, without and with Midspan
    ///
    /// Needs no configuration and touches nothing outside network namespaces of its own. Works as
    /// root and, where the kernel allows user namespaces, as an ordinary user. Takes two minutes.
    #[command(after_help = "Example:  midspan demo --html report.html")]
    Demo(DemoOptions),
    /// Run the proxy
    #[command(after_help = "Example:  midspan run --config /etc/midspan/midspan.toml")]
    Run(RunOptions),
    /// Run flows over a path of emulated links, real kernels and the real proxy
    ///
    /// The path is the name of a built-in one (see `midspan paths`) or a path file
    /// (docs/path-file.md).
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "Examples:\n  midspan lab geo --cases direct,haproxy,midspan --repetitions 3\n  \
                      midspan lab my-path.toml --html report.html\n  midspan lab verify"
    )]
    Lab(LabOptions),
    /// Run the flows of a path in virtual time, packet by packet
    ///
    /// The same path file as the lab's, without real kernels: deterministic, and thousands of
    /// times faster (docs/simulator.md says what is modelled).
    #[command(after_help = "Example:  midspan sim geo-clean --json")]
    Sim(SimOptions),
    /// Print a paper's figures beside what its equations and simulations give here
    #[command(after_help = "Example:  midspan reproduce bhole")]
    Reproduce(ReproduceOptions),
    /// List the built-in paths
    Paths(Output),
    /// The unprivileged half of `midspan run`, which starts it
    #[command(hide = true)]
    Relay,
}

/// Options of `midspan run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Configuration file (docs/configuration.md)
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Print the rules and routes that transparent listeners would set, and set nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write one byte to this descriptor and close it once connections are accepted
    #[arg(long, value_name = "DESCRIPTOR")]
    pub ready_fd: Option<i32>,
}

/// How results are printed.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `midspan demo`.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// How often each download runs each way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repetitions: u32,
    /// Where to write the report
    #[arg(long, value_name = "FILE", default_value = "midspan-demo.html")]
    pub html: PathBuf,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan lab`.
#[derive(Debug, Args)]
pub struct LabOptions {
    /// Measure the lab itself.
    #[command(subcommand)]
    pub command: Option<LabCommand>,
    /// Run a path.
    #[command(flatten)]
    pub run: LabRunOptions,
}

/// Commands under `midspan lab`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Measure the emulated links against independent clocks (ping, captures at both ends)
    #[command(after_help = "Example:  midspan lab verify --json")]
    Verify(VerifyOptions),
}

/// Options of `midspan lab PATH`.
#[derive(Debug, Args)]
pub struct LabRunOptions {
    /// Built-in path or path file
    #[arg(required = true, value_name = "PATH")]
    pub path: Option<String>,
    /// What to compare: direct (plain routing), haproxy, midspan
    #[arg(long, value_delimiter = ',', default_value = "direct,midspan")]
    pub cases: Vec<Case>,
    /// Only the flows of these names
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub flows: Vec<String>,
    /// How often each flow runs under each case
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Seed of all random draws, instead of the path file's
    #[arg(long)]
    pub seed: Option<u64>,
    /// Most seconds that one transfer may take
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// State whether Midspan's completion times are at most this multiple of HAProxy's
    #[arg(long, value_name = "RATIO")]
    pub at_most: Option<f64>,
    /// Write a report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan sim`.
#[derive(Debug, Args)]
pub struct SimOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Only the flows of these names
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub flows: Vec<String>,
    /// Seed of all random draws, instead of the path file's
    #[arg(long)]
    pub seed: Option<u64>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceOptions {
    /// The paper, by its short name
    pub paper: PaperName,
    /// Shorter simulations and fewer repetitions than the paper's
    #[arg(long)]
    pub quick: bool,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// A paper by its short name.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum PaperName {
    /// A TCP overlay: splitting at several proxies, buffers, placement
    Maki,
    /// Oversized segments and sending ahead for narrow upstreams
    Hasegawa,
    /// ACE thinning and its rivals
    Tam,
    /// Bursts of a split proxy, and pacing
    Shikama,
    /// PTS, a proxy transport service: place, service time, buffer
    Bhole,
}

impl From<PaperName> for Paper {
    fn from(name: PaperName) -> Self {
        match name {
            PaperName::Maki => Self::Maki,
            PaperName::Hasegawa => Self::Hasegawa,
            PaperName::Tam => Self::Tam,
            PaperName::Shikama => Self::Shikama,
            PaperName::Bhole => Self::Bhole,
        }
    }
}

/// Options of `midspan lab verify`.
#[derive(Debug, Args)]
pub struct VerifyOptions {
    /// Fewer and shorter checks
    #[arg(long)]
    pub quick: bool,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}
