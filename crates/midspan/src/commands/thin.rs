//! `midspan thin`: fewer ACKs through a narrow upstream.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use midspan_thin::{
    PagesOptions, RunOptions, Settings, Status, Watcher, pages_main, run, worker_main,
};
use midspan_units::BitRate;
use miette::IntoDiagnostic;

use super::Outcome;
use crate::printing;
use crate::thin_arguments::ThinOptions;

/// How often the display changes.
const REFRESH: Duration = Duration::from_millis(500);

/// The helper.
pub fn thin(options: &ThinOptions) -> Outcome {
    let settings = Settings {
        policy: options.policy,
        upstream: options.upstream,
        ack_first: options.ack_first,
        queue: options.queue,
        flows: options.flows,
        ..Settings::new(&options.interface)
    };
    if options.dry_run {
        printing::text(midspan_thin::describe_rules(&settings).into_diagnostic()?);
        return Ok(true);
    }
    let mut display = Display {
        upstream: options.upstream,
        json: options.json,
        shown: None,
        refreshes: std::io::stdout().is_terminal(),
    };
    run(RunOptions {
        settings,
        worker_arguments: vec!["thin-worker".to_owned()],
        pages: options.metrics.map(|listen| PagesOptions {
            listen,
            arguments: vec!["thin-pages".to_owned()],
        }),
        // With `--json`, the output has only JSON lines.
        ready: (!options.json).then_some(&mut std::io::stdout()),
        watch: (options.watch || options.json).then_some(&mut display as &mut dyn Watcher),
    })
    .into_diagnostic()?;
    Ok(true)
}

/// The worker; the helper starts it.
pub fn worker() -> Outcome {
    worker_main().into_diagnostic()?;
    Ok(true)
}

/// The process that serves metrics; the helper starts it.
pub fn pages() -> Outcome {
    pages_main().into_diagnostic()?;
    Ok(true)
}

/// The display of `--watch`.
#[derive(Debug)]
struct Display {
    upstream: Option<BitRate>,
    /// Print a line for each report instead.
    json: bool,
    shown: Option<Instant>,
    /// On a terminal, each picture replaces the last one.
    refreshes: bool,
}

impl Watcher for Display {
    fn handle_status(&mut self, status: &Status) {
        if self.shown.is_some_and(|shown| shown.elapsed() < REFRESH) {
            return;
        }
        self.shown = Some(Instant::now());
        if self.json {
            if let Ok(line) = serde_json::to_string(status) {
                let _ = writeln!(std::io::stdout(), "{line}");
            }
            return;
        }
        let mut picture = midspan_thin::describe_status(status, self.upstream);
        if self.refreshes {
            // Move to the corner; each line and the rest of the screen are cleared (ECMA-48: CUP, EL, ED).
            picture = format!("\x1b[H{}\x1b[J", picture.replace('\n', "\x1b[K\n"));
        }
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(picture.as_bytes());
        let _ = output.flush();
    }
}
