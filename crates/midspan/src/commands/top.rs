//! `midspan top`: a live view of a running proxy.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use midspan_proxy::client::{self, Place};
use midspan_proxy::command::{Request, ask, find_socket};
use midspan_proxy::summary::{Query, Summary};
use midspan_relay::observation::SessionReport;
use midspan_top::filter::prefix;
use midspan_top::terminal::{self, Acted, Operator};
use midspan_top::view::{Action, Rows, View};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::Outcome;
use crate::observing_arguments::{ByName, TopOptions};
use crate::printing;

/// Seconds of a capture that a key begins.
const CAPTURE_SECONDS: u64 = 60;
/// How long a capture has to fail.
const CAPTURE_START: Duration = Duration::from_millis(700);
/// Time between the two answers that rates need.
const RATE_PAUSE: Duration = Duration::from_secs(1);
/// Columns of the text if there is no terminal.
const COLUMNS: u16 = 120;
/// Lines above and below the rows.
const OTHER_LINES: usize = 8;
/// Rows of the text.
const TEXT_ROWS: usize = 1000;

/// Shows the view, on the terminal or as text.
pub fn top(options: &TopOptions) -> Outcome {
    let socket = find_socket(options.socket.as_deref(), options.config.as_deref())?;
    let filter = match &options.client {
        Some(text) => Some(prefix(text).ok_or_else(|| {
            miette!(
                "\"{text}\" is not an address or prefix: 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32"
            )
        })?),
        None => None,
    };
    let view = View {
        rows: match options.by {
            ByName::Client => Rows::Clients,
            ByName::Session => Rows::Sessions,
            ByName::Listener => Rows::Listeners,
            ByName::Prefix => Rows::Prefixes,
            ByName::Ended => Rows::Ended,
        },
        sort: options.sort.into(),
        filter,
        has_colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        ..View::default()
    };
    let mut proxy = Proxy {
        place: Place::Socket(socket.clone()),
        socket,
        captures: Vec::new(),
    };
    let times = match (options.once, options.batch) {
        (true, _) => Some(1),
        (false, Some(times)) => Some(times),
        (false, None) if options.output.json => Some(u64::MAX),
        (false, None) => None,
    };
    let interval = Duration::from_secs(options.interval);
    if let Some(times) = times {
        return print(&mut proxy, view, times, interval, options.output.json);
    }
    if !std::io::stdout().is_terminal() {
        return Err(miette!(
            "standard output is not a terminal: use --once, --batch N or --json"
        ));
    }
    // Otherwise the reason would only be seen inside the view.
    proxy
        .summary(&view.query())
        .map_err(|said| miette!("{said}"))?;
    terminal::run(proxy, view, interval)
        .into_diagnostic()
        .wrap_err("cannot use the terminal")?;
    Ok(true)
}

/// Prints the view as text, or the answers as lines of JSON.
fn print(proxy: &mut Proxy, mut view: View, times: u64, interval: Duration, json: bool) -> Outcome {
    let mut summary = |view: &View| {
        let answer = proxy.summary(&view.query());
        answer.map_err(|said| miette!("{said}"))
    };
    // Rates need two answers.
    let first = summary(&view)?;
    let rate = first.totals.rate_to_client_bits_per_second;
    view.take(first);
    if rate.is_none() {
        std::thread::sleep(RATE_PAUSE);
    }
    for number in 0..times {
        if number > 0 {
            std::thread::sleep(interval);
        }
        let answer = summary(&view)?;
        if json {
            printing::line(serde_json::to_string(&answer).into_diagnostic()?);
        } else {
            view.take(answer);
            let width = columns();
            let rows = view.count().clamp(2, TEXT_ROWS);
            let height = u16::try_from(rows + OTHER_LINES).unwrap_or(u16::MAX);
            let text = terminal::text(&view, width, height).into_diagnostic()?;
            // The last line explains keys.
            let lines = text.trim_end().rsplit_once('\n');
            let lines = lines.map_or("", |(lines, _)| lines.trim_end());
            let end = if number + 1 < times { "\n" } else { "" };
            printing::line(format_args!("{lines}{end}"));
        }
        printing::finish().into_diagnostic()?;
    }
    Ok(true)
}

/// The columns of the terminal, or what `COLUMNS` sets.
pub fn columns() -> u16 {
    let set = std::env::var("COLUMNS").ok();
    let set = set.and_then(|columns| columns.parse().ok());
    set.or_else(terminal::width)
        .unwrap_or(COLUMNS)
        .clamp(40, 400)
}

/// The running proxy.
struct Proxy {
    place: Place,
    socket: PathBuf,
    /// Captures that this command has begun.
    captures: Vec<Child>,
}

