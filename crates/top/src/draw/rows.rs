//! The table of clients, listeners, sessions, ended sessions, client prefixes, or of reasons for which connections are left alone.

use midspan_proxy::summary::{
    EndedRow, LegRow, ListenerRow, PrefixRow, RowFigures, SessionRow, Summary,
};
use midspan_relay::observation::{HeldBy, Limit};
use ratatui::Frame;
use ratatui::layout::Rect;

use super::table::{Column, draw_table, room, shorten};
use super::{WIDE, growth};
use crate::numbers::{UNKNOWN, age, bytes, count, milliseconds, per_second, percent, rate};
use crate::view::{Rows, View};

/// Columns from which rows of sessions have their START.
const VERY_WIDE: u16 = 140;

/// Draws the rows that fit.
pub(super) fn draw_rows(frame: &mut Frame<'_>, area: Rect, view: &View, summary: &Summary) {
    // Only the rows that fit are made.
    let (first, room) = room(area, view.selected);
    let wide = area.width >= WIDE;
    let columns = Columns::of(area.width);
    let (names, rows): (Vec<Column>, Vec<Vec<String>>) = match view.rows {
        Rows::Clients => (
            client_columns(wide),
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
        Rows::Listeners => (
            listener_columns(wide),
            (summary.listeners.iter().skip(first).take(room))
                .map(|row| listener_cells(row, wide))
                .collect(),
        ),
        Rows::Sessions => (
            session_columns(columns),
            (summary.sessions.iter().skip(first).take(room))
                .map(|row| session_cells(row, columns))
                .collect(),
        ),
        Rows::Ended => (
            ended_columns(wide),
            (summary.ended.iter().skip(first).take(room))
                .map(|row| ended_cells(row, wide))
                .collect(),
        ),
        Rows::Prefixes => (
            columns_of(
                &["CLIENT PREFIX", "NEW/s", "RATE", "REFUSED", "UNUSED"],
                &[40, 8, 11, 9, 7],
            ),
            (summary.prefixes.iter().skip(first).take(room))
                .map(prefix_cells)
                .collect(),
        ),
        Rows::Untouched => (
            vec![
                ("REASON", 20),
                ("CONNECTIONS", 12),
                ("NOW", 8),
                ("MEANING", 36),
            ],
            untouched_rows(view, summary)
                .into_iter()
                .skip(first)
                .take(room)
                .collect(),
        ),
    };
    draw_table(frame, area, &names, rows, (first, view.selected));
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

/// Pairs headings with widths.
fn columns_of(names: &[&'static str], widths: &[u16]) -> Vec<Column> {
    names.iter().copied().zip(widths.iter().copied()).collect()
}

fn client_columns(wide: bool) -> Vec<Column> {
    let names = [
        "CLIENT",
        "SESS",
        "TO CLIENT",
        "TO SERVER",
        "RTT(MIN)ms",
        "AGAIN",
        "HELD BY",
        "START",
    ];
    match wide {
        true => columns_of(&names, &[39, 5, 11, 11, 10, 6, 23, 7]),
        false => columns_of(&names, &[17, 4, 11, 11, 10, 6, 15]),
    }
}

fn listener_columns(wide: bool) -> Vec<Column> {
    let names = [
        "LISTENER",
        "SESS",
        "OPENED",
        "FAILED",
        "TO CLIENT",
        "TO SERVER",
        "RTT(MIN)ms",
        "AGAIN",
        "HELD BY",
    ];
    match wide {
        true => columns_of(&names, &[20, 6, 11, 9, 11, 11, 10, 6, 23]),
        false => columns_of(
            &[
                "LISTENER",
                "SESS",
                "OPENED",
                "FAILED",
                "TO CLIENT",
                "TO SERVER",
                "HELD BY",
            ],
            &[14, 5, 8, 7, 11, 11, 15],
        ),
    }
}

fn listener_cells(row: &ListenerRow, wide: bool) -> Vec<String> {
    let mut figures = figures(&row.figures, wide);
    match wide {
        // Without the start.
        true => figures.truncate(5),
        false => {
            figures.drain(2..4);
        }
    }
    let room = if wide { 20 } else { 14 };
    let mut cells = vec![
        shorten(&row.listener, room),
        count(row.sessions),
        count(row.opened),
        count(row.failed),
    ];
    cells.extend(figures);
    cells
}

fn session_columns(columns: Columns) -> Vec<Column> {
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
        Columns::Few => columns_of(
            &[
                "SESSION",
                "SERVER",
                "TO CLIENT",
                "TO SERVER",
                "RTT(MIN)ms",
                "HELD BY",
            ],
            &[8, 20, 11, 11, 10, 15],
        ),
        Columns::Some => columns_of(&all, &[10, 21, 21, 6, 11, 11, 10, 6, 15]),
        Columns::All => columns_of(&all, &[10, 21, 24, 6, 11, 11, 10, 6, 23, 7]),
    }
}

fn ended_columns(wide: bool) -> Vec<Column> {
    let names = [
        "SESSION",
        "CLIENT",
        "SERVER",
        "ENDED",
        "LASTED",
        "TO CLIENT",
        "TO SERVER",
        "HOW",
    ];
    match wide {
        true => columns_of(&names, &[10, 21, 24, 9, 7, 10, 10, 19]),
        false => columns_of(
            &["SESSION", "CLIENT", "SERVER", "ENDED", "TO CLIENT", "HOW"],
            &[8, 15, 18, 9, 9, 16],
        ),
    }
}

fn ended_cells(row: &EndedRow, wide: bool) -> Vec<String> {
    let server = row.destination.clone();
    let server = server.unwrap_or_else(|| row.server.to_string());
    let ago = format!("{} ago", age(row.ended_seconds));
    let id = row.id.to_string();
    match wide {
        true => vec![
            id,
            shorten(&row.client.to_string(), 21),
            shorten(&server, 24),
            ago,
            age(row.duration_seconds),
            bytes(row.bytes_to_client),
            bytes(row.bytes_to_server),
            row.how.clone(),
        ],
        false => vec![
            id,
            shorten(&row.client.ip().to_string(), 15),
            shorten(&server, 18),
            ago,
            bytes(row.bytes_to_client),
            shorten(&row.how, 16),
        ],
    }
}

fn prefix_cells(row: &PrefixRow) -> Vec<String> {
    vec![
        shorten(&row.prefix, 40),
        count(row.connections_per_second),
        rate(Some(row.rate_bits_per_second)),
        count(row.refused),
        age(row.unused_seconds),
    ]
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
        "connection_rate_per_client" => "its prefix opens connections too fast",
        "control" => "the control group, for comparison",
        "descriptors" => "no descriptor, or no memory of the kernel",
        "drained" => "the operator drains the client",
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
