//! The table of clients, of sessions, or of reasons for which connections are left alone.

use midspan_proxy::summary::{LegRow, RowFigures, SessionRow, Summary};
use midspan_relay::observation::{HeldBy, Limit};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Row, Table};

use super::{WIDE, growth};
use crate::numbers::{UNKNOWN, age, count, milliseconds, per_second, percent, rate};
use crate::view::{Rows, View};

/// Columns from which rows of sessions have their START.
const VERY_WIDE: u16 = 140;

/// Draws the rows that fit.
pub(super) fn draw_rows(frame: &mut Frame<'_>, area: Rect, view: &View, summary: &Summary) {
    // Only the rows that fit are made.
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let first = view.selected.saturating_sub(room - 1);
    let wide = area.width >= WIDE;
    let columns = Columns::of(area.width);
    let (names, widths, rows): (Vec<&str>, Vec<u16>, Vec<Vec<String>>) = match view.rows {
        Rows::Clients => (
            client_names(wide),
            client_widths(wide),
            summary
                .clients
                .iter()
                .skip(first)
                .take(room)
                .map(|row| {
                    let room = if wide { 39 } else { 17 };
                    let client = shorten(&row.client.to_string(), room);
                    let mut cells = vec![client, count(row.sessions)];
                    cells.extend(figures(&row.figures, wide));
                    cells
                })
                .collect(),
        ),
        Rows::Sessions => (
            session_names(columns),
            session_widths(columns),
            (summary.sessions.iter().skip(first).take(room))
                .map(|row| session_cells(row, columns))
                .collect(),
        ),
        Rows::Untouched => (
            vec!["REASON", "CONNECTIONS", "NOW", "MEANING"],
            vec![20, 12, 8, 36],
            untouched_rows(view, summary)
                .into_iter()
                .skip(first)
                .take(room)
                .collect(),
        ),
    };
    let header = Row::new(names).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = rows.into_iter().enumerate().map(|(place, cells)| {
        let row = Row::new(cells.into_iter().map(Cell::from));
        match first + place == view.selected {
            true => row.style(Style::new().add_modifier(Modifier::REVERSED)),
            false => row,
        }
    });
    let last = widths.len().saturating_sub(1);
    let widths = widths
        .into_iter()
        .enumerate()
        .map(|(place, width)| match place == last {
            true => Constraint::Min(width),
            false => Constraint::Length(width),
        });
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

/// How much of a session fits into a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    Few,
    Some,
    All,
}

impl Columns {
    const fn of(width: u16) -> Self {
        match width {
            ..WIDE => Self::Few,
            WIDE..VERY_WIDE => Self::Some,
            VERY_WIDE.. => Self::All,
        }
    }
}

/// The beginning and the end of a text, which distinguish addresses and ports.
fn shorten(text: &str, room: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let end = letters.len() - kept / 2;
    let start = letters.iter().take(kept - kept / 2);
    start.chain(&['…']).chain(&letters[end..]).collect()
}

fn client_names(wide: bool) -> Vec<&'static str> {
    let mut names = vec![
        "CLIENT",
        "SESS",
        "TO CLIENT",
        "TO SERVER",
        "RTT(MIN)ms",
        "AGAIN",
        "HELD BY",
    ];
    names.extend(wide.then_some("START"));
    names
}

fn client_widths(wide: bool) -> Vec<u16> {
    match wide {
        true => vec![39, 5, 11, 11, 10, 6, 23, 7],
        false => vec![17, 4, 11, 11, 10, 6, 15],
    }
}

fn session_names(columns: Columns) -> Vec<&'static str> {
    let few = [
        "SESSION",
        "SERVER",
        "TO CLIENT",
        "TO SERVER",
        "RTT(MIN)ms",
        "HELD BY",
    ];
    let all = [
        "SESSION",
        "CLIENT",
        "SERVER",
        "AGE",
        "TO CLIENT",
        "TO SERVER",
        "RTT(MIN)ms",
        "AGAIN",
        "HELD BY",
        "START",
    ];
    match columns {
        Columns::Few => few.to_vec(),
        Columns::Some => all[..9].to_vec(),
        Columns::All => all.to_vec(),
    }
}

fn session_widths(columns: Columns) -> Vec<u16> {
    match columns {
        Columns::Few => vec![8, 20, 11, 11, 10, 15],
        Columns::Some => vec![10, 21, 21, 6, 11, 11, 10, 6, 15],
        Columns::All => vec![10, 21, 24, 6, 11, 11, 10, 6, 23, 7],
    }
}

