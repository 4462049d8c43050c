//! Commands of the package midspan-lab and their options; their help texts are the reference.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use midspan_lab::CaseKind;
use midspan_reproduce::Paper;
use midspan_sim::trace::Kind;
use midspan_sweep::{Case, Shard};
use midspan_units::TimeSpan;

use crate::output_arguments::Output;
use crate::plan_arguments::{CompareOptions, PlanOptions, timeout};

/// Commands that a gateway does not need. The program of the package midspan passes them to the
/// program of the package midspan-lab (`lab_package.rs` has their names).
#[derive(Debug, Subcommand)]
pub enum LabPackage {
    /// Download real files over an emulated satellite path, without and with Midspan
    ///
    /// Clients connect to the server's own address. Midspan, on the gateway between them,
    /// intercepts the connections, and each end sees the other's own address. Midspan runs as
    /// installed, with the policy `auto`. The demo needs no configuration and changes nothing
    /// outside its own network namespaces. It works as root, and as an ordinary user if the kernel
    /// allows user namespaces. It takes two minutes, also on a machine that has other work.
    #[command(after_help = "Example:  midspan demo --html report.html")]
    Demo(DemoOptions),
    /// Run flows over a path of emulated links, with real kernels and the real proxy
    ///
    /// The path is the name of a built-in path (see `midspan paths`) or a path file
    /// (docs/path-file.md).
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "Examples:\n  midspan lab geo --against direct,haproxy,midspan --repetitions 3\n  \
                      midspan lab my-path.toml --html report.html\n  midspan lab geo --sweep \
                      'link.satellite.loss=0.1 %,1 %' --state runs.jsonl\n  midspan lab geo --trace \
                      cwnd,rtt,queue,rate --output-directory traces --html report.html\n  midspan lab verify"
    )]
    Lab(Box<LabOptions>),
    /// Run the flows of a path in virtual time, packet by packet
    ///
    /// Uses the same path files as the lab, without real kernels: deterministic, and thousands of
    /// times faster (docs/simulator.md describes the model).
    #[command(
        after_help = "Examples:\n  midspan sim geo-clean --json\n  midspan sim dsl --sweep \
                      'link.line.loss=0.01 %..10 %:7log' --repetitions 10 --csv\n  midspan sim \
                      dsl --sweep 'link.line.loss=0 %,1 %' --state part-0.jsonl --shard 0/4\n  midspan sim \
                      wifi --trace cwnd,queue --output-directory traces --pcap traces/wifi.pcap"
    )]
    Sim(SimOptions),
    /// Join the files of finished runs of several calls to one
    ///
    /// For the files and folders that `--state` of `midspan sim`, `lab` and other commands has written. The
    /// new file has the runs in the order of their keys. The same command with `--state` and this file
    /// then prints the results of all runs.
    #[command(after_help = "Example:  midspan merge --output all.jsonl part-0.jsonl part-1.jsonl")]
    Merge(MergeOptions),
    /// Print a paper's figures next to the results of its equations and of the simulator
    #[command(
        after_help = "Examples:\n  midspan reproduce bhole\n  midspan reproduce shikama \"figure \
                      10\" --quick --output-directory figures\n  midspan reproduce --all --bundle figures"
    )]
    Reproduce(ReproduceOptions),
    /// Compute what a proxy would gain on a path, where to put it, and how to set it
    ///
    /// The path is the name of a built-in path (see `midspan paths`) or a path file
    /// (docs/path-file.md). docs/plan.md describes the results.
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "Examples:\n  midspan plan geo\n  midspan plan my-path.toml --write-config midspan.toml\n  \
                      midspan plan place transatlantic"
    )]
    Plan(Box<PlanOptions>),
    /// Show the results of analysis, simulator and lab for a path side by side
    ///
    /// The lab takes as long as `midspan lab`; without the lab, the command takes a moment.
    #[command(after_help = "Example:  midspan compare geo-clean --without-lab")]
    Compare(CompareOptions),
    /// Test a proxy at every edge case of TCP and list the differences from no proxy
    ///
    /// Each case scripts both ends of a connection over real kernels, in its own network
    /// namespaces, without a proxy and with each selected proxy (docs/conformance.md).
    #[command(after_help = "Examples:\n  midspan conformance --quick\n  \
                      midspan conformance --against haproxy,nginx --only 'reset*'")]
    Conformance(ConformanceOptions),
    /// List the built-in paths
    Paths(Output),
    /// Write manual pages and completions, for the packages
    #[command(hide = true)]
    Manual(ManualOptions),
}

