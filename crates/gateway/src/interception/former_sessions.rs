//! Rules for sessions that began under other marks and another zone, before an upgrade changed these numbers.
//!
//! The marks are in the sessions' sockets, and the zones in their entries of connection tracking. Neither changes
//! before a session ends, so the rules recognise these sessions by their own numbers.

use super::chain::Chain;
use super::mark_matches::{marked, socket_marked, to_listeners};
use super::plan::{FormerListeners, FormerSessions, Marks, Plan};

impl FormerSessions {
    /// The condition that a packet's socket leads to a client.
    pub(super) fn is_client_socket(&self) -> String {
        socket_marked(self.mask, &self.client_leg_marks)
    }

    /// The condition that a packet's socket leads to a server.
    pub(super) fn is_server_socket(&self) -> String {
        socket_marked(self.mask, &self.server_leg_marks)
    }

    /// Packets of their clients; `number` is their place in the plan.
    pub(super) fn client_leg(&self, number: usize) -> Chain {
        let zone = self.zone;
        Chain::regular(&format!("former_client_leg_{number}"))
            .rule(format!("ct zone set {zone} goto to_this_machine"))
    }

    /// Rules for packets of these sessions at the hook `output`: they keep their zones.
    fn output(&self) -> [String; 2] {
        let clients = marked(self.mask, &self.client_leg_marks);
        let servers = marked(self.mask, &self.server_leg_marks);
        [
            format!("{clients} ct zone set {}", self.zone),
            format!("{servers} ct original zone set {}", self.server_zone()),
        ]
    }
}

impl FormerListeners {
    /// Rules for SYNs that the former relay sends again.
    pub(super) fn syns_sent_again(&self) -> Vec<String> {
        match self.listener_marks() {
            Some(marks) => to_listeners(&self.selections, (marks.mask, &marks.listeners)),
            None => Vec::new(),
        }
    }

    /// The condition that a packet is a SYN that the former relay sends again.
    fn is_syn_sent_again(&self) -> Option<String> {
        let marks = self.listener_marks()?;
        Some(marked(marks.mask, &marks.listeners))
    }

    /// `None` if the mark field is too small, so that no connection was intercepted.
    fn listener_marks(&self) -> Option<Marks> {
        let slots: Vec<usize> = self.selections.iter().map(|of| of.slot).collect();
        Marks::with_slots(self.marks, &slots, 0).ok()
    }
}

impl Plan {
    /// The former sessions whose relay may still open connections, and their number.
    fn opening_sessions(&self) -> Option<(usize, &FormerSessions)> {
        let mask = self.former_listeners.as_ref()?.marks.mask();
        let mut all = self.former_sessions.iter().enumerate();
        all.find(|(_, former)| former.mask == mask)
    }

    /// The chain for clients' packets for half-open sockets, which have no mark.
    pub(super) fn half_open(&self) -> String {
        match self.opening_sessions() {
            None => "client_leg".to_owned(),
            Some((number, _)) => format!("former_client_leg_{number}"),
        }
    }

    /// Leads packets to the chains of client legs that began under other numbers, if they fit `condition`.
    pub(super) fn former_client_legs(&self, condition: &str) -> impl Iterator<Item = String> {
        let former = self.former_sessions.iter().enumerate();
        former.map(move |(number, former)| {
            let socket = former.is_client_socket();
            format!("{condition}{socket} goto former_client_leg_{number}")
        })
    }

    /// Rules for packets of former sessions and listeners at the hook `output`: they keep their zones.
    ///
    /// A SYN that the former relay sends again has no entry in connection tracking yet. In no zone, its entry would
    /// have the same answers as the server leg, and the kernel would drop the SYN or change its port.
    pub(super) fn former_output(&self) -> impl Iterator<Item = String> {
        let opening = self.opening_sessions();
        let zone = opening.map_or(self.numbers.zone, |(_, former)| former.zone);
        let syns = self.former_syns_sent_again();
        let sessions = self.former_sessions.iter().flat_map(FormerSessions::output);
        (syns
            .map(|syns| format!("{syns} ct zone set {zone}"))
            .into_iter())
        .chain(sessions)
    }

    /// The condition that a packet is a SYN that the former relay sends again; `None` if there is no such relay.
    pub(super) fn former_syns_sent_again(&self) -> Option<String> {
        (self.former_listeners.as_ref()).and_then(FormerListeners::is_syn_sent_again)
    }

    /// Leads packets of servers to this machine, if the sessions began under other numbers.
    pub(super) fn former_server_legs(&self) -> impl Iterator<Item = String> {
        let former = self.former_sessions.iter();
        former.map(|former| format!("{} goto to_this_machine", former.is_server_socket()))
    }
}
