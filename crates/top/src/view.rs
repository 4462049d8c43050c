//! The state of the view: which rows, which order, which filter, which row is selected. Answers of the
//! proxy and keys change it; nothing here reads or writes.

use std::collections::VecDeque;
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_proxy::summary::{By, Query, Sort, Summary};
use midspan_relay::observation::SessionReport;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::filter::{NO_FILTER, Typed, Typing};

/// Rates that are kept for the bars.
const HISTORY: usize = 16;

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rows {
    /// Clients.
    #[default]
    Clients,
    /// Listeners.
    Listeners,
    /// Sessions.
    Sessions,
    /// Sessions that have ended.
    Ended,
    /// Client prefixes whose rates are limited.
    Prefixes,
    /// Reasons for which connections pass untouched.
    Untouched,
}

/// What the program is to do for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// End.
    Quit,
    /// Ask for a summary now.
    Refresh,
    /// Capture the packets of this session.
    Capture(u64),
    /// Let new connections of this client pass untouched.
    Bypass(IpAddr),
    /// Reset the sessions of this client.
    KickClient(IpAddr),
    /// Reset this session.
    KickSession(u64),
    /// Explain the decision for this session.
    Explain(u64),
    /// Copy the JSON of this session.
    Copy(u64),
}

/// A question that must be answered before an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmation {
    /// What is asked.
    pub question: String,
    /// What a `y` does.
    pub action: Action,
}

/// The view.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// What the rows are.
    pub rows: Rows,
    /// The order of rows.
    pub sort: Sort,
    /// The filter in force: clients with this prefix.
    pub filter: Option<IpNet>,
    /// The text of a filter while it is typed.
    pub typing: Option<Typing>,
    /// Answers are no longer shown, so that rows do not move.
    pub is_frozen: bool,
    /// The selected row.
    pub selected: usize,
    /// The client whose sessions are shown.
    pub client: Option<IpAddr>,
    /// The session that is shown below the rows.
    pub session: Option<u64>,
    /// Its report.
    pub report: Option<SessionReport>,
    /// The last answer, and the one before it.
    pub summary: Option<Summary>,
    /// The answer before the last one, for rates of counters.
    pub before: Option<Summary>,
    /// Rates towards clients and towards servers, the oldest first.
    pub history: VecDeque<(u64, u64)>,
    /// What the last action did.
    pub message: Option<String>,
    /// Why there is no answer to the last question.
    pub failure: Option<String>,
    /// Waits for a `y`.
    pub confirmation: Option<Confirmation>,
    /// Whether the keys are explained.
    pub is_help: bool,
    /// Colours may be used.
    pub has_colour: bool,
}