/// Options of `midspan demo`.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// How often each download runs each way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repetitions: u32,
    /// Let clients connect to the gateway instead of the server; for kernels that cannot intercept
    #[arg(long)]
    pub forward: bool,
    /// File of the report
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
    /// Measure the emulated links with independent clocks (ping, captures at both ends)
    #[command(after_help = "Example:  midspan lab verify --json")]
    Verify(VerifyOptions),
    /// Compare Midspan without hand-set values with direct connections and HAProxy on real paths
    ///
    /// Satellites, LTE, Wi-Fi, a long path and a LAN; pages, downloads and uploads; Midspan both
    /// just started and after an earlier transfer over the path. Shows for each target whether it
    /// is met. The machine must have no other work. Without --quick and --full it takes at most 45
    /// minutes.
    #[command(after_help = "Examples:\n  midspan lab paths --state runs.jsonl\n  \
                      midspan lab paths geo-1e-3 --transfers \"1 MB\",page --repetitions 6")]
    Paths(RealPathsOptions),
    /// Open a prompt inside a host of a path, or run a command there
    ///
    /// The links, the servers and the proxies of the case run meanwhile. They end with the prompt or the
    /// command, together with all programs that are still in the background. MIDSPAN_SERVER_ADDRESS and
    /// MIDSPAN_SERVER_PORT name the web server of the host's first flow, and MIDSPAN_URL is the URL of this
    /// flow's file. The exit status is that of the command.
    #[command(
        after_help = "Examples:\n  midspan lab shell geo\n  midspan lab shell geo --against midspan \
                      -- sh -c 'curl -o /dev/null $MIDSPAN_URL'\n  midspan lab shell geo --host server"
    )]
    Shell(ShellOptions),
}

