//! Commands and options; their help texts are the reference.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use midspan_units::{BitRate, TimeSpan};

use crate::control_options::ControlOptions;
#[cfg(feature = "lab")]
use crate::lab_arguments::LabPackage;
#[cfg(not(feature = "lab"))]
use crate::lab_package::LabPackage;
use crate::observing_arguments::{
    BugreportOptions, CaptureOptions, ExplainOptions, LearnedOptions, TopOptions,
};
use crate::output_arguments::Output;
use crate::overlay_arguments::OverlayOptions;
use crate::printing::Verbosity;
use crate::thin_arguments::ThinOptions;
use crate::times::from_second_to_hour;

/// A TCP performance-enhancing proxy for Linux, and a lab that measures it.
#[derive(Debug, Parser)]
#[command(name = "midspan", version = env!("MIDSPAN_VERSION"), max_term_width = 100)]
#[command(after_help = "First try:  midspan demo")]
pub struct Arguments {
    /// How much is printed.
    #[command(flatten)]
    pub verbosity: VerbosityOptions,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How much is printed in addition to the results; options of every command.
#[derive(Debug, Args)]
pub struct VerbosityOptions {
    /// No progress and no notes; `midspan run` logs warnings and errors only
    #[arg(
        short,
        long,
        global = true,
        display_order = 900,
        conflicts_with = "verbose"
    )]
    pub quiet: bool,
    /// Name each step as it begins; `midspan run` logs details
    #[arg(short, long, global = true, display_order = 901)]
    pub verbose: bool,
}

impl VerbosityOptions {
    /// What the options select.
    pub const fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }
}

