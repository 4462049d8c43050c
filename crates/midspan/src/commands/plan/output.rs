//! Files that a command writes.

use std::path::Path;

use midspan_report::LinePlot;
use miette::IntoDiagnostic;

use crate::files;
use crate::plan_arguments::ResultOptions;

/// Writes a file and prints its name.
pub fn write(file: &Path, text: &str) -> miette::Result<()> {
    files::write_and_tell("written", file, text)
}

/// Writes the files of `--plot` and `--html`.
pub fn write_plot(
    options: &ResultOptions,
    plot: &LinePlot,
    report: impl FnOnce() -> midspan_report::Report,
) -> miette::Result<()> {
    if let Some(file) = &options.plot {
        write(file, &plot.to_svg().into_diagnostic()?)?;
    }
    if let Some(file) = &options.html {
        files::write_report(report(), file)?;
    }
    Ok(())
}
