//! Options of `midspan overlay`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use midspan_proxy::registry::Endpoint;
use midspan_units::TimeSpan;

use crate::control_options::ControlOptions;
use crate::output_arguments::Output;
use crate::times::from_second_to_hour;

/// Options of `midspan overlay`.
#[derive(Debug, Args)]
pub struct OverlayOptions {
    /// What is shown.
    #[command(subcommand)]
    pub what: OverlayCommand,
}

/// What is shown of an overlay.
#[derive(Debug, Subcommand)]
pub enum OverlayCommand {
    /// Show the other nodes: whether they can be used, and what is measured of the legs to them
    #[command(after_help = "Example:  midspan overlay status --json")]
    Status(ControlOptions),
    /// Show each route to a destination with its predicted time, and which one is chosen
    ///
    /// The prediction is the completion time of a transfer of 1 MB (`transfer`). A route is a chain of
    /// overlay nodes.
    #[command(
        after_help = "Examples:\n  midspan overlay routes 203.0.113.7:443\n  midspan overlay routes \
                      www.example.org --client 192.0.2.7 --json"
    )]
    Routes(RoutesOptions),
    /// Write the members that etcd has to the file of members, again and again
    ///
    /// Each key under the prefix is a node: the rest of the key is its name, and the value has the other keys
    /// of a node in the file of members. A running Midspan reads the file when it changes. Nothing that
    /// happens to etcd or to this command concerns what runs: entries that are wrong, and a registry
    /// that is empty, change nothing.
    #[command(
        after_help = "Examples:\n  midspan overlay follow --etcd http://10.0.0.5:2379 --members \
                      /var/lib/midspan-members/members.toml\n  etcdctl put /midspan/nodes/fra \
                      'address = \"10.2.0.2:7704\"\n  security = \"network\"'"
    )]
    Follow(FollowArguments),
    /// Print the line of a node's key for the list of members, from the file with its private key
    ///
    /// With --generate, the command first writes a new private key to the file, which only its owner can read. It
    /// never writes over a file.
    #[command(
        after_help = "Examples:\n  midspan overlay key --generate /etc/midspan/overlay.key\n  midspan overlay \
                      key /etc/midspan/overlay.key"
    )]
    Key(KeyOptions),
    /// Simulate an overlay of hundreds of nodes, and compare the chosen routes with the best ones
    ///
    /// Each node chooses by the code of the proxy, and gets only what it would measure. The network is synthetic, or has
    /// the round trips of measured data: `--matrix` is a folder of `NetLatency-Data` (`Seattle`, `PlanetLab`), or one with
    /// Skyplane's `latency.csv` and `throughput.csv`. Losses, brownouts and outages are drawn. The same seed gives
    /// the same results.
    #[cfg(feature = "lab")]
    #[command(
        after_help = "Examples:\n  midspan overlay simulate --transit 10 --leaves 40 --rate 50 --duration 600s\n  midspan \
                      overlay simulate --matrix NetLatency-Data/Seattle --transit 20"
    )]
    Simulate(SimulateOptions),
    /// Simulate an overlay of hundreds of nodes, and compare the chosen routes with the best ones
    #[cfg(not(feature = "lab"))]
    #[command(disable_help_flag = true)]
    Simulate(crate::lab_package::PassedOn),
}

/// Options of `midspan overlay simulate`.
#[cfg(feature = "lab")]
#[derive(Debug, Args)]
pub struct SimulateOptions {
    /// The seed of all random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Transit nodes; of measured data, those with the smallest median round trip
    #[arg(long, value_name = "NUMBER", default_value_t = 30)]
    pub transit: usize,
    /// Leaves of a synthetic network, at which sessions begin and end
    #[arg(long, value_name = "NUMBER", default_value_t = 270)]
    pub leaves: usize,
    /// Exits to which each leaf sends sessions
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub exits: usize,
    /// Sessions that begin in a second
    #[arg(long, value_name = "NUMBER", default_value_t = 500.0, value_parser = session_rate)]
    pub rate: f64,
    /// How long sessions begin
    #[arg(long, value_name = "TIME", default_value = "1 h", value_parser = from_second_to_hour)]
    pub duration: TimeSpan,
    /// A folder with measured round trips
    #[arg(long, value_name = "FOLDER")]
    pub matrix: Option<PathBuf>,
    /// The format of the data; without it, the names of the files decide
    #[arg(long, value_name = "FORMAT", requires = "matrix")]
    pub format: Option<MatrixFormat>,
    /// How long a slice of the data lasts [default: 15.7 s for Seattle, 12 h for PlanetLab]
    #[arg(long, value_name = "TIME", requires = "matrix")]
    pub slice: Option<TimeSpan>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// A format of measured data.
#[cfg(feature = "lab")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MatrixFormat {
    /// `SeattleData_1`, …: round trips in seconds
    Seattle,
    /// `PlanetLabData_1`, …: round trips in milliseconds
    Planetlab,
    /// `latency.csv`, `throughput.csv`
    Skyplane,
}

#[cfg(feature = "lab")]
fn session_rate(text: &str) -> Result<f64, String> {
    let rate: Result<f64, _> = text.parse();
    rate.ok()
        .filter(|rate| (0.1..=100_000.0).contains(rate))
        .ok_or_else(|| "write a number of sessions from 0.1 to 100000".to_owned())
}

/// Options of `midspan overlay key`.
#[derive(Debug, Args)]
pub struct KeyOptions {
    /// The file with the private key (`private_key` in `[overlay]`)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a new private key to the file
    #[arg(long)]
    pub generate: bool,
}

/// Options of `midspan overlay follow`.
#[derive(Debug, Args)]
pub struct FollowArguments {
    /// An address of etcd; several are tried in turn
    #[arg(long, value_name = "URL", required = true, value_delimiter = ',')]
    pub etcd: Vec<Endpoint>,
    /// The file of members, which is replaced
    #[arg(long, value_name = "FILE")]
    pub members: PathBuf,
    /// The beginning of the keys of nodes
    #[arg(long, value_name = "KEY", default_value = "/midspan/nodes/", value_parser = key_prefix)]
    pub prefix: String,
    /// Time between two requests
    #[arg(long, value_name = "TIME", default_value = "5 s", value_parser = from_second_to_hour)]
    pub interval: TimeSpan,
    /// The user of etcd
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub user: Option<String>,
    /// The file with the password of this user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// Query etcd once and end
    #[arg(long)]
    pub once: bool,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

fn key_prefix(text: &str) -> Result<String, String> {
    match text.ends_with('/') {
        true => Ok(text.to_owned()),
        false => Err("the beginning of the keys ends with /".to_owned()),
    }
}

/// Options of `midspan overlay routes`.
#[derive(Debug, Args)]
pub struct RoutesOptions {
    /// The server: its address or name, and its port (443 if it is missing)
    #[arg(value_name = "DESTINATION")]
    pub destination: String,
    /// The client, whose exit may be fixed for an hour
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// Which proxy.
    #[command(flatten)]
    pub control: ControlOptions,
}