/// The configuration file of a gateway.
pub const CONFIGURATION: &str = "/etc/midspan/midspan.toml";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    #[command(after_help = "Examples:\n  midspan run\n  midspan run --config my.toml --dry-run")]
    Run(RunOptions),
    /// Write a first configuration for a gateway, and check it
    ///
    /// Midspan then intercepts the TCP connections that arrive at the interface, and sets itself up
    /// for each client (`policy = "auto"`). Without `--interface`, the command lists the interfaces
    /// of this machine. It never writes over a file.
    #[command(
        after_help = "Examples:\n  midspan init --interface eth1\n  midspan init --two-sided hub \
                      --interface sat0 --rate-up \"2 Mbit/s\" --rate-down \"20 Mbit/s\""
    )]
    Init(InitOptions),
    /// Test whether a configuration can run on this machine, and report what is missing
    ///
    /// Checks the file, the kernel, privileges, parameters, ports, marks and the firewall, and
    /// makes no lasting change. The exit status is 3 if something that the configuration needs is
    /// missing.
    #[command(
        after_help = "Examples:\n  midspan check\n  midspan check --config my.toml --rate 2000 --sessions 50000"
    )]
    Check(CheckOptions),
    /// The part of `midspan check` that tests the kernel; `midspan check` starts it
    #[command(hide = true)]
    CheckKernel {
        /// Configuration file
        config: PathBuf,
    },
    /// Show the state of a running proxy
    #[command(after_help = "Examples:\n  midspan status\n  midspan status --config FILE --json")]
    Status(ControlOptions),
    /// Let new connections pass a running proxy untouched, or list the bypasses
    ///
    /// Takes effect at once, for transparent listeners; existing sessions continue. A bypass stays
    /// in force until it is switched off. Without a state directory, it also ends with the proxy.
    #[command(
        after_help = "Examples:\n  midspan bypass on\n  midspan bypass on 192.0.2.0/24\n  \
                      midspan bypass off\n  midspan bypass"
    )]
    Bypass(BypassOptions),
    /// Give a listener of a running proxy no new connections, or end this
    ///
    /// New connections pass untouched (transparent listeners) or are refused. Existing sessions continue.
    /// With relay.lame_duck_time, /health?listener=NAME reports it first, while new connections are still
    /// accepted. It ends with `drain off`, or when Midspan starts again. With --clients, it applies at once, to
    /// clients with these prefixes only.
    #[command(
        after_help = "Examples:\n  midspan drain on web\n  midspan drain on web --clients \
                      192.0.2.0/24,2001:db8::/32\n  midspan drain off web\n  midspan drain off\n  \
                      midspan drain --json"
    )]
    Drain(DrainOptions),
    /// Show the clients and sessions of a running proxy, live
    ///
    /// Shows whether Midspan works, how much moves, which clients move it, and what holds each of them
    /// back. Keys sort, filter and freeze the rows, and capture, bypass or reset the selected one; ?
    /// shows them. Without a terminal: --once, --batch or --json (docs/top.md).
    #[command(
        after_help = "Examples:\n  midspan top\n  midspan top --once --by session --sort rtt\n  \
                      midspan top --client 192.0.2.0/24 --json"
    )]
    Top(TopOptions),
    /// Reset live sessions of a running proxy
    ///
    /// Resets the sessions whose client or server has the prefix, or the session with the number
    /// from `/sessions` or the log. Clients that have no session yet are reset too. New connections
    /// are still intercepted or accepted: refuse them first.
    #[command(
        after_help = "Examples:\n  midspan kick 192.0.2.7\n  midspan kick 2001:db8::/32\n  \
                            midspan kick 1234 --json"
    )]
    Kick(KickOptions),
    /// Explain what a running proxy decides for one connection, and how to change it
    ///
    /// Names the live sessions between client and server, and the decision for a new connection: by
    /// which listener it would be split, or why it would pass untouched.
    #[command(
        after_help = "Examples:\n  midspan explain 192.0.2.7 198.51.100.1:443\n  midspan explain \
                      2001:db8::7 '[2001:db8:1::1]:443' --json"
    )]
    Explain(ExplainOptions),
    /// List what a running proxy has learned about hosts and paths, or forget it
    ///
    /// For each peer the rate, the round-trip time, whether losses are random, and the initial window of
    /// the next connection; routes whose answers do not come back, and those that are left alone; what
    /// splitting gains. What is forgotten no longer counts for the next connection.
    #[command(
        after_help = "Examples:\n  midspan learned\n  midspan learned 192.0.2.0/24 --json\n  \
                      midspan learned --forget 192.0.2.7\n  midspan learned --forget --all"
    )]
    Learned(LearnedOptions),
    /// Show the overlay of a running proxy, or follow the registry of its nodes
    ///
    /// An overlay is several Midspans that carry sessions for each other (docs/overlay.md).
    #[command(
        after_help = "Examples:\n  midspan overlay status\n  midspan overlay routes 203.0.113.7:443"
    )]
    Overlay(OverlayOptions),
    /// Print what a report of a fault needs, with masked addresses and names of hosts
    ///
    /// Version, kernel, the state of the running Midspan, and what `midspan check` finds. Each address
    /// (IP, MAC) and each name of a host is replaced by a number, the same one wherever the address is
    /// the same. Changes and sends nothing.
    #[command(after_help = "Example:  midspan bugreport > report.md")]
    Bugreport(BugreportOptions),
    /// Remove the leftovers of a Midspan that was killed
    ///
    /// Removes rules, routes, tables and changed kernel parameters of `midspan run` and
    /// `midspan thin` in this network namespace, except those of a running Midspan. The next start
    /// does the same.
    #[command(after_help = "Example:  midspan cleanup")]
    Cleanup(Output),
    /// Reset connections that another gateway had before this one took over
    ///
    /// For a program that decides which of two gateways works, such as keepalived (docs/two-gateways.md). The other
    /// gateway had sessions whose packets now arrive here. For ten minutes, they are answered by a reset, so that
    /// clients begin again at once. Needs the key interception.takeover_reset, CAP_NET_ADMIN and the program nft, but
    /// no running Midspan. Repeated, the time begins again.
    #[command(
        after_help = "Examples:\n  midspan takeover\n  midspan takeover --time '2 min'\n  midspan takeover --end"
    )]
    Takeover(TakeoverOptions),
    /// Make a running proxy read its configuration file again; sessions continue
    ///
    /// The same as SIGHUP, but also prints what is wrong with the file.
    Reload(ControlOptions),
    /// Replace the program of a running proxy; sessions continue
    ///
    /// The proxy first tries the new program, and then executes it in the same process. Listeners, rules and live
    /// sessions move to it. If the program cannot take over, the running one continues, and the exit status is 1. The exit
    /// status is 3 if the running program is too old for this command.
    /// Without PROGRAM: the file that the running program was started from, which a package may have replaced. The
    /// configuration file is read again, so this also changes keys that need a restart otherwise (docs/upgrade.md).
    #[command(
        after_help = "Examples:\n  midspan upgrade\n  midspan upgrade /usr/local/bin/midspan"
    )]
    Upgrade(UpgradeOptions),
    /// Write the packets of both legs of one session to a pcapng file
    ///
    /// Needs CAP_NET_RAW, and the right to use the control socket of the running Midspan. `midspan top`
    /// shows the sessions with their numbers. Ends with the session, with Ctrl-C or at a limit.
    /// docs/observability.md describes how the capture distinguishes the legs.
    #[command(after_help = "Example:  midspan capture 17 --output legs.pcapng")]
    Capture(CaptureOptions),
    /// Send fewer ACKs through a narrow upstream
    ///
    /// Runs on the host or router with the narrow upstream, until a signal ends it; the other end
    /// needs no change. If it dies, all ACKs pass (docs/thin.md).
    #[command(
        after_help = "Examples:\n  midspan thin --interface ppp0\n  midspan thin \
                            --interface wan --upstream '64 kbit/s' --watch"
    )]
    Thin(ThinOptions),
    /// The unprivileged part of `midspan thin`; `midspan thin` starts it
    #[command(hide = true)]
    ThinWorker,
    /// The part of `midspan thin` that serves metrics
    #[command(hide = true)]
    ThinPages,
    /// The unprivileged part of `midspan run`; `midspan run` starts it
    #[command(hide = true)]
    Relay,
    /// The trial of a program before an upgrade; `midspan run` starts it
    #[command(hide = true)]
    UpgradeTrial,
    /// The commands of the package midspan-lab.
    #[command(flatten)]
    LabPackage(LabPackage),
}