impl View {
    /// The question for the proxy.
    #[must_use]
    pub fn query(&self) -> Query {
        Query {
            by: match self.rows {
                Rows::Sessions => By::Session,
                Rows::Listeners => By::Listener,
                Rows::Ended => By::Ended,
                Rows::Prefixes => By::Prefix,
                Rows::Clients | Rows::Untouched => By::Client,
            },
            sort: self.sort,
            client: self.client.map(IpNet::from).or(self.filter),
            limit: 1000,
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        let Some(summary) = &self.summary else {
            return 0;
        };
        match self.rows {
            Rows::Clients => summary.clients.len(),
            Rows::Listeners => summary.listeners.len(),
            Rows::Sessions => summary.sessions.len(),
            Rows::Ended => summary.ended.len(),
            Rows::Prefixes => summary.prefixes.len(),
            Rows::Untouched => summary.totals.untouched.as_ref().map_or(0, |all| all.len()),
        }
    }

    /// Takes an answer. The selected row stays the same client or session, if it still exists.
    pub fn take(&mut self, summary: Summary) {
        self.failure = None;
        if self.is_frozen {
            return;
        }
        let totals = &summary.totals;
        if let (Some(down), Some(up)) = (
            totals.rate_to_client_bits_per_second,
            totals.rate_to_server_bits_per_second,
        ) {
            if self.history.len() >= HISTORY {
                self.history.pop_front();
            }
            self.history.push_back((down, up));
        }
        let (client, session) = (self.selected_client(), self.selected_session());
        let of_row = |summary: &Summary, place: usize| match self.rows {
            Rows::Listeners => Some(summary.listeners.get(place)?.listener.clone()),
            Rows::Ended => Some(summary.ended.get(place)?.id.to_string()),
            Rows::Prefixes => Some(summary.prefixes.get(place)?.prefix.clone()),
            Rows::Clients | Rows::Sessions | Rows::Untouched => None,
        };
        let name = (self.summary.as_ref()).and_then(|summary| of_row(summary, self.selected));
        let place_of = |name: &str| {
            let (listeners, ended) = (summary.listeners.len(), summary.ended.len());
            (0..listeners.max(ended).max(summary.prefixes.len()))
                .find(|place| of_row(&summary, *place).as_deref() == Some(name))
        };
        let named = name.as_deref().and_then(place_of);
        self.before = self.summary.replace(summary);
        let summary = self.summary.as_ref();
        let found = match self.rows {
            Rows::Clients => summary.and_then(|summary| {
                let mut clients = summary.clients.iter();
                clients.position(|row| Some(row.client) == client)
            }),
            Rows::Sessions => summary.and_then(|summary| {
                let mut sessions = summary.sessions.iter();
                sessions.position(|row| Some(row.id) == session)
            }),
            Rows::Listeners | Rows::Ended | Rows::Prefixes => named,
            Rows::Untouched => None,
        };
        self.select(found.unwrap_or(self.selected));
    }

    fn select(&mut self, place: usize) {
        self.selected = place.min(self.count().saturating_sub(1));
    }

    /// The selected client, or the client of the selected session.
    #[must_use]
    pub fn selected_client(&self) -> Option<IpAddr> {
        let summary = self.summary.as_ref()?;
        match self.rows {
            Rows::Clients => Some(summary.clients.get(self.selected)?.client),
            Rows::Sessions => Some(summary.sessions.get(self.selected)?.client.ip()),
            Rows::Ended => Some(summary.ended.get(self.selected)?.client.ip()),
            Rows::Listeners | Rows::Prefixes | Rows::Untouched => None,
        }
    }

    /// The selected session.
    #[must_use]
    pub fn selected_session(&self) -> Option<u64> {
        let summary = self.summary.as_ref()?;
        match self.rows {
            Rows::Sessions => Some(summary.sessions.get(self.selected)?.id),
            Rows::Clients | Rows::Listeners | Rows::Ended | Rows::Prefixes | Rows::Untouched => {
                None
            }
        }
    }

    /// Handles a key.
    pub fn handle(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Action::Quit);
        }
        if let Some(Confirmation { action, .. }) = self.confirmation.take() {
            return (key.code == KeyCode::Char('y')).then_some(action);
        }
        if self.typing.is_some() {
            return self.type_filter(key.code);
        }
        if self.is_help {
            self.is_help = false;
            return None;
        }
        self.message = None;
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') => self.is_help = true,
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected.saturating_add(1)),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(10)),
            KeyCode::PageDown => self.select(self.selected.saturating_add(10)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Char(' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('/') => self.typing = Some(Typing::from_filter(self.filter)),
            KeyCode::Char('c') => return self.show(Rows::Clients, None),
            KeyCode::Char('s') => return self.show(Rows::Sessions, None),
            KeyCode::Char('a') => return self.show(Rows::Untouched, None),
            KeyCode::Char('l') => return self.show(Rows::Listeners, None),
            KeyCode::Char('e') => return self.show(Rows::Ended, None),
            KeyCode::Char('r') => return self.show(Rows::Prefixes, None),
            KeyCode::Char('o') => {
                let all = Sort::ALL;
                let place = all.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                self.sort = all[(place + 1) % all.len()];
                self.is_frozen = false;
                return Some(Action::Refresh);
            }
            KeyCode::Enter => return self.open(),
            KeyCode::Esc | KeyCode::Backspace => return self.go_back(),
            KeyCode::Char('p') => match self.selected_session() {
                Some(session) => return Some(Action::Capture(session)),
                None => self.say_select_session(),
            },
            KeyCode::Char('x') => match self.selected_session() {
                Some(session) => return Some(Action::Explain(session)),
                None => self.say_select_session(),
            },
            KeyCode::Char('y') => match self.selected_session() {
                Some(session) => return Some(Action::Copy(session)),
                None => self.say_select_session(),
            },
            KeyCode::Char('b') => {
                if let Some(client) = self.selected_client() {
                    let what = format!("new connections of {client} pass untouched");
                    self.confirm(what, Action::Bypass(client));
                }
            }
            KeyCode::Char('K') => match (self.selected_session(), self.selected_client()) {
                (Some(session), _) => {
                    let what = format!("reset session {session}");
                    self.confirm(what, Action::KickSession(session));
                }
                (None, Some(client)) => {
                    let what = format!("reset all sessions of {client}");
                    self.confirm(what, Action::KickClient(client));
                }
                (None, None) => {}
            },
            _ => {}
        }
        None
    }

    fn confirm(&mut self, what: String, action: Action) {
        let question = format!("{what}? y: yes, other keys: no");
        self.confirmation = Some(Confirmation { question, action });
    }

    fn say_select_session(&mut self) {
        self.message = Some("select a session first: [s]essions, or Enter on a client".to_owned());
    }

    fn show(&mut self, rows: Rows, client: Option<IpAddr>) -> Option<Action> {
        self.rows = rows;
        self.client = client;
        self.selected = 0;
        self.session = None;
        self.report = None;
        self.is_frozen = false;
        Some(Action::Refresh)
    }

    /// The sessions of a client, or one session.
    fn open(&mut self) -> Option<Action> {
        match self.rows {
            Rows::Clients => {
                let client = self.selected_client()?;
                self.show(Rows::Sessions, Some(client))
            }
            Rows::Sessions => {
                self.session = self.selected_session();
                self.report = None;
                Some(Action::Refresh)
            }
            Rows::Listeners | Rows::Ended | Rows::Prefixes | Rows::Untouched => None,
        }
    }

    fn go_back(&mut self) -> Option<Action> {
        if self.session.take().is_some() {
            self.report = None;
            return None;
        }
        if self.rows == Rows::Clients && self.filter.take().is_none() {
            return None;
        }
        self.show(Rows::Clients, None)
    }

    fn type_filter(&mut self, key: KeyCode) -> Option<Action> {
        let typed = self.typing.as_mut()?.press(key);
        if typed == Typed::More {
            return None;
        }
        self.typing = None;
        match typed {
            Typed::Chosen(filter) => {
                self.filter = filter;
                return self.show(self.rows, None);
            }
            Typed::Wrong => self.message = Some(NO_FILTER.to_owned()),
            Typed::More | Typed::Left => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use midspan_proxy::summary::PrefixRow;

    use super::*;

    fn key(view: &mut View, code: KeyCode) -> Option<Action> {
        view.handle(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn summary() -> Summary {
        serde_json::from_str(include_str!("../tests/clients.json")).unwrap()
    }

    fn sessions() -> Summary {
        serde_json::from_str(include_str!("../tests/sessions.json")).unwrap()
    }

    fn listeners() -> Summary {
        serde_json::from_str(include_str!("../tests/listeners.json")).unwrap()
    }

    fn ended() -> Summary {
        serde_json::from_str(include_str!("../tests/ended.json")).unwrap()
    }

    #[test]
    fn a_selected_client_stays_selected() {
        let mut view = View::default();
        view.take(summary());
        key(&mut view, KeyCode::Down);
        let second = view.selected_client().unwrap();
        let mut other = summary();
        other.clients.swap(0, 1);
        view.take(other);
        assert_eq!((view.selected, view.selected_client()), (0, Some(second)));
        key(&mut view, KeyCode::End);
        assert_eq!(view.selected + 1, view.count());
        let mut fewer = summary();
        fewer.clients.truncate(1);
        view.take(fewer);
        assert_eq!(view.selected, 0);
    }

    #[test]
    fn nothing_is_changed_without_a_yes() {
        let mut view = View::default();
        view.take(summary());
        let client = view.selected_client().unwrap();
        assert_eq!(key(&mut view, KeyCode::Char('b')), None);
        assert!(view.confirmation.is_some());
        assert_eq!(key(&mut view, KeyCode::Char('q')), None);
        assert!(view.confirmation.is_none());
        key(&mut view, KeyCode::Char('b'));
        let yes = key(&mut view, KeyCode::Char('y'));
        assert_eq!(yes, Some(Action::Bypass(client)));
        key(&mut view, KeyCode::Char('K'));
        let yes = key(&mut view, KeyCode::Char('y'));
        assert_eq!(yes, Some(Action::KickClient(client)));
        // A capture needs a session.
        assert_eq!(key(&mut view, KeyCode::Char('p')), None);
        assert!(view.message.as_ref().unwrap().contains("select a session"));
        assert_eq!(key(&mut view, KeyCode::Enter), Some(Action::Refresh));
        assert_eq!(view.query().client, Some(client.into()));
        view.take(sessions());
        let session = view.selected_session().unwrap();
        assert_eq!(
            key(&mut view, KeyCode::Char('p')),
            Some(Action::Capture(session))
        );
        assert_eq!(
            key(&mut view, KeyCode::Char('x')),
            Some(Action::Explain(session))
        );
        let copy = key(&mut view, KeyCode::Char('y'));
        assert_eq!(copy, Some(Action::Copy(session)));
        key(&mut view, KeyCode::Char('K'));
        let yes = key(&mut view, KeyCode::Char('y'));
        assert_eq!(yes, Some(Action::KickSession(session)));
    }

    #[test]
    fn listeners_and_ended_sessions_stay_selected() {
        let mut view = View::default();
        assert_eq!(key(&mut view, KeyCode::Char('l')), Some(Action::Refresh));
        assert_eq!(view.query().by, By::Listener);
        view.take(listeners());
        key(&mut view, KeyCode::Down);
        let mut other = listeners();
        other.listeners.swap(0, 1);
        view.take(other);
        assert_eq!((view.count(), view.selected), (2, 0));
        assert_eq!(key(&mut view, KeyCode::Char('b')), None);
        assert!(view.confirmation.is_none());
        assert_eq!(key(&mut view, KeyCode::Char('e')), Some(Action::Refresh));
        assert_eq!(view.query().by, By::Ended);
        view.take(ended());
        // The newest session comes first, and the selected one moves down.
        let mut other = ended();
        let mut new = other.ended[0].clone();
        new.id = 99;
        other.ended.insert(0, new);
        view.take(other);
        assert_eq!(view.selected, 1);
        // A session that has ended cannot be reset or captured, but its client can be bypassed.
        assert_eq!(key(&mut view, KeyCode::Char('p')), None);
        assert_eq!(key(&mut view, KeyCode::Char('b')), None);
        let yes = key(&mut view, KeyCode::Char('y'));
        assert!(matches!(yes, Some(Action::Bypass(_))));
    }

    #[test]
    fn a_selected_prefix_stays_selected() {
        let row = |prefix: &str| PrefixRow {
            prefix: prefix.to_owned(),
            connections_per_second: 3,
            rate_bits_per_second: 8_000_000,
            refused: 1,
            unused_seconds: 0.5,
        };
        let prefixes = |names: [&str; 2]| Summary {
            prefixes: names.map(row).into(),
            ..summary()
        };
        let mut view = View::default();
        assert_eq!(key(&mut view, KeyCode::Char('r')), Some(Action::Refresh));
        assert_eq!(view.query().by, By::Prefix);
        view.take(prefixes(["192.0.2.0/24", "198.51.100.0/24"]));
        key(&mut view, KeyCode::Down);
        view.take(prefixes(["198.51.100.0/24", "192.0.2.0/24"]));
        assert_eq!((view.count(), view.selected), (2, 0));
        // A prefix is no client that could be bypassed.
        assert_eq!(key(&mut view, KeyCode::Char('b')), None);
        assert!(view.confirmation.is_none());
    }

    #[test]
    fn a_filter_is_typed() {
        let mut view = View::default();
        view.take(summary());
        key(&mut view, KeyCode::Char('/'));
        for letter in "192.168.10.q".chars() {
            key(&mut view, KeyCode::Char(letter));
        }
        assert_eq!(key(&mut view, KeyCode::Enter), Some(Action::Refresh));
        assert_eq!(view.query().client.unwrap().to_string(), "192.168.10.0/24");
        key(&mut view, KeyCode::Esc);
        assert_eq!(view.query().client, None);
        key(&mut view, KeyCode::Char('/'));
        key(&mut view, KeyCode::Char('.'));
        key(&mut view, KeyCode::Enter);
        assert!(view.message.as_ref().unwrap().contains("not an address"));
    }

    #[test]
    fn a_frozen_view_does_not_move() {
        let mut view = View::default();
        view.take(summary());
        key(&mut view, KeyCode::Char(' '));
        let mut other = summary();
        other.clients.clear();
        view.take(other.clone());
        assert!(view.count() > 0);
        key(&mut view, KeyCode::Char(' '));
        view.take(other);
        assert_eq!((view.count(), view.selected), (0, 0));
        // No row: no key does anything.
        for letter in "bKpxjk".chars() {
            let action = key(&mut view, KeyCode::Char(letter));
            assert!(action.is_none() && view.confirmation.is_none());
        }
        assert_eq!(key(&mut view, KeyCode::Enter), None);
    }
}
