//! The view as lines and a table, for at least 80 columns and 24 lines.

use midspan_proxy::summary::{DrainedClients, LegsSummary, ServerRow, Summary};
use midspan_relay::observation::{LegReport, SessionReport};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::numbers::{UNKNOWN, age, bars, bytes, count, milliseconds, per_second, percent, rate};
use crate::view::{Rows, View};

mod rows;
pub(crate) mod table;

use rows::{draw_rows, limit_name};

/// Lines above the rows, without the line of the gain.
const HEAD_LINES: u16 = 5;
/// Lines of one session.
const SESSION_LINES: u16 = 7;
/// Columns from which rows of clients have their START, and the gain needs no line of its own.
const WIDE: u16 = 120;

const KEYS: &str = "[c]lients [s]essions [l]isteners [e]nded [a]lone [o]rder [/]filter [?]help [q]";

const HELP: &str = "\
c  clients      s  sessions      l  listeners      e  sessions that have ended
a  what is left alone, and why      r  limited rates of client prefixes
Enter  sessions of the client, or one session      Esc  back
o  next order: rate, bytes, rtt, retransmitted, sessions
/  only clients of a prefix, as in 192.0.2. or 2001:db8::/32
space  freeze: the rows no longer change        q  quit

p  capture the packets of the session into a file, for a minute
x  explain the decision for the session
y  copy the JSON of the session: into a file, and into the clipboard
b  bypass the client: its new connections pass untouched
K  kick: reset the session, or all sessions of the client

HELD BY: what holds back the direction with more data
  link             as much data is on the way as the link takes
  loss             losses without a queue keep the congestion window small
  client's window  the client does not take more (in an upload, the server)
  server           the server has nothing to send (in an upload, the client)
  our buffer       Midspan's send buffer

                     any key: back";

/// Draws the view.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    if view.is_help {
        frame.render_widget(Paragraph::new(HELP), area);
        return;
    }
    let of_session = match view.session {
        Some(_) => SESSION_LINES,
        None => 0,
    };
    let parts = Layout::vertical([
        Constraint::Length(HEAD_LINES + u16::from(area.width < WIDE)),
        Constraint::Min(3),
        Constraint::Length(of_session),
        Constraint::Length(1),
    ]);
    let [head, rows, session, last] = parts.areas(area);
    match &view.summary {
        Some(summary) => {
            frame.render_widget(Paragraph::new(head_lines(view, summary, area.width)), head);
            draw_rows(frame, rows, view, summary);
        }
        None => {
            let waiting = view.failure.as_deref().unwrap_or("waiting for Midspan");
            frame.render_widget(Paragraph::new(waiting), head.union(rows));
        }
    }
    if view.session.is_some() {
        let lines = session_lines(view);
        frame.render_widget(Paragraph::new(lines), session);
    }
    frame.render_widget(Paragraph::new(last_line(view)), last);
}

fn style(view: &View, colour: Color) -> Style {
    match view.has_colour {
        true => Style::new().fg(colour),
        false => Style::new(),
    }
}

fn head_lines(view: &View, summary: &Summary, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![title(view, summary), sessions_line(view, summary).into()];
    lines.push(rates_line(view, summary).into());
    let (legs, gain) = (legs_line(summary), gain_line(summary));
    if width < WIDE {
        lines.extend([legs.into(), gain.into()]);
    } else {
        lines.push(format!("{legs}   {gain}").into());
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    lines.push(Line::styled(selection(view, summary), bold));
    lines
}

/// The state of the proxy.
fn title(view: &View, summary: &Summary) -> Line<'static> {
    let state = &summary.state;
    let word = state.state.to_uppercase();
    let colour = match state.state.as_str() {
        "running" => Color::Green,
        _ => Color::Red,
    };
    let mut about = format!(
        "  up {}  reloads {}",
        age(seconds(state.uptime_seconds)),
        state.reloads
    );
    if state.reloads_failed > 0 {
        about += &format!(" ({} failed)", state.reloads_failed);
    }
    if !state.passing.is_empty() {
        about += &format!("  untouched because of: {}", state.passing.join(", "));
    }
    about += &match state.bypassed_prefixes {
        0 => "  bypass: none".to_owned(),
        prefixes => format!("  bypass: {prefixes} prefixes"),
    };
    about += &drained(&summary.drained_clients);
    about += &state
        .late_threads
        .iter()
        .map(|late| format!("  {late}"))
        .collect::<String>();
    Line::from(vec![
        format!("midspan {}  ", summary.version).into(),
        Span::styled(word, style(view, colour).add_modifier(Modifier::BOLD)),
        about.into(),
    ])
}