fn session_cells(row: &SessionRow, columns: Columns) -> Vec<String> {
    let server = row
        .destination
        .clone()
        .unwrap_or_else(|| row.server.to_string());
    let mut figures = figures(&row.figures, columns == Columns::All);
    if columns == Columns::Few {
        // Without the share of retransmitted bytes.
        figures.remove(3);
        let mut cells = vec![row.id.to_string(), shorten(&server, 20)];
        cells.extend(figures);
        return cells;
    }
    let room = if columns == Columns::All { 24 } else { 21 };
    let mut cells = vec![
        row.id.to_string(),
        shorten(&row.client.to_string(), 21),
        shorten(&server, room),
        age(row.age_seconds),
    ];
    cells.extend(figures);
    cells
}

/// Rates, the client leg, and what holds the direction back.
fn figures(row: &RowFigures, wide: bool) -> Vec<String> {
    let mut cells = vec![
        rate(row.rate_to_client_bits_per_second),
        rate(row.rate_to_server_bits_per_second),
        round_trip(&row.client_leg),
        percent(row.client_leg.retransmitted_ratio),
        held(row, wide),
    ];
    if wide {
        cells.push(row.start.clone().unwrap_or_else(|| UNKNOWN.to_owned()));
    }
    cells
}

fn round_trip(leg: &LegRow) -> String {
    match (leg.rtt_seconds, leg.min_rtt_seconds) {
        (None, _) => UNKNOWN.to_owned(),
        (now, least) => format!("{} ({})", milliseconds(now), milliseconds(least)),
    }
}

/// What holds a row's direction back most, with the queue or the share if there is room.
fn held(row: &RowFigures, wide: bool) -> String {
    let Some(limit) = row.held else {
        return UNKNOWN.to_owned();
    };
    let is_upload = row.direction.as_deref() == Some("to_server");
    let name = limit_name(limit, is_upload);
    let share = row.held_by.map(|held| share_of(&held, limit));
    match (limit, wide) {
        (_, false) => name.to_owned(),
        (Limit::Link, true) => {
            let leg = if is_upload {
                &row.server_leg
            } else {
                &row.client_leg
            };
            format!("{name} (queue {} ms)", milliseconds(leg.queue_seconds))
        }
        (_, true) => format!("{name} ({})", percent(share)),
    }
}

fn share_of(held: &HeldBy, wanted: Limit) -> f64 {
    let share = held
        .shares()
        .into_iter()
        .find(|(limit, _)| *limit == wanted);
    share.map_or(0.0, |(_, share)| share.into())
}

/// What holds a direction back, as the operator calls it.
pub(super) const fn limit_name(limit: Limit, is_upload: bool) -> &'static str {
    match (limit, is_upload) {
        (Limit::Link, _) => "link",
        (Limit::Loss, _) => "loss",
        (Limit::Window, false) => "client's window",
        (Limit::Window, true) => "server's window",
        (Limit::Source, false) => "server",
        (Limit::Source, true) => "client",
        (Limit::Buffer, _) => "our buffer",
    }
}

fn untouched_rows(view: &View, summary: &Summary) -> Vec<Vec<String>> {
    let Some(all) = &summary.totals.untouched else {
        return Vec::new();
    };
    all.iter()
        .map(|(reason, number)| {
            let of_reason = |of: &Summary| {
                let all = of.totals.untouched.as_ref();
                all.and_then(|all| all.get(reason).copied()).unwrap_or(0)
            };
            let now =
                growth(view, summary, of_reason).map_or_else(|| UNKNOWN.to_owned(), per_second);
            vec![
                reason.clone(),
                count(*number),
                now,
                meaning(reason).to_owned(),
            ]
        })
        .collect()
}

/// What a reason means, in a few words.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "asymmetric" => "answers do not come back through here",
        "authenticated" => "TCP-MD5 or TCP-AO",
        "connection_tracking" => "the table is nearly full",
        "control" => "the control group, for comparison",
        "descriptors" => "no descriptor, or no memory of the kernel",
        "full" => "too many connections were being opened",
        "memory" => "the memory budget is used up",
        "multipath" => "a further path of MPTCP",
        "overdue" => "the client had not repeated its SYN",
        "policy" => "splitting does not help here",
        "sessions" => "the limit of sessions",
        "sessions_per_client" => "the limit of the client's sessions",
        "unanswered" => "the server did not answer in time",
        "unreachable" => "the server cannot be reached",
        _ => "",
    }
}