/// Options of `midspan lab shell`.
#[derive(Debug, Args)]
pub struct ShellOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The host, by its name; the client of the first flow unless given
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// What runs on the proxy's node, as for `midspan lab PATH`
    #[arg(long, value_name = "CASE", default_value = "direct")]
    pub against: CaseKind,
    /// Another value for a key of the path file, as in `link.satellite.loss=1 %`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The command and its arguments, instead of a prompt
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// Options of `midspan lab paths`.
#[derive(Debug, Args)]
pub struct RealPathsOptions {
    /// Only this path, such as "geo-1e-3"
    #[arg(value_name = "ITEM")]
    pub item: Option<String>,
    /// Only these transfers, such as "1 MB"
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub transfers: Vec<String>,
    /// How often each case is measured; six give an interval of 95 %
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// A few points, in a few minutes; for a selected path, one transfer
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Every transfer on every path, 6 repetitions: hours
    #[arg(long)]
    pub full: bool,
    /// Find HAProxy's best hand-set values instead, with up to three runs of each: hours
    ///
    /// The congestion controls CUBIC and BBR, each with six initial windows towards the receiver.
    #[arg(long, conflicts_with_all = ["quick", "full", "by_hand", "html"])]
    pub grid: bool,
    /// Give HAProxy the best hand-set values of this state file of --grid
    #[arg(long, value_name = "FILE")]
    pub by_hand: Option<PathBuf>,
    /// Keep each finished run in this file; a second call continues from there
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Measure nothing more: show the results in the file
    #[arg(long, requires = "state")]
    pub only_finished: bool,
    /// Write a report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan lab PATH`.
#[derive(Debug, Args)]
pub struct LabRunOptions {
    /// Built-in path or path file
    #[arg(required = true, value_name = "PATH")]
    pub path: Option<String>,
    /// Ways to carry the connections, to be compared
    ///
    /// direct: plain routing. direct-bbr: the same, and servers send with BBR. haproxy: clients
    /// connect to HAProxy at the first proxy. pepsal: clients connect to the server, and PEPsal
    /// intercepts at each proxy; left out if it is not installed. midspan: clients connect to the
    /// server, and Midspan intercepts at each proxy. midspan-early: the same with the handshake
    /// `early`. midspan-forward: clients connect to Midspan at the first proxy, as with HAProxy; for
    /// kernels that cannot intercept, and as the fair comparison with HAProxy. thin: plain routing,
    /// and `midspan thin` on the clients' hosts. overlay: clients connect to Midspan at the first overlay
    /// node, which chooses the overlay route of each session. overlay-static=ROUTE: the same with one route,
    /// the nodes after the first one with "/" between them, or "here"; overlay-static=all: each route with
    /// at most three transit nodes. oracle: the same, and the best of them for each flow and repetition.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CASE",
        default_value = "direct,midspan"
    )]
    pub against: Vec<CaseKind>,
    /// Another value for a key of the path file, as in `link.satellite.loss=1 %`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Vary a value over a list or a range (given several times: over all combinations):
    /// link.satellite.loss='0.1 %,1 %' or link.satellite.delay='10 ms..300 ms:30' (COUNTlog for
    /// equal ratios)
    #[arg(long, value_name = "KEY=VALUES", conflicts_with = "html")]
    pub sweep: Vec<String>,
    /// Keep each finished run in this file; a second call continues from there
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Only the flows of these names
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub flows: Vec<String>,
    /// How often each flow runs in each case
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Seed of all random draws, instead of the path file's
    #[arg(long)]
    pub seed: Option<u64>,
    /// Most time that one transfer may take
    #[arg(long, default_value = "5 min", value_name = "TIME", value_parser = timeout)]
    pub timeout: TimeSpan,
    /// State whether Midspan's completion times are at most this multiple of HAProxy's
    #[arg(long, value_name = "RATIO")]
    pub at_most: Option<f64>,
    /// Write a report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write traces of these kinds of each run, with the columns of `midspan sim --trace`; with
    /// --html, also plots of them
    #[arg(long, value_delimiter = ',', value_name = "KIND", conflicts_with_all = ["sweep", "state"])]
    pub trace: Vec<LabTraceKind>,
    /// Shortest time between two samples of a trace, 1 ms to 10 s
    #[arg(long, value_name = "TIME", default_value = "10 ms", value_parser = trace_interval)]
    pub trace_interval: TimeSpan,
    /// Folder for the traces
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub output_directory: PathBuf,
    /// Write packet captures of each run, one for each end of each link; the names of case, run, node
    /// and link are inserted before the file extension
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "state"])]
    pub pcap: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Kinds of traces of `midspan lab PATH --trace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabTraceKind {
    /// cwnd, ssthresh and data in flight of the sending sockets
    Cwnd,
    /// Smoothed round-trip times of the sending sockets
    Rtt,
    /// Packets waiting in the queue of each link, the most of each interval
    Queue,
    /// Rate of the packets that come out of each link, in intervals of at least 100 ms
    Rate,
}

impl From<LabTraceKind> for Kind {
    fn from(kind: LabTraceKind) -> Self {
        match kind {
            LabTraceKind::Cwnd => Self::Cwnd,
            LabTraceKind::Rtt => Self::Rtt,
            LabTraceKind::Queue => Self::Queue,
            LabTraceKind::Rate => Self::Rate,
        }
    }
}

/// The time between two samples of a trace.
fn trace_interval(text: &str) -> Result<TimeSpan, String> {
    let interval: TimeSpan = text.parse().map_err(|error| format!("{error}"))?;
    let range = TimeSpan::from_milliseconds(1)..=TimeSpan::from_seconds(10);
    if range.contains(&interval) {
        Ok(interval)
    } else {
        Err(format!("between {} and {}", range.start(), range.end()))
    }
}

/// Options of `midspan sim`.
#[derive(Debug, Args)]
pub struct SimOptions {
    /// Built-in path or path file
    #[arg(value_name = "PATH")]
    pub path: String,
    /// What carries the flows, to be compared; direct and midspan unless given
    ///
    /// direct: plain routing. midspan: the proxies on the path of each flow. overlay: overlay nodes, which
    /// choose the route of each flow. overlay-static=ROUTE: overlay nodes with one route; ROUTE has the
    /// nodes after the ingress with "/" between them, or is "here". overlay-static=all: each route with at
    /// most three transit nodes. oracle: of these, the best one for each flow of each run. --each-run names
    /// the route.
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    pub against: Vec<Case>,
    /// Only the flows of these names
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub flows: Vec<String>,
    /// Seed of the first repetition, instead of the path file's; each next one has the next seed
    #[arg(long)]
    pub seed: Option<u64>,
    /// Another value for a key of the path file, as in `link.satellite.loss=1 %`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Vary a value over a list or a range (given several times: over all combinations):
    /// link.satellite.loss='0.1 %,1 %' or link.satellite.delay='10 ms..300 ms:30' (COUNTlog for
    /// equal ratios)
    #[arg(long, value_name = "KEY=VALUES")]
    pub sweep: Vec<String>,
    /// How often each point runs; means and their 95 % intervals are printed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repetitions: u32,
    /// Threads, instead of one for each core; the result is the same
    #[arg(long, value_name = "N")]
    pub threads: Option<u16>,
    /// Print comma-separated values, one line for each quantity at each point
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Write a page with figures, all runs and where they come from
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shard", "trace", "pcap"])]
    pub html: Option<PathBuf>,
    /// With --csv or --json: one line for each quantity of each run, with its seed, instead of means
    #[arg(long)]
    pub each_run: bool,
    /// Keep each finished run in this file or existing folder; a second call makes only the others
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "pcap"])]
    pub state: Option<PathBuf>,
    /// Make only this part of the runs, K from 0 to N - 1, and print no results; `midspan merge` joins
    /// the files of all parts
    #[arg(long, value_name = "K/N", requires = "state")]
    pub shard: Option<Shard>,
    /// Write traces of these kinds
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    pub trace: Vec<TraceKind>,
    /// Folder for the traces
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub output_directory: PathBuf,
    /// Write a packet capture of each case; the case's name is inserted before the file extension
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

impl SimOptions {
    /// Whether traces or captures are written.
    pub const fn traces(&self) -> bool {
        !self.trace.is_empty() || self.pcap.is_some()
    }
}

/// Options of `midspan merge`.
#[derive(Debug, Args)]
pub struct MergeOptions {
    /// Files and folders of finished runs; of two results of one run, that of the later file counts
    #[arg(required = true, value_name = "FILE")]
    pub stores: Vec<PathBuf>,
    /// The new file; it must not exist
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Print one JSON object instead of a sentence
    #[arg(long)]
    pub json: bool,
}

/// Kinds of traces of `midspan sim --trace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceKind {
    /// cwnd, ssthresh and data in flight, whenever they change
    Cwnd,
    /// Smoothed round-trip times, whenever they change
    Rtt,
    /// Segments as they are sent, ACKs as they arrive
    Sequence,
    /// Packets waiting in each queue after each arrival
    Queue,
    /// Rate of the packets that come out of each link, in intervals of 100 ms
    Rate,
    /// Dropped packets, and the place of each drop
    Drops,
    /// Size of a proxy's forward data, as a distribution
    Forward,
    /// Lengths of bursts on each leg, as a distribution
    Bursts,
}