impl Proxy {
    fn page(&self, target: &str) -> Result<String, String> {
        let (status, text) =
            client::get(self.place.clone(), target).map_err(|error| error.to_string())?;
        match status {
            200 => Ok(text),
            status => Err(format!("status {status}: {}", text.trim())),
        }
    }

    fn command(&self, request: &Request, done: String) -> Result<String, String> {
        let answer = ask(&self.socket, request).map_err(|error| error.to_string())?;
        match answer.ok {
            true => Ok(answer
                .notes
                .into_iter()
                .fold(done, |done, note| format!("{done}; {note}"))),
            false => Err(answer.error.unwrap_or_default()),
        }
    }

    /// Begins a capture by another process, which outlives this one.
    fn capture(&mut self, session: u64) -> Result<String, String> {
        self.captures
            .retain_mut(|capture| matches!(capture.try_wait(), Ok(None)));
        let output = new_file(session, "pcapng")?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(["capture", &session.to_string(), "--seconds"])
            .arg(CAPTURE_SECONDS.to_string())
            .arg("--socket")
            .arg(&self.socket)
            .arg("--output")
            .arg(&output)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the capture: {error}"))?;
        std::thread::sleep(CAPTURE_START);
        if let Ok(Some(status)) = child.try_wait()
            && !status.success()
        {
            let output = child
                .wait_with_output()
                .map_err(|error| error.to_string())?;
            let said = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = said.split_whitespace().collect();
            return Err(format!("no capture: {}", said.join(" ")));
        }
        self.captures.push(child);
        Ok(format!(
            "capturing session {session} for {CAPTURE_SECONDS} s into {}",
            output.display()
        ))
    }

    /// Writes the JSON of a session into a new file; the terminal may put it into the clipboard, too.
    fn copy(&self, session: u64) -> Result<Acted, String> {
        let json = self.page(&format!("/sessions/{session}"))?;
        let file = new_file(session, "json")?;
        let cannot = |error| format!("cannot write {}: {error}", file.display());
        let mut output = File::create_new(&file).map_err(cannot)?;
        output.write_all(json.as_bytes()).map_err(cannot)?;
        Ok(Acted {
            said: format!(
                "the JSON of session {session} is in {}, and in the clipboard if the terminal permits it",
                file.display()
            ),
            copied: Some(json),
        })
    }

    fn explain(&self, session: u64) -> Result<String, String> {
        let report = client::session(&self.place, session).map_err(|error| error.to_string())?;
        let report = report.ok_or_else(|| format!("session {session} has ended"))?;
        Ok(explained(&report))
    }
}

/// The name of a file of a session that does not exist yet.
fn new_file(session: u64, kind: &str) -> Result<PathBuf, String> {
    (0..1000)
        .map(|number| PathBuf::from(format!("session-{session}-{number}.{kind}")))
        .find(|file| !file.exists())
        .ok_or_else(|| format!("there are 1000 files session-{session}-*.{kind} already"))
}

/// What was decided for a session, in one line.
fn explained(report: &SessionReport) -> String {
    let leg = |name: &str, leg: &midspan_relay::observation::LegReport| {
        format!(
            "{name} {} ({})",
            leg.congestion_control.as_deref().unwrap_or("–"),
            leg.congestion_control_reason
                .as_deref()
                .unwrap_or("unknown")
        )
    };
    format!(
        "split by listener {}, handshake {}, start {}; {}, {}",
        report.listener,
        report.handshake,
        report.start.as_deref().unwrap_or("not chosen"),
        leg("client leg", &report.client_leg),
        leg("server leg", &report.server_leg),
    )
}

impl Operator for Proxy {
    fn summary(&mut self, query: &Query) -> Result<Summary, String> {
        let text = self.page(&format!("/summary?{query}"))?;
        serde_json::from_slice(text.as_bytes())
            .map_err(|error| format!("the answer is not of this version of Midspan: {error}"))
    }

    fn session(&mut self, id: u64) -> Result<Option<SessionReport>, String> {
        client::session(&self.place, id).map_err(|error| error.to_string())
    }

    fn act(&mut self, action: &Action) -> Result<Acted, String> {
        let said = match action {
            Action::Quit | Action::Refresh => Ok(String::new()),
            Action::Copy(session) => return self.copy(*session),
            Action::Capture(session) => self.capture(*session),
            Action::Explain(session) => self.explain(*session),
            Action::Bypass(client) => {
                let prefix = Some(client.to_string());
                let done = format!("bypassed: {client} (midspan bypass off {client} ends it)");
                self.command(&Request::BypassOn { prefix }, done)
            }
            Action::KickClient(client) => {
                let target = client.to_string();
                self.command(
                    &Request::Kick { target },
                    format!("sessions of {client} were reset"),
                )
            }
            Action::KickSession(session) => {
                let target = session.to_string();
                self.command(
                    &Request::Kick { target },
                    format!("session {session} was reset"),
                )
            }
        };
        said.map(Acted::from)
    }
}
