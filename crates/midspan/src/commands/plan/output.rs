//! Files that a command writes.

use std::path::Path;

use midspan_report::LinePlot;
use miette::{Context, IntoDiagnostic};

use crate::plan_arguments::ResultOptions;
use crate::printing;

/// Writes a file and prints its name.
pub fn write(file: &Path, text: &str) -> miette::Result<()> {
    std::fs::write(file, text)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot write {}", file.display()))?;
    printing::note(format_args!("written: {}", file.display()));
    Ok(())
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
        write(file, &report().to_html().into_diagnostic()?)?;
    }
    Ok(())
}