/// The clients that are drained: the prefix if it is the only one, and how many sessions are left.
fn drained(rows: &[DrainedClients]) -> String {
    let left: u64 = rows.iter().filter_map(|row| row.sessions).sum();
    let left = count(left);
    match rows {
        [] => String::new(),
        [row] => format!(
            "  drained at {}: {} ({left} left)",
            row.listener, row.clients
        ),
        rows => format!("  drained: {} prefixes ({left} left)", rows.len()),
    }
}

fn sessions_line(view: &View, summary: &Summary) -> String {
    let totals = &summary.totals;
    let mut sessions = format!(
        "sessions {} (new {})  refused {}",
        count(totals.sessions),
        of_counter(view, summary, |of| of.totals.opened),
        of_counter(view, summary, |of| of.totals.refused + of.totals.shed),
    );
    if totals.untouched.is_some() {
        let untouched = of_counter(view, summary, untouched);
        sessions += &format!("  left alone {untouched}");
    }
    sessions += &format!("  memory {}", bytes(totals.memory_used_bytes));
    if let Some(budget) = totals.memory_budget_bytes {
        sessions += &format!("/{}", bytes(budget));
    }
    sessions
}

fn rates_line(view: &View, summary: &Summary) -> String {
    let totals = &summary.totals;
    let flow = |name: &str, now: Option<u64>, history: Vec<u64>| {
        format!("{name} {:<16} {:<12}", bars(history), rate(now))
    };
    let history = |which: fn(&(u64, u64)) -> u64| view.history.iter().map(which).collect();
    let text = format!(
        "{}  {}",
        flow(
            "to clients",
            totals.rate_to_client_bits_per_second,
            history(|pair| pair.0)
        ),
        flow(
            "to servers",
            totals.rate_to_server_bits_per_second,
            history(|pair| pair.1)
        ),
    );
    text.trim_end().to_owned()
}

/// What splitting gains, by size of the transfer.
fn gain_line(summary: &Summary) -> String {
    let gain: Vec<String> = summary
        .gain
        .iter()
        .map(|gain| {
            let size = gain.up_to_bytes.map_or_else(|| "more".to_owned(), size);
            format!("{size} ×{:.2}", gain.ratio)
        })
        .collect();
    match gain.is_empty() {
        true => "gain not measured yet".to_owned(),
        false => format!("GAIN {}", gain.join("  ")),
    }
}

fn legs_line(summary: &Summary) -> String {
    let legs = |name: &str, legs: &LegsSummary| {
        format!(
            "{name} rtt {}/{} ms again {}",
            milliseconds(legs.rtt_median_seconds),
            milliseconds(legs.rtt_95_seconds),
            percent(legs.retransmitted_ratio)
        )
    };
    format!(
        "{}   {}",
        legs("client legs", &summary.legs.client),
        legs("server legs", &summary.legs.server)
    )
}

/// What is shown: rows, order, filter.
fn selection(view: &View, summary: &Summary) -> String {
    let matched = &summary.matched;
    let mut text = match (view.rows, view.client) {
        (Rows::Clients, _) => format!("{} clients", count(matched.clients)),
        (Rows::Sessions, Some(client)) => {
            format!("{} sessions of {client}", count(matched.sessions))
        }
        (Rows::Sessions, None) => format!("{} sessions", count(matched.sessions)),
        (Rows::Listeners, _) => {
            let selected = summary.listeners.get(view.selected);
            let servers = selected.map_or(&[][..], |row| &row.servers);
            let servers: Vec<String> = servers.iter().map(server).collect();
            let mut text = format!("{} listeners", summary.listeners.len());
            if !servers.is_empty() {
                text += &format!("   servers: {}", servers.join(", "));
            }
            text
        }
        (Rows::Prefixes, _) => match summary.prefixes.len() {
            0 => "no client prefix, or no rate of clients is limited".to_owned(),
            number => format!("{number} client prefixes"),
        },
        (Rows::Ended, _) => {
            let mut text = format!(
                "{} sessions that have ended, the newest first",
                view.count()
            );
            if let Some(filter) = view.filter {
                text += &format!("   filter: {filter}");
            }
            return text;
        }
        (Rows::Untouched, _) => {
            let routes = summary.totals.routes_left_alone;
            return format!(
                "connections that pass untouched; routes where splitting did not help: {routes}"
            );
        }
    };
    text += &format!("   order: {}", view.sort.name());
    if let Some(filter) = view.filter {
        text += &format!("   filter: {filter}");
    }
    if view.is_frozen {
        text += "   FROZEN";
    }
    if !summary.complete {
        text += "   a thread of the relay did not answer";
    }
    text
}

