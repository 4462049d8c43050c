//! Options of the commands that observe a running proxy: top, explain, learned, capture, bugreport.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use midspan_proxy::summary::{By, Sort};

use crate::output_arguments::Output;

/// Options of `midspan top`.
#[derive(Debug, Args)]
pub struct TopOptions {
    /// The configuration file of the proxy, which may name its control socket
    #[arg(short, long, value_name = "FILE", conflicts_with = "socket")]
    pub config: Option<PathBuf>,
    /// The control socket of the proxy
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print the view once, as text
    #[arg(long, conflicts_with = "batch")]
    pub once: bool,
    /// Print the view this many times, as text
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Time between two answers
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Show each client with all its sessions, each session, each listener, each client prefix whose rates are
    /// limited, or the sessions that have ended while the view is open
    #[arg(long, value_name = "ROWS", default_value = "client")]
    pub by: ByName,
    /// Show the largest of these first
    #[arg(long, value_name = "ORDER", default_value = "rate")]
    pub sort: SortName,
    /// Only clients with this prefix, such as 192.0.2.0/24
    #[arg(long, value_name = "PREFIX")]
    pub client: Option<String>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ByName {
    /// A client
    Client,
    /// A session
    Session,
    /// A listener
    Listener,
    /// A client prefix whose rates are limited
    Prefix,
    /// A session that has ended
    Ended,
}

impl From<ByName> for By {
    fn from(name: ByName) -> Self {
        match name {
            ByName::Client => Self::Client,
            ByName::Session => Self::Session,
            ByName::Listener => Self::Listener,
            ByName::Prefix => Self::Prefix,
            ByName::Ended => Self::Ended,
        }
    }
}

/// The order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortName {
    /// Bit/s in both directions
    Rate,
    /// Bytes in both directions
    Bytes,
    /// The round-trip time of the client leg
    Rtt,
    /// The share of retransmitted bytes
    Retransmitted,
    /// The number of sessions; of sessions, their age
    Sessions,
}

impl From<SortName> for Sort {
    fn from(name: SortName) -> Self {
        match name {
            SortName::Rate => Self::Rate,
            SortName::Bytes => Self::Bytes,
            SortName::Rtt => Self::Rtt,
            SortName::Retransmitted => Self::Retransmitted,
            SortName::Sessions => Self::Sessions,
        }
    }
}

/// Options of `midspan bugreport`.
#[derive(Debug, Args)]
pub struct BugreportOptions {
    /// The configuration file to check, which may name the control socket of the proxy
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The control socket of the proxy
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Options of `midspan explain`.
#[derive(Debug, Args)]
pub struct ExplainOptions {
    /// The client
    #[arg(value_name = "CLIENT")]
    pub client: IpAddr,
    /// The server and its port
    #[arg(value_name = "SERVER:PORT")]
    pub server: SocketAddr,
    /// The configuration file of the proxy, which may name its control socket
    #[arg(short, long, value_name = "FILE", conflicts_with = "socket")]
    pub config: Option<PathBuf>,
    /// The control socket of the proxy
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan learned`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("meant").args(["prefix", "all"]))]
pub struct LearnedOptions {
    /// Only about clients and servers with this prefix, such as 192.0.2.0/24
    #[arg(value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// Forget it: the next connection begins as the first one did. Needs PREFIX or --all
    #[arg(long, requires = "meant")]
    pub forget: bool,
    /// With --forget: everything
    #[arg(long, requires = "forget")]
    pub all: bool,
    /// The configuration file of the proxy, which may name its control socket
    #[arg(short, long, value_name = "FILE", conflicts_with = "socket")]
    pub config: Option<PathBuf>,
    /// The control socket of the proxy
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}

/// Options of `midspan capture`.
#[derive(Debug, Args)]
pub struct CaptureOptions {
    /// Number of the session
    pub session: u64,
    /// The configuration file of the running Midspan, which may name its control socket
    #[arg(short, long, value_name = "FILE", conflicts_with = "socket")]
    pub config: Option<PathBuf>,
    /// The control socket of the running Midspan
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Address of the admin listener of the running Midspan, instead of the control socket
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["config", "socket"])]
    pub admin: Option<SocketAddr>,
    /// File to write [default: session-NUMBER.pcapng]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Stop after this time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seconds: Option<u64>,
    /// Stop after this many packets
    #[arg(long, default_value_t = 1_000_000, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub packets: u64,
    /// Bytes to keep of each packet, from its IP header on
    #[arg(long, default_value_t = midspan_proxy::capture::SNAP_LIMIT as u64, value_name = "BYTES",
          value_parser = clap::value_parser!(u64).range(40..=midspan_proxy::capture::SNAP_LIMIT as u64))]
    pub snap: u64,
    /// Interface of the client leg, if it differs from the one in the routing table
    #[arg(long, value_name = "INTERFACE")]
    pub client_interface: Option<String>,
    /// Interface of the server leg, if it differs from the one in the routing table
    #[arg(long, value_name = "INTERFACE")]
    pub server_interface: Option<String>,
}
