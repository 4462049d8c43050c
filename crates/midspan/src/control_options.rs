//! The options of all commands that ask a running proxy.

use std::path::PathBuf;

use clap::Args;

use crate::output_arguments::Output;

/// Selects the running proxy, and how its answer is printed.
#[derive(Debug, Args)]
pub struct ControlOptions {
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