/// A server of the selected listener: its state and its sessions, and how many checks have failed.
fn server(row: &ServerRow) -> String {
    let mut text = format!("{} {} {}", row.server, row.state, count(row.sessions));
    if row.failed_checks > 0 {
        text += &format!(" ({} checks failed)", count(row.failed_checks));
    }
    text
}

#[allow(clippy::cast_precision_loss)]
fn seconds(whole: u64) -> f64 {
    whole as f64
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1_000_000 => format!("{} MB", bytes / 1_000_000),
        bytes => format!("{} KB", bytes / 1000),
    }
}

fn untouched(summary: &Summary) -> u64 {
    let all = summary.totals.untouched.as_ref();
    all.map_or(0, |all| all.values().sum())
}

/// How much a counter grows in a second.
fn of_counter(view: &View, summary: &Summary, counter: fn(&Summary) -> u64) -> String {
    growth(view, summary, counter).map_or_else(|| UNKNOWN.to_owned(), per_second)
}

fn growth(view: &View, summary: &Summary, counter: impl Fn(&Summary) -> u64) -> Option<f64> {
    let before = view.before.as_ref()?;
    let passed = summary.time_seconds - before.time_seconds;
    let grown = counter(summary).saturating_sub(counter(before));
    (passed > 0.0).then(|| seconds(grown) / passed)
}

fn session_lines(view: &View) -> Vec<Line<'static>> {
    let id = view.session.unwrap_or_default();
    let Some(report) = view.report.as_ref().filter(|report| report.id == id) else {
        return vec![format!("session {id}: no report (it may have ended)").into()];
    };
    let rows = view.summary.iter().flat_map(|summary| &summary.sessions);
    let row = rows.into_iter().find(|row| row.id == id);
    let mut lines = vec![
        Line::styled(title_of(report), Style::new().add_modifier(Modifier::BOLD)),
        leg_line("client leg", &report.client_leg),
        leg_line("server leg", &report.server_leg),
        control_line("client leg", &report.client_leg),
        control_line("server leg", &report.server_leg),
    ];
    if let Some(row) = row
        && let Some(held) = &row.figures.held_by
    {
        let is_upload = row.figures.direction.as_deref() == Some("to_server");
        let shares = held.shares().into_iter().filter(|(_, share)| *share > 0.0);
        let shares: Vec<String> = shares
            .map(|(limit, share)| {
                let share = percent(Some(share.into()));
                format!("{} {share}", limit_name(limit, is_upload))
            })
            .collect();
        lines.push(format!(" held by: {}", shares.join("  ")).into());
    }
    lines.push(
        " [p] capture  [x] explain  [y] copy JSON  [b] bypass client  [K] reset  [Esc]".into(),
    );
    lines
}

fn title_of(report: &SessionReport) -> String {
    let server = report
        .destination
        .clone()
        .unwrap_or_else(|| report.server.to_string());
    format!(
        "session {}: {} to {server}  age {}  {}  start {}",
        report.id,
        report.client,
        age(report.duration_seconds),
        report.handshake,
        report.start.as_deref().unwrap_or(UNKNOWN),
    )
}

fn leg_line(name: &str, leg: &LegReport) -> Line<'static> {
    format!(
        " {name}  rtt {} ms  cwnd {}  in flight {}  not sent {}",
        milliseconds(leg.rtt_seconds),
        leg.congestion_window_segments,
        leg.unacknowledged_segments,
        bytes(leg.not_sent_bytes),
    )
    .into()
}

fn control_line(name: &str, leg: &LegReport) -> Line<'static> {
    let control = leg.congestion_control.as_deref().unwrap_or(UNKNOWN);
    let reason = leg.congestion_control_reason.as_deref();
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let window = bytes(leg.peer_window_bytes);
    format!(" {name}  peer window {window}  congestion control {control}{reason}").into()
}

fn last_line(view: &View) -> String {
    if let Some(confirmation) = &view.confirmation {
        return confirmation.question.clone();
    }
    if let Some(typing) = &view.typing {
        return typing.line("clients of");
    }
    let text = view.failure.as_ref().or(view.message.as_ref());
    text.map_or_else(|| KEYS.to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests;
