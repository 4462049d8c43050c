//! Arguments of the commands that begin with a configuration: `init`, `check` and `run`.

use std::path::PathBuf;

use clap::Args;

use crate::output_arguments::Output;

/// The configuration file of a gateway.
pub const CONFIGURATION: &str = "/etc/midspan/midspan.toml";

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

/// Options of `midspan init`.
#[derive(Debug, Args)]
pub struct InitOptions {
    /// An interface where clients are; a name may end in `*`. May be repeated
    #[arg(short, long, value_name = "INTERFACE")]
    pub interface: Vec<String>,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = CONFIGURATION)]
    pub output: PathBuf,
}

/// Options of `midspan check`.
#[derive(Debug, Args)]
pub struct CheckOptions {
    /// Configuration file (docs/configuration.md)
    #[arg(short, long, value_name = "FILE", default_value = CONFIGURATION)]
    pub config: PathBuf,
    /// Check whether the connection tracking table is large enough for this many new connections a
    /// second
    #[arg(long, value_name = "NUMBER")]
    pub rate: Option<u32>,
    /// How results are printed.
    #[command(flatten)]
    pub output: Output,
}