impl From<Kind> for TraceKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Cwnd => Self::Cwnd,
            Kind::Rtt => Self::Rtt,
            Kind::Sequence => Self::Sequence,
            Kind::Queue => Self::Queue,
            Kind::Rate => Self::Rate,
            Kind::Drops => Self::Drops,
        }
    }
}

/// Options of `midspan reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceOptions {
    /// The paper, by its short name
    #[arg(required_unless_present = "all")]
    pub paper: Option<PaperName>,
    /// Only this table or figure, such as "figure 10"
    #[arg(value_name = "ITEM")]
    pub item: Option<String>,
    /// All papers
    #[arg(long, conflicts_with = "paper", requires = "bundle")]
    pub all: bool,
    /// Write a new folder with the data and the plot of every figure, the environment, and a page with
    /// the papers' claims next to the results
    #[arg(long, value_name = "DIR", conflicts_with_all = ["item", "lab", "html", "output_directory"])]
    pub bundle: Option<PathBuf>,
    /// Shorter simulations and fewer repetitions than the paper's; in the lab, a few points
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Measure on real kernels, in the lab
    ///
    /// Has the same requirements as `midspan lab`, and the machine must have no other work. Without
    /// --quick and --full it takes at most 45 minutes.
    #[arg(long)]
    pub lab: bool,
    /// In the lab, the paper's whole grid
    #[arg(long, requires = "lab")]
    pub full: bool,
    /// How often each case is measured in the lab; six give an interval of 95 %
    #[arg(long, requires = "lab", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Keep each finished measurement of the lab in this file; a second call continues from there
    #[arg(long, requires = "lab", value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Measure nothing more: show the results in the file
    #[arg(long, requires = "state")]
    pub only_finished: bool,
    /// Threads, instead of one for each core; the result is the same
    #[arg(long, value_name = "N")]
    pub threads: Option<u16>,
    /// Write the figures as SVG into this folder
    #[arg(long, value_name = "DIR")]
    pub output_directory: Option<PathBuf>,
    /// Write a report, with the figures that can be drawn
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
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
    /// ACE thinning and its alternatives
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

