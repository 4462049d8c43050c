//! Options of every command that prints results.

use clap::Args;

/// How results are printed.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}
