//! The state of the view. Reports and keys change it; nothing here reads or writes.

use std::collections::VecDeque;

use ipnet::IpNet;
use midspan_thin::{FlowStatus, Status};
use midspan_units::BitRate;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::filter::{NO_FILTER, Typed, Typing};

/// Values that are kept for the bars.
const HISTORY: usize = 16;

/// The order of connections: the largest value first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Examined ACKs a second.
    #[default]
    Acks,
    /// The share of saved ACKs.
    Saved,
    /// The round-trip time that the receiver measures.
    Rtt,
}

impl Order {
    const ALL: [Self; 3] = [Self::Acks, Self::Saved, Self::Rtt];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acks => "acks",
            Self::Saved => "saved",
            Self::Rtt => "rtt",
        }
    }

    fn next(self) -> Self {
        let place = Self::ALL.iter().position(|order| *order == self);
        Self::ALL[(place.unwrap_or(0) + 1) % Self::ALL.len()]
    }
}

/// A connection with its rate.
#[derive(Debug, Clone)]
pub struct ThinRow {
    /// The connection.
    pub flow: FlowStatus,
    /// Examined ACKs a second since the last report; `None` if it was not in that report.
    pub acks_per_second: Option<f64>,
}

impl ThinRow {
    /// The share of saved ACKs, from 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn saved_share(&self) -> f64 {
        self.flow.acks_saved as f64 / self.flow.acks_seen.max(1) as f64
    }

    fn value(&self, order: Order) -> f64 {
        match order {
            Order::Acks => self.acks_per_second.unwrap_or(-1.0),
            Order::Saved => self.saved_share(),
            Order::Rtt => self.flow.rcv_rtt.map_or(-1.0, |time| time.as_seconds()),
        }
    }
}

/// What moved between two reports, a second each.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Examined ACKs.
    pub seen: f64,
    /// Replaced ACKs.
    pub saved: f64,
    /// Bits of the replaced ACKs.
    pub saved_bits: f64,
}

/// The view.
#[derive(Debug, Clone, Default)]
pub struct ThinView {
    /// The interface towards the upstream.
    pub interface: String,
    /// The policy, as the operator wrote it.
    pub policy: String,
    /// The rate of the upstream, if it is known.
    pub upstream: Option<BitRate>,
    /// The last report.
    pub status: Option<Status>,
    /// Between the last two reports.
    pub rates: Option<Rates>,
    /// Rates of the last reports, the oldest first.
    pub history: VecDeque<Rates>,
    /// The connections, unsorted.
    rows: Vec<ThinRow>,
    /// Their order.
    pub order: Order,
    /// Only connections with an end in this prefix.
    pub filter: Option<IpNet>,
    /// The text of a filter while it is typed.
    pub typing: Option<Typing>,
    /// Reports are no longer shown, so that rows do not move.
    pub is_frozen: bool,
    /// The selected row.
    pub selected: usize,
    /// Why the last key had no effect.
    pub message: Option<&'static str>,
    /// Whether to end thinning is being asked.
    pub is_ending: bool,
    /// Whether the keys are explained.
    pub is_help: bool,
}

impl ThinView {
    /// A view of an interface and a policy, and of the rate of the upstream if it is known.
    #[must_use]
    pub fn new(interface: String, policy: String, upstream: Option<BitRate>) -> Self {
        Self {
            interface,
            policy,
            upstream,
            ..Self::default()
        }
    }

    /// Takes a report.
    #[allow(clippy::cast_precision_loss)]
    pub fn take(&mut self, status: Status) {
        if self.is_frozen {
            return;
        }
        let before = self.status.as_ref();
        // After the worker was started again, its counters begin at 0.
        let before = before.filter(|before| before.running <= status.running);
        let passed = before.map_or(0.0, |before| {
            status.running.as_seconds() - before.running.as_seconds()
        });
        // The clock of the worker begins with the first packet.
        let growth = |now: u64, before: u64| match passed > 0.0 {
            true => now.saturating_sub(before) as f64 / passed,
            false => 0.0,
        };
        self.rates = before.map(|before| Rates {
            seen: growth(status.acks_seen, before.acks_seen),
            saved: growth(status.acks_saved, before.acks_saved),
            saved_bits: 8.0 * growth(status.bytes_saved, before.bytes_saved),
        });
        self.rows = status
            .busiest
            .iter()
            .map(|flow| {
                let mut flows = before.into_iter().flat_map(|before| &before.busiest);
                let same =
                    |other: &&FlowStatus| (other.local, other.remote) == (flow.local, flow.remote);
                ThinRow {
                    flow: flow.clone(),
                    acks_per_second: flows
                        .find(same)
                        .map(|before| growth(flow.acks_seen, before.acks_seen)),
                }
            })
            .collect();
        if let Some(rates) = self.rates {
            if self.history.len() >= HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(rates);
        }
        self.status = Some(status);
        self.select(self.selected);
    }

    /// The connections that fit the filter, in their order.
    #[must_use]
    pub fn rows(&self) -> Vec<&ThinRow> {
        let has_end = |row: &&ThinRow| {
            let ends = [row.flow.local, row.flow.remote].map(|end| end.ip().to_canonical());
            self.filter
                .is_none_or(|filter| ends.iter().any(|end| filter.contains(end)))
        };
        let mut rows: Vec<&ThinRow> = self.rows.iter().filter(has_end).collect();
        rows.sort_by(|one, other| {
            let values = (other.value(self.order), one.value(self.order));
            let names = (one.flow.remote, one.flow.local);
            (values.0.total_cmp(&values.1)).then(names.cmp(&(other.flow.remote, other.flow.local)))
        });
        rows
    }

