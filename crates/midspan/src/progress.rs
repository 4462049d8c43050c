//! A progress bar on standard error, hidden where that is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts steps and names the one under way.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of so many steps.
    pub fn new(steps: u64) -> Self {
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
    }

    /// A step is done.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// A line above the bar; on a stream that is no terminal, a line of its own.
    pub fn say(&self, line: &str) {
        if self.0.is_hidden() {
            eprintln!("{line}");
        } else {
            self.0.println(line);
        }
    }

    /// All is done.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Says what is being worked on where the number of steps is not known.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Shows it after a moment.
    pub fn new() -> Self {
        let spinner = ProgressBar::new_spinner();
        spinner.enable_steady_tick(Duration::from_millis(200));
        Self(spinner)
    }

    /// The next piece of work begins.
    pub fn say(&self, step: &str) {
        self.0.set_message(step.to_owned());
    }

    /// All is done.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
