//! Sessions that began under other marks and another zone, before an upgrade changed these numbers.
//!
//! The marks are in the sessions' sockets, and the zones in their entries of connection tracking. Neither changes
//! before a session ends, so the rules recognise these sessions by their own numbers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::plan::{InterceptionNumbers, Marks, Plan, Selection};
use super::rules::{Rules, marked, socket_marked, to_listeners};
use crate::initial_window::MarkField;

/// The numbers of sessions that began before an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerSessions {
    /// The bits of a mark that belonged to Midspan.
    pub mask: u32,
    /// Zone of connection tracking of their client legs. Their server legs have the next zone.
    pub zone: u16,
    /// The marks of their sockets towards clients.
    pub client_leg_marks: BTreeSet<u32>,
    /// The marks of their sockets towards servers.
    pub server_leg_marks: BTreeSet<u32>,
}

impl FormerSessions {
    /// The sessions under `numbers`, whose sockets may also have these marks. `None` if the mark field is too small
    /// for any session.
    #[must_use]
    pub fn new(
        numbers: &InterceptionNumbers,
        client_leg_marks: &BTreeSet<u32>,
        server_leg_marks: &BTreeSet<u32>,
    ) -> Option<Self> {
        let Marks {
            client_leg,
            server_leg,
            ..
        } = Marks::new(numbers.marks, 0, 0).ok()?;
        let with = |marks: &BTreeSet<u32>, mark| marks.iter().copied().chain([mark]).collect();
        Some(Self {
            mask: numbers.marks.mask(),
            zone: numbers.zone,
            client_leg_marks: with(client_leg_marks, client_leg),
            server_leg_marks: with(server_leg_marks, server_leg),
        })
    }

    /// Whether sessions under `numbers` can be told from these sessions: no bit of a mark belongs to both, or all
    /// numbers of sessions are the same.
    #[must_use]
    pub const fn are_distinct_from(&self, numbers: &InterceptionNumbers) -> bool {
        let mask = numbers.marks.mask();
        self.mask & mask == 0 || self.mask == mask && self.zone == numbers.zone
    }

    /// The zone of server legs.
    pub(super) const fn server_zone(&self) -> u16 {
        self.zone.wrapping_add(1)
    }

    /// The condition that a packet's socket leads to a client.
    pub(super) fn is_client_socket(&self) -> String {
        socket_marked(self.mask, &self.client_leg_marks)
    }

    /// The condition that a packet's socket leads to a server.
    pub(super) fn is_server_socket(&self) -> String {
        socket_marked(self.mask, &self.server_leg_marks)
    }

    /// Rules for packets of these sessions at the hook `output`: they keep their zones.
    pub(super) fn output(&self) -> [String; 2] {
        let clients = marked(self.mask, &self.client_leg_marks);
        let servers = marked(self.mask, &self.server_leg_marks);
        [
            format!("{clients} ct zone set {}", self.zone),
            format!("{servers} ct original zone set {}", self.server_zone()),
        ]
    }
}

impl Plan {
    /// Lets sessions continue that began earlier.
    pub fn continue_sessions(&mut self, sessions: FormerSessions) {
        if sessions.mask != self.numbers.marks.mask() {
            self.former_sessions.push(sessions);
            return;
        }
        // The plan has the fixed marks already.
        let fixed = Marks::new(self.numbers.marks, 0, 0);
        let is_fixed = |mark: &u32| {
            let fixed = fixed.as_ref();
            fixed.is_ok_and(|of| [of.client_leg, of.server_leg].contains(mark))
        };
        let added = |marks: BTreeSet<u32>| marks.into_iter().filter(|mark| !is_fixed(mark));
        self.client_leg_marks
            .extend(added(sessions.client_leg_marks));
        self.server_leg_marks
            .extend(added(sessions.server_leg_marks));
    }
}

/// The listeners of the former relay, which may still open connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerListeners {
    /// The bits of a mark that belonged to Midspan.
    pub marks: MarkField,
    /// The sockets of each listener.
    pub selections: Vec<Selection>,
}

impl FormerListeners {
    /// Rules for SYNs that the former relay sends again.
    pub(super) fn syns_sent_again(&self) -> Vec<String> {
        let slots: Vec<usize> = self.selections.iter().map(|of| of.slot).collect();
        match Marks::with_slots(self.marks, &slots, 0) {
            Ok(marks) => to_listeners(&self.selections, (marks.mask, &marks.listeners)),
            Err(_) => Vec::new(),
        }
    }
}

impl Rules<'_> {
    /// The former sessions whose relay may still open connections, and their number.
    fn opening_sessions(&self) -> Option<(usize, &FormerSessions)> {
        let mask = self.plan.former_listeners.as_ref()?.marks.mask();
        let mut all = self.plan.former_sessions.iter().enumerate();
        all.find(|(_, former)| former.mask == mask)
    }

    /// The chain for clients' packets for half-open sockets, which have no mark.
    pub(super) fn half_open(&self) -> String {
        match self.opening_sessions() {
            None => "client_leg".to_owned(),
            Some((number, _)) => format!("former_client_leg_{number}"),
        }
    }

    /// Packets of clients whose sessions began under other numbers.
    pub(super) fn former_client_leg(number: usize, former: &FormerSessions) -> Chain {
        let zone = former.zone;
        Chain::regular(&format!("former_client_leg_{number}"))
            .rule(format!("ct zone set {zone} goto to_this_machine"))
    }

    /// Leads packets to the chains of client legs that began under other numbers, if they fit `condition`.
    pub(super) fn former_client_legs(&self, condition: &str) -> impl Iterator<Item = String> {
        let former = self.plan.former_sessions.iter().enumerate();
        former.map(move |(number, former)| {
            let socket = former.is_client_socket();
            format!("{condition}{socket} goto former_client_leg_{number}")
        })
    }

    /// Leads packets of servers to this machine, if the sessions began under other numbers.
    pub(super) fn former_server_legs(&self) -> impl Iterator<Item = String> {
        let former = self.plan.former_sessions.iter();
        former.map(|former| format!("{} goto to_this_machine", former.is_server_socket()))
    }
}
