//! Options of `midspan thin`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use midspan_thin::PolicyChoice;
use midspan_units::BitRate;

/// Options of `midspan thin`.
#[derive(Debug, Args)]
pub struct ThinOptions {
    /// Interface towards the narrow upstream
    #[arg(short, long, value_name = "NAME")]
    pub interface: String,
    /// Which ACKs leave: ace (5 packets per ACK, up to 16 if the upstream limits), ace:MAX,
    /// ace-adaptive, ace-adaptive:MAX (at most MAX packets per ACK), fda:N (each Nth), filter (needs
    /// --upstream), pass (all)
    #[arg(long, value_name = "POLICY", default_value = "ace")]
    pub policy: PolicyChoice,
    /// Rate of the upstream, such as '64 kbit/s': for `filter`, and for the share that --watch
    /// shows
    #[arg(long, value_name = "RATE", required_if_eq("policy", "filter"))]
    pub upstream: Option<BitRate>,
    /// Let ACKs go before data in the interface's queue, for hosts that upload while they download
    /// (sets HTB with two classes; needs --upstream)
    #[arg(long, requires = "upstream")]
    pub ack_first: bool,
    /// Show the savings of each connection, live, with keys as in `midspan top`
    #[arg(long)]
    pub watch: bool,
    /// Print the view once, as text, and end
    #[arg(long, conflicts_with_all = ["batch", "watch"])]
    pub once: bool,
    /// Print the view this many times, as text (with --json: this many lines), and end
    #[arg(long, value_name = "N", conflicts_with = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Time between two views, or lines of JSON [default: 1; with --json 0.5]
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<Duration>,
    /// Serve `GET /metrics` (OpenMetrics) and `GET /status` (JSON) at this loopback address, such
    /// as 127.0.0.1:9465
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Print the rules that would be set, and set nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Number of the packet queue; no other program may use it [default: the first free one from 5317
    /// to 5380]
    #[arg(long, value_name = "NUMBER")]
    pub queue: Option<u16>,
    /// Most connections at a time; ACKs of further connections pass
    #[arg(long, value_name = "COUNT", default_value_t = 4096,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub flows: usize,
    /// Print reports as lines of JSON
    #[arg(long)]
    pub json: bool,
}

/// A time of at least a tenth of a second, which is how often there is a report.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("between 0.1 and 3600 seconds".to_owned()),
    }
}
