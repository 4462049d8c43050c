//! `midspan thin`: fewer ACKs through a narrow upstream.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_thin::{
    PagesOptions, RunOptions, Settings, Status, Watcher, pages_main, run, worker_main,
};
use midspan_top::thin::{self, ThinView};
use miette::{IntoDiagnostic, miette};
use rustix::process::{Signal, getpid, kill_process};

use super::{Outcome, top};
use crate::printing;
use crate::thin_arguments::ThinOptions;

/// Time between two views, and between two lines of JSON, if none is set.
const VIEW_INTERVAL: Duration = Duration::from_secs(1);
const JSON_INTERVAL: Duration = Duration::from_millis(500);
/// Reports that may wait for the thread of the terminal. If it is stopped, it misses reports.
const REPORTS: usize = 8;
/// Lines of the text above and below the connections, and the least number of lines for these.
const OTHER_LINES: usize = 7;
const LEAST_ROWS: usize = 2;

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
    let is_live = options.watch && !options.json;
    if is_live && !std::io::stdout().is_terminal() {
        return Err(miette!(
            "standard output is not a terminal: use --once, --batch N or --json"
        ));
    }
    let view = ThinView::new(
        options.interface.clone(),
        options.policy.to_string(),
        options.upstream,
    );
    let times = if options.once { Some(1) } else { options.batch };
    let interval = |default: Duration| options.interval.unwrap_or(default);
    let mut screen = Screen::new(view.clone(), interval(VIEW_INTERVAL));
    let mut lines = Lines {
        view,
        json: options.json,
        interval: interval(if options.json {
            JSON_INTERVAL
        } else {
            VIEW_INTERVAL
        }),
        left: times,
        printed: None,
    };
    let is_printed = options.json || times.is_some();
    let watch: Option<&mut dyn Watcher> = match (is_live, is_printed) {
        (true, _) => Some(&mut screen),
        (false, true) => Some(&mut lines),
        (false, false) => None,
    };
    let result = run(RunOptions {
        settings,
        worker_arguments: vec!["thin-worker".to_owned()],
        pages: options.metrics.map(|listen| PagesOptions {
            listen,
            arguments: vec!["thin-pages".to_owned()],
        }),
        // Otherwise the output has only views, or only lines of JSON.
        ready: (watch.is_none()).then_some(&mut std::io::stdout()),
        watch,
    });
    screen.close();
    result.into_diagnostic()?;
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

/// Ends thinning as a signal of the operator does: the rules are removed first.
fn end() {
    // The process exists, and a process may send signals to itself.
    let _ = kill_process(getpid(), Signal::TERM);
}

/// The view on a terminal, in a thread of its own: a terminal that is stopped must not stop the helper,
/// which watches the worker.
#[derive(Debug)]
struct Screen {
    view: Option<ThinView>,
    interval: Duration,
    shown: Option<Instant>,
    thread: Option<(SyncSender<Status>, JoinHandle<()>)>,
}

impl Screen {
    const fn new(view: ThinView, interval: Duration) -> Self {
        Self {
            view: Some(view),
            interval,
            shown: None,
            thread: None,
        }
    }

    /// Restores the terminal.
    fn close(&mut self) {
        if let Some((reports, thread)) = self.thread.take() {
            drop(reports);
            // A panic has been printed, after the terminal was restored.
            let _ = thread.join();
        }
    }
}

fn show(reports: &Receiver<Status>, view: ThinView) {
    match thin::run(reports, view) {
        Ok(false) => {}
        Ok(true) => end(),
        Err(error) => {
            printing::note(format_args!("cannot use the terminal: {error}"));
            end();
        }
    }
}

impl Watcher for Screen {
    fn handle_status(&mut self, status: &Status) {
        if self
            .shown
            .is_some_and(|shown| shown.elapsed() < self.interval)
        {
            return;
        }
        self.shown = Some(Instant::now());
        // The terminal changes when the first report is there: before, errors are printed.
        if let Some(view) = self.view.take() {
            let (reports, received) = sync_channel(REPORTS);
            let thread = std::thread::Builder::new().name("terminal".to_owned());
            match thread.spawn(move || show(&received, view)) {
                Ok(thread) => self.thread = Some((reports, thread)),
                Err(error) => {
                    printing::note(format_args!("cannot show the view: {error}"));
                    end();
                }
            }
        }
        if let Some((reports, _)) = &self.thread {
            let _ = reports.try_send(status.clone());
        }
    }
}

/// The view as text, or reports as lines of JSON.
#[derive(Debug)]
struct Lines {
    view: ThinView,
    json: bool,
    interval: Duration,
    /// How often to print; `None`: until thinning ends.
    left: Option<u64>,
    printed: Option<Instant>,
}

impl Watcher for Lines {
    fn handle_status(&mut self, status: &Status) {
        let is_first = self.printed.is_none();
        let is_early = (self.printed).is_some_and(|printed| printed.elapsed() < self.interval);
        if self.left == Some(0) || is_early {
            return;
        }
        self.printed = Some(Instant::now());
        if self.json {
            if let Ok(line) = serde_json::to_string(status) {
                printing::line(line);
            }
        } else {
            self.view.take(status.clone());
            // Rates need two reports.
            if is_first {
                return;
            }
            let rows = self.view.rows().len().max(LEAST_ROWS);
            let height = u16::try_from(rows + OTHER_LINES).unwrap_or(u16::MAX);
            if let Ok(text) = thin::text(&self.view, top::columns(), height) {
                // The last line explains keys.
                let lines = text.trim_end().rsplit_once('\n');
                printing::line(lines.map_or("", |(lines, _)| lines.trim_end()));
            }
        }
        let is_written = printing::finish().is_ok();
        self.left = self.left.map(|left| left.saturating_sub(1));
        if self.left == Some(0) || !is_written {
            self.left = Some(0);
            end();
        }
    }
}