/// Options of `midspan conformance`.
#[derive(Debug, Args)]
pub struct ConformanceOptions {
    /// Proxies to test: midspan-forward, midspan-transparent, midspan-early, midspan-socks5,
    /// midspan-http, midspan-proxy-protocol, midspan-hops, midspan-hops-tls,
    /// midspan-hops-client-source, midspan-hops-early, haproxy, nginx; none for the scripts alone
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PROXY",
        default_value = "midspan-forward,midspan-transparent,midspan-early,midspan-socks5,\
                         midspan-http,midspan-proxy-protocol"
    )]
    pub against: Vec<String>,
    /// Only cases whose names match one of these patterns (* any text, ? any character)
    #[arg(long, value_delimiter = ';', value_name = "CASES")]
    pub only: Vec<String>,
    /// Most time that one step of a case may take; a slower step is a fault
    #[arg(long, default_value = "40 s", value_name = "TIME", value_parser = timeout)]
    pub timeout: TimeSpan,
    /// Only over IPv4
    #[arg(long, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Only over IPv6
    #[arg(long)]
    pub ipv6: bool,
    /// Less data, fewer sessions, shorter waits
    #[arg(long)]
    pub quick: bool,
    /// Cases that run at the same time, except those that need much of the machine
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// The build of Midspan to test, instead of this one
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// List the cases and run nothing
    #[arg(long)]
    pub list: bool,
    /// Print the table as Markdown, including the events at both ends without a proxy
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
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

/// Options of `midspan manual`.
#[derive(Debug, Args)]
pub struct ManualOptions {
    /// The folder of the documents, for the pages about files
    #[arg(long, value_name = "DIR", default_value = "docs")]
    pub documents: PathBuf,
    /// The date in the pages, such as 2026-01-31
    #[arg(long, value_name = "DATE")]
    pub date: String,
    /// The folder to write to; each package has its own folder below it
    #[arg(long, value_name = "DIR")]
    pub output_directory: PathBuf,
}
