//! The view as lines and a table, for at least 80 columns and 24 lines.

use midspan_thin::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::view::{Rates, ThinRow, ThinView};
use crate::draw::table::{Column, draw_table, room, shorten};
use crate::numbers::{UNKNOWN, age, bars, bytes, count, milliseconds, per_second, percent, rate};

const KEYS: &str = "[o]rder [/]filter [ ]freeze [?]help [q]uit";

const HELP: &str = "\
o  next order: acks (ACKs a second), saved (share), rtt
/  only connections with an end in a prefix, as in 192.0.2. or 2001:db8::/32
Esc  all connections          space  freeze: the rows no longer change
q  end thinning, after a y: then all ACKs pass

ACKS      pure ACKs that were examined, a second
SAVED     those that a later ACK replaced, so that they never left
WINDOW    est_cwnd: how many segments the server is assumed to have under way
PER ACK   the data packets for which one ACK leaves now
RTT       rcv_RTT: the round-trip time as the receiver measures it
Passed: data, SYN, FIN, RST; packets that could not be read; ACKs of connections
beyond --flows (untracked); ACKs for which there was no room (not held).

                     any key: back";

const HEAD_LINES: u16 = 5;
const COLUMNS: [Column; 7] = [
    ("HERE", 21),
    ("THERE", 21),
    ("ACKS", 7),
    ("SAVED", 6),
    ("WINDOW", 6),
    ("PER ACK", 7),
    ("RTT", 7),
];

/// Draws the view.
pub fn draw(frame: &mut Frame<'_>, view: &ThinView) {
    let area = frame.area();
    if view.is_help {
        frame.render_widget(Paragraph::new(HELP), area);
        return;
    }
    let parts = Layout::vertical([
        Constraint::Length(HEAD_LINES),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [head, table, last] = parts.areas(area);
    match &view.status {
        Some(status) => {
            frame.render_widget(Paragraph::new(head_lines(view, status)), head);
            let rows = view.rows();
            let (first, count) = room(table, view.selected);
            let rows = rows.into_iter().skip(first).take(count).map(cells);
            draw_table(
                frame,
                table,
                &COLUMNS,
                rows.collect(),
                (first, view.selected),
            );
        }
        None => frame.render_widget(Paragraph::new("waiting for the worker"), head),
    }
    frame.render_widget(Paragraph::new(last_line(view)), last);
}

fn head_lines(view: &ThinView, status: &Status) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    vec![
        Line::from(format!(
            "midspan thin  {}  {}  up {}  connections {}  ACKs waiting {}",
            view.interface,
            view.policy,
            age(status.running.as_seconds()),
            count(status.flows),
            status.held
        )),
        acks_line(view, status).into(),
        saved_line(view, status).into(),
        format!(
            "passed: data and others {}, unreadable {}, untracked {}, not held {}",
            count(status.others),
            count(status.unreadable),
            count(status.untracked),
            count(status.unheld)
        )
        .into(),
        Line::styled(selection(view), bold),
    ]
}

fn history(view: &ThinView, which: fn(&Rates) -> f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let values: Vec<u64> = view
        .history
        .iter()
        .map(|rates| which(rates) as u64)
        .collect();
    bars(values)
}

fn acks_line(view: &ThinView, status: &Status) -> String {
    let rates = view.rates;
    let number = |which: fn(Rates) -> f64| {
        rates.map_or_else(|| UNKNOWN.to_owned(), |rates| per_second(which(rates)))
    };
    let now = rates.filter(|rates| rates.seen > 0.0);
    format!(
        "ACKs  {:<16} {} examined, {} saved ({}), in all {}",
        history(view, |rates| rates.seen),
        number(|rates| rates.seen),
        number(|rates| rates.saved),
        percent(now.map(|rates| rates.saved / rates.seen)),
        percent(Some(status.saved_share()))
    )
}

fn saved_line(view: &ThinView, status: &Status) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let now = view.rates.map(|rates| rates.saved_bits as u64);
    let mut line = format!(
        "saved {:<16} {}",
        history(view, |rates| rates.saved_bits),
        rate(now)
    );
    if let (Some(upstream), Some(rates)) = (view.upstream, view.rates) {
        #[allow(clippy::cast_precision_loss)]
        let share = rates.saved_bits / upstream.bits_per_second() as f64;
        line += &format!(", {} of {upstream}", percent(Some(share)));
    }
    line + &format!("; in all {}", bytes(status.bytes_saved))
}

/// What is shown: rows, order, filter.
fn selection(view: &ThinView) -> String {
    let shown = view.rows().len();
    let mut text = format!(
        "the {shown} busiest connections   order: {}",
        view.order.name()
    );
    if let Some(filter) = view.filter {
        text += &format!("   filter: {filter}");
    }
    if view.is_frozen {
        text += "   FROZEN";
    }
    text
}

fn cells(row: &ThinRow) -> Vec<String> {
    let flow = &row.flow;
    let round_trip = flow.rcv_rtt.map(|time| time.as_seconds());
    let round_trip = match round_trip {
        Some(_) => format!("{} ms", milliseconds(round_trip)),
        None => UNKNOWN.to_owned(),
    };
    vec![
        shorten(&flow.local.to_string(), 21),
        shorten(&flow.remote.to_string(), 21),
        (row.acks_per_second).map_or_else(|| UNKNOWN.to_owned(), per_second),
        percent(Some(row.saved_share())),
        flow.est_cwnd.to_string(),
        flow.ppa.to_string(),
        round_trip,
    ]
}

fn last_line(view: &ThinView) -> String {
    if view.is_ending {
        return "end thinning, so that all ACKs pass? y: yes, other keys: no".to_owned();
    }
    if let Some(typing) = &view.typing {
        return typing.line("connections of");
    }
    view.message.unwrap_or(KEYS).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::view;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(view: &ThinView) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_small_terminal_shows_all() {
        insta::assert_snapshot!(picture(&view()));
    }

    #[test]
    fn the_keys_fit() {
        let mut view = view();
        view.is_help = true;
        insta::assert_snapshot!(picture(&view));
        for line in HELP.lines().chain([KEYS]) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn nothing_is_said_before_the_first_report() {
        let text = picture(&ThinView::default());
        assert!(text.contains("waiting for the worker"));
    }
}
