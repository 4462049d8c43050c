//! Options of `midspan overlay`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::control_options::ControlOptions;

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
    /// Print the line of a node's key for the list of members, from the file with its private key
    ///
    /// With --generate, the command first writes a new private key to the file, which only its owner can read. It
    /// never writes over a file.
    #[command(
        after_help = "Examples:\n  midspan overlay key --generate /etc/midspan/overlay.key\n  midspan overlay \
                      key /etc/midspan/overlay.key"
    )]
    Key(KeyOptions),
}

/// Options of `midspan overlay key`.
#[derive(Debug, Args)]
pub struct KeyOptions {
    /// The file with the private key (`private_key` in [overlay])
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a new private key to the file
    #[arg(long)]
    pub generate: bool,
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