/// Options of `midspan run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Configuration file (docs/configuration.md)
    #[arg(short, long, value_name = "FILE", default_value = CONFIGURATION)]
    pub config: PathBuf,
    /// Print the rules and routes that transparent listeners would set, and set nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write one byte to this descriptor and close it once connections are accepted
    #[arg(long, value_name = "DESCRIPTOR")]
    pub ready_fd: Option<i32>,
}

/// Options of `midspan upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeOptions {
    /// The new program
    #[arg(value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
    /// Which proxy.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `midspan init`.
#[derive(Debug, Args)]
pub struct InitOptions {
    /// An interface where clients are; a name may end in `*`. May be repeated
    #[arg(short, long, value_name = "INTERFACE")]
    pub interface: Vec<String>,
    /// Two proxies on one link.
    #[command(flatten)]
    pub link: TwoSidedOptions,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = CONFIGURATION)]
    pub output: PathBuf,
}

/// Options of `midspan init` for one of two proxies at both ends of a bad link.
#[derive(Debug, Args)]
pub struct TwoSidedOptions {
    /// The end of a bad link where this machine is; Midspan runs on both ends (docs/two-sided.md)
    #[arg(long, value_name = "END")]
    pub two_sided: Option<End>,
    /// Rate of the link from the terminal to the hub; without rates, Midspan finds them out
    #[arg(long, value_name = "RATE", requires_all = ["two_sided", "rate_down"])]
    pub rate_up: Option<BitRate>,
    /// Rate of the link from the hub to the terminal
    #[arg(long, value_name = "RATE", requires_all = ["two_sided", "rate_up"])]
    pub rate_down: Option<BitRate>,
    /// Round trip of the link, together with its rates
    #[arg(
        long,
        value_name = "TIME",
        default_value = "600 ms",
        requires = "rate_up"
    )]
    pub round_trip: TimeSpan,
}

/// An end of a bad link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum End {
    /// Where the clients are.
    Terminal,
    /// Where the servers are.
    Hub,
}

/// Options of `midspan check`.
#[derive(Debug, Args)]
pub struct CheckOptions {
    /// Configuration file (docs/configuration.md)
    #[arg(short, long, value_name = "FILE", default_value = CONFIGURATION)]
    pub config: PathBuf,
    /// Check whether this machine carries this many new connections a second
    #[arg(long, value_name = "NUMBER")]
    pub rate: Option<u32>,
    /// Check whether this machine carries this many sessions at a time
    #[arg(long, value_name = "NUMBER")]
    pub sessions: Option<u32>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan takeover`.
#[derive(Debug, Args)]
pub struct TakeoverOptions {
    /// Configuration file (docs/configuration.md)
    #[arg(short, long, value_name = "FILE", default_value = CONFIGURATION)]
    pub config: PathBuf,
    /// How long connections are reset
    #[arg(long, value_name = "TIME", default_value = "10 min", value_parser = from_second_to_hour)]
    pub time: TimeSpan,
    /// End this now
    #[arg(long, conflicts_with = "time")]
    pub end: bool,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan bypass`.
#[derive(Debug, Args)]
pub struct BypassOptions {
    /// Begin or end a bypass; without it, the bypasses are listed
    pub switch: Option<Switch>,
    /// Only connections from or to hosts with this prefix; without a prefix, all connections
    #[arg(value_name = "PREFIX", requires = "switch")]
    pub prefix: Option<String>,
    /// Which proxy.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `midspan drain`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// Begin or end to drain; without it, the drained listeners are listed
    pub switch: Option<Switch>,
    /// The listener's name; without it, `off` is for all drained listeners
    #[arg(
        value_name = "LISTENER",
        requires = "switch",
        required_if_eq("switch", "on")
    )]
    pub listener: Option<String>,
    /// Only clients with these prefixes, with commas between them
    #[arg(
        long,
        value_name = "PREFIX",
        value_delimiter = ',',
        requires = "listener"
    )]
    pub clients: Vec<String>,
    /// Which proxy.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// Options of `midspan kick`.
#[derive(Debug, Args)]
pub struct KickOptions {
    /// An address or prefix of clients or servers, or the number of a session
    #[arg(value_name = "PREFIX|SESSION")]
    pub target: String,
    /// Which proxy.
    #[command(flatten)]
    pub control: ControlOptions,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// From now on.
    On,
    /// No longer.
    Off,
}
