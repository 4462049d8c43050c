//! A progress bar on standard error, hidden if that is not a terminal.

use std::time::Duration;

use indicatif::ProgressBar;
#[cfg(feature = "lab")]
use indicatif::ProgressStyle;

use crate::printing::{self, Verbosity};

/// A bar that counts steps and names the current one.
#[cfg(feature = "lab")]
pub struct Bar(ProgressBar);

#[cfg(feature = "lab")]
impl Bar {
    /// A bar with this number of steps.
    pub fn new(steps: u64) -> Self {
        if printing::verbosity() == Verbosity::Quiet {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(steps);
        let template = "{bar:30} {pos}/{len}  {elapsed_precise}  {wide_msg}";
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    /// The next step begins.
    pub fn next(&self, name: &str) {
        // The first call starts the first step: nothing is done yet.
        if !self.0.message().is_empty() {
            self.0.inc(1);
        }
        self.0.set_message(name.to_owned());
        if printing::verbosity() == Verbosity::Verbose {
            self.say(name);
        }
    }

    /// A step is complete.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// A line above the bar; on a stream that is not a terminal, a separate line.
    pub fn say(&self, line: &str) {
        if self.0.is_hidden() {
            printing::note(line);
        } else {
            self.0.println(line);
        }
    }

    /// All steps are complete.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Shows the current work if the number of steps is unknown.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Shows the work after a moment.
    pub fn new() -> Self {
        if printing::verbosity() == Verbosity::Quiet {
            return Self(ProgressBar::hidden());
        }
        let spinner = ProgressBar::new_spinner();
        spinner.enable_steady_tick(Duration::from_millis(200));
        Self(spinner)
    }

    /// The next piece of work begins.
    pub fn say(&self, step: &str) {
        self.0.set_message(step.to_owned());
        if printing::verbosity() != Verbosity::Verbose {
            return;
        }
        if self.0.is_hidden() {
            printing::note(step);
        } else {
            self.0.println(step);
        }
    }

    /// All steps are complete.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