    fn select(&mut self, place: usize) {
        self.selected = place.min(self.rows().len().saturating_sub(1));
    }

    /// Handles a key; returns whether thinning is to end.
    pub fn handle(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return true;
        }
        if std::mem::take(&mut self.is_ending) {
            return key.code == KeyCode::Char('y');
        }
        if let Some(typing) = &mut self.typing {
            match typing.press(key.code) {
                Typed::More => return false,
                Typed::Left => {}
                Typed::Chosen(filter) => {
                    self.filter = filter;
                    self.select(0);
                }
                Typed::Wrong => self.message = Some(NO_FILTER),
            }
            self.typing = None;
            return false;
        }
        if std::mem::take(&mut self.is_help) {
            return false;
        }
        self.message = None;
        match key.code {
            KeyCode::Char('q') => self.is_ending = true,
            KeyCode::Char('?' | 'h') => self.is_help = true,
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected.saturating_add(1)),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(10)),
            KeyCode::PageDown => self.select(self.selected.saturating_add(10)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Char(' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('o') => self.order = self.order.next(),
            KeyCode::Char('/') => self.typing = Some(Typing::from_filter(self.filter)),
            KeyCode::Esc => self.filter = None,
            _ => {}
        }
        false
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use midspan_units::TimeSpan;

    /// A report after this number of seconds.
    pub fn status(seconds: u64) -> Status {
        let flow = |last: u8, acks_seen, acks_saved, rtt: Option<u64>| FlowStatus {
            local: ([192, 168, 1, 2], 40_000 + u16::from(last)).into(),
            remote: ([198, 51, 100, last], 443).into(),
            acks_seen: acks_seen * seconds,
            acks_saved: acks_saved * seconds,
            est_cwnd: 40,
            ppa: 5,
            rcv_rtt: rtt.map(TimeSpan::from_milliseconds),
        };
        Status {
            acks_seen: 1000 * seconds,
            acks_sent: 400 * seconds,
            acks_saved: 600 * seconds,
            bytes_seen: 52_000 * seconds,
            bytes_saved: 4_000 * seconds,
            others: 12 * seconds,
            flows: 2,
            held: 3,
            running: TimeSpan::from_seconds(seconds),
            busiest: vec![flow(1, 100, 90, None), flow(2, 900, 510, Some(320))],
            ..Status::default()
        }
    }

    pub fn view() -> ThinView {
        let upstream = "64 kbit/s".parse().ok();
        let mut view = ThinView::new("ppp0".to_owned(), "ace:5".to_owned(), upstream);
        view.take(status(10));
        view.take(status(12));
        view
    }

    fn key(view: &mut ThinView, code: KeyCode) -> bool {
        view.handle(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn remotes(view: &ThinView) -> Vec<String> {
        let rows = view.rows().into_iter();
        rows.map(|row| row.flow.remote.ip().to_string()).collect()
    }

    #[test]
    fn rates_are_of_the_time_between_two_reports() {
        let mut view = view();
        let rates = view.rates.unwrap();
        assert_eq!(
            (rates.seen, rates.saved, rates.saved_bits),
            (1000.0, 600.0, 32_000.0)
        );
        assert_eq!(view.rows()[0].acks_per_second, Some(900.0));
        // Before the first packet, nothing moves.
        let mut idle = ThinView::default();
        idle.take(Status::default());
        idle.take(Status::default());
        assert_eq!(idle.rates, Some(Rates::default()));
        // The worker was started again.
        view.take(status(1));
        assert_eq!((view.rates, view.rows()[0].acks_per_second), (None, None));
    }

    #[test]
    fn keys_order_filter_and_freeze() {
        let mut view = view();
        assert_eq!(remotes(&view), ["198.51.100.2", "198.51.100.1"]);
        key(&mut view, KeyCode::Char('o'));
        assert_eq!(
            (view.order, remotes(&view)[0].as_str()),
            (Order::Saved, "198.51.100.1")
        );
        key(&mut view, KeyCode::Char('o'));
        assert_eq!(
            (view.order, remotes(&view)[0].as_str()),
            (Order::Rtt, "198.51.100.2")
        );
        key(&mut view, KeyCode::Char('/'));
        for letter in "198.51.100.1".chars() {
            key(&mut view, KeyCode::Char(letter));
        }
        key(&mut view, KeyCode::Enter);
        assert_eq!(remotes(&view), ["198.51.100.1"]);
        key(&mut view, KeyCode::Esc);
        key(&mut view, KeyCode::End);
        assert_eq!(view.selected, 1);
        key(&mut view, KeyCode::Char(' '));
        let mut other = status(14);
        other.busiest.clear();
        view.take(other.clone());
        assert_eq!(view.rows().len(), 2);
        key(&mut view, KeyCode::Char(' '));
        view.take(other);
        assert_eq!((view.rows().len(), view.selected), (0, 0));
        key(&mut view, KeyCode::Char('/'));
        key(&mut view, KeyCode::Char('.'));
        key(&mut view, KeyCode::Enter);
        assert_eq!(view.message, Some(NO_FILTER));
    }

    /// The view belongs to the program that thins ACKs, so it does not end by one key.
    #[test]
    fn thinning_does_not_end_without_a_yes() {
        let mut view = view();
        assert!(!key(&mut view, KeyCode::Char('q')));
        assert!(view.is_ending);
        assert!(!key(&mut view, KeyCode::Char('q')));
        assert!(!view.is_ending);
        key(&mut view, KeyCode::Char('q'));
        assert!(key(&mut view, KeyCode::Char('y')));
        assert!(view.handle(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
