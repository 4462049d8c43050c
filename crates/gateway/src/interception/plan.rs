//! What is to be intercepted, and the names and numbers that rules, routes and marks use.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::left_alone::LeftAlone;
use crate::initial_window::MarkField;
use ipnet::IpNet;

/// The names and numbers of Midspan's rules, routes and marks, chosen so that they do not collide
/// with those of other programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterceptionNumbers {
    /// Name of the nftables tables. The tables for the queue add `_queue`.
    pub table: String,
    /// The bits of a packet's mark that belong to Midspan. The initial windows use the low values
    /// of the same field.
    pub marks: MarkField,
    /// Number of the routing table that leads to this machine.
    pub routing_table: u32,
    /// Priority of the rules that lead to this routing table. It is before those of other programs
    /// that use marks.
    pub rule_priority: u32,
    /// Zone of connection tracking for client legs. Server legs use the next zone.
    pub zone: u16,
    /// Number of the queue for SYNs (NFQUEUE).
    pub queue: u16,
    /// Priority of the chain that intercepts SYNs, in the hook `forward`. It is after the host's
    /// filter, so that the filter can refuse a connection. Midspan also uses the next three
    /// priorities.
    pub forward_priority: i32,
}

impl InterceptionNumbers {
    /// Other names and numbers, for rules that are in force for a moment only, to try the host's firewall.
    /// Marks and zones are the same.
    #[must_use]
    pub fn trial(&self) -> Self {
        Self {
            table: format!("{}_check", self.table),
            routing_table: self.routing_table.saturating_add(1),
            ..self.clone()
        }
    }

    /// Zone of connection tracking for server legs.
    #[must_use]
    pub const fn server_zone(&self) -> u16 {
        self.zone.wrapping_add(1)
    }
}

/// Which connections a listener intercepts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// The index of this listener's [mark](Marks::listeners), from 0. Each selection has its own.
    /// It keeps the number when the plan changes, because packets in flight have the mark.
    pub slot: usize,
    /// Interfaces at which clients arrive; a name may end in `*`.
    pub interfaces: Vec<String>,
    /// Port of the IPv4 listener on 127.0.0.1. With `None`, IPv4 connections pass untouched.
    pub ipv4_port: Option<u16>,
    /// Port of the IPv6 listener on ::1. With `None`, IPv6 connections pass untouched.
    pub ipv6_port: Option<u16>,
    /// Destination ports whose connections are intercepted; empty for all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Destination ports whose connections pass untouched.
    pub except_ports: Vec<RangeInclusive<u16>>,
    /// Servers and clients whose connections pass untouched.
    pub except: Vec<IpNet>,
    /// Whether new connections of QUIC (UDP port 443) are rejected, so that clients use TCP.
    pub rejects_quic: bool,
    /// For how long the host's firewall is not asked again about a client, a server and its port, in whole seconds;
    /// with `None`, it is asked about each connection. Its connections meanwhile take the
    /// express lane (`express_lane`).
    pub firewall_cache: Option<Duration>,
    /// Further sockets of the listener.
    pub rungs: Vec<Rung>,
}

/// Sockets of a listener with a mark of their own, and therefore with an initial window of their
/// own. A SYN that is sent again with this hop limit (TTL) goes to these sockets. Marks are few,
/// and the SYN never leaves the machine; therefore its hop limit can select the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rung {
    /// The hop limit.
    pub hop_limit: u8,
    /// Port of the IPv4 listener on 127.0.0.1.
    pub ipv4_port: Option<u16>,
    /// Port of the IPv6 listener on ::1.
    pub ipv6_port: Option<u16>,
}

/// Everything that is to be intercepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The names and numbers of rules, routes and marks.
    pub numbers: InterceptionNumbers,
    /// The connections of each listener. The first selection that matches a connection applies.
    pub selections: Vec<Selection>,
    /// Whether server legs of other listeners have the addresses of clients, too.
    pub as_clients: bool,
    /// Interfaces at which clients of earlier selections may still be. Their connections continue.
    pub more_interfaces: BTreeSet<String>,
    /// New connections from and to these hosts pass untouched.
    pub bypasses: Vec<IpNet>,
    /// New connections between these pairs pass untouched for a while.
    pub left_alone: LeftAlone,
    /// Marks that sockets towards clients may have, in addition to [`Marks::client_leg`].
    pub client_leg_marks: BTreeSet<u32>,
    /// Marks that sockets towards servers may have, in addition to [`Marks::server_leg`].
    pub server_leg_marks: BTreeSet<u32>,
    /// Sessions that began under other marks and zones. They continue.
    pub former_sessions: Vec<FormerSessions>,
    /// The former listeners, if they have other marks or sockets, and as long as their relay may open connections.
    /// Half-open sockets belong to these listeners.
    pub former_listeners: Option<FormerListeners>,
}

impl Plan {
    /// Whether IPv4 connections are intercepted.
    #[must_use]
    pub fn takes_ipv4(&self) -> bool {
        (self.selections.iter()).any(|selection| selection.ipv4_port.is_some())
    }

    /// Whether IPv6 connections are intercepted.
    #[must_use]
    pub fn takes_ipv6(&self) -> bool {
        (self.selections.iter()).any(|selection| selection.ipv6_port.is_some())
    }

    /// Whether packets of IPv6 connections have to reach this machine although they are for other addresses.
    pub(super) fn delivers_ipv6(&self) -> bool {
        self.as_clients || self.takes_ipv6()
    }

    /// The interfaces of clients, each once.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = Vec::new();
        let selected = self.selections.iter().flat_map(|s| &s.interfaces);
        for name in selected.chain(&self.more_interfaces) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names.into_iter()
    }

    /// The same plan, whatever ports the listeners' sockets have: if the kernel accepts the rules of one such plan, it
    /// accepts those of the others.
    #[must_use]
    pub fn without_ports(&self) -> Self {
        let mut plan = self.clone();
        for selection in &mut plan.selections {
            let own = [&mut selection.ipv4_port, &mut selection.ipv6_port];
            let rungs = selection.rungs.iter_mut();
            let all = rungs.flat_map(|rung| [&mut rung.ipv4_port, &mut rung.ipv6_port]);
            for port in own.into_iter().chain(all).flatten() {
                *port = 0;
            }
        }
        plan
    }

    /// Lets IPv6 connections pass untouched.
    pub(super) fn leave_out_ipv6(&mut self) {
        for selection in &mut self.selections {
            selection.ipv6_port = None;
            for rung in &mut selection.rungs {
                rung.ipv6_port = None;
            }
        }
    }
}

/// The marks of interception: the highest values of the field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// The bits that belong to Midspan.
    pub mask: u32,
    /// The mark of sockets towards clients.
    pub client_leg: u32,
    /// The mark of sockets towards servers.
    pub server_leg: u32,
    /// The mark of a SYN that is answered with a RST.
    pub refused: u32,
    /// The mark of a SYN that passes untouched and whose connection is watched: the client's next
    /// packet matters if the server's answer does not pass this machine.
    pub watched: u32,
    /// The marks of SYNs for each listener; at least one. The first also leads all packets for
    /// Midspan's sockets to these sockets.
    pub listeners: Vec<u32>,
}

/// The mark field is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "{listeners} transparent listeners and {others} initial windows need {} marks, and the field \
     {mask:#010x} has {possible}: widen marks.mask",
    listeners + others + FIXED
)]
pub struct TooFewMarks {
    listeners: usize,
    others: usize,
    mask: u32,
    possible: u32,
}

/// The number of marks that do not belong to listeners.
const FIXED: usize = 4;

impl Marks {
    /// The number of marks that do not belong to listeners.
    pub const BESIDES_LISTENERS: usize = FIXED;

    /// The marks for `listeners` transparent listeners, if `others` marks are used from the low end
    /// of the field.
    ///
    /// # Errors
    /// The field is too small.
    pub fn new(field: MarkField, listeners: usize, others: usize) -> Result<Self, TooFewMarks> {
        let slots: Vec<usize> = (0..listeners).collect();
        Self::with_slots(field, &slots, others)
    }

    /// The marks for listeners with these [slots](Selection::slot).
    ///
    /// # Errors
    /// The field is too small.
    pub fn with_slots(
        field: MarkField,
        slots: &[usize],
        others: usize,
    ) -> Result<Self, TooFewMarks> {
        let listeners = slots.iter().max().map_or(0, |slot| slot.saturating_add(1));
        let possible = field.count();
        let too_few = || TooFewMarks {
            listeners,
            others,
            mask: field.mask(),
            possible,
        };
        let wanted = listeners
            .max(1)
            .saturating_add(others)
            .saturating_add(FIXED);
        if u32::try_from(wanted).map_or(true, |wanted| wanted > possible) {
            return Err(too_few());
        }
        let from_top = |index: usize| {
            let index = u32::try_from(index).ok()?;
            field.value(possible.checked_sub(index + 1)?)
        };
        let get = |index: usize| from_top(index).ok_or_else(too_few);
        Ok(Self {
            mask: field.mask(),
            client_leg: get(0)?,
            server_leg: get(1)?,
            refused: get(2)?,
            watched: get(3)?,
            // Without listeners, one mark is still needed, for the last packets of a removed
            // listener.
            listeners: match slots {
                [] => vec![get(FIXED)?],
                slots => (slots.iter().map(|slot| get(FIXED.saturating_add(*slot))))
                    .collect::<Result<_, _>>()?,
            },
        })
    }
}

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

    /// Whether sessions under `numbers` are distinct from these sessions: no bit of a mark belongs to both, or all
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
}

/// The listeners of the former relay, which may still open connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerListeners {
    /// The bits of a mark that belonged to Midspan.
    pub marks: MarkField,
    /// The sockets of each listener.
    pub selections: Vec<Selection>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_keeps_its_mark_when_another_goes() {
        let field = MarkField::new(0x0f00_0000).unwrap();
        let all = Marks::with_slots(field, &[0, 1, 2], 0).unwrap();
        let without = Marks::with_slots(field, &[0, 2], 0).unwrap();
        assert_eq!(without.listeners, [all.listeners[0], all.listeners[2]]);
        assert_eq!(Marks::with_slots(field, &[], 0).unwrap().listeners.len(), 1);
        assert!(Marks::with_slots(field, &[12], 0).is_err());
    }

    #[test]
    fn marks_come_from_the_top_and_leave_room_for_the_others() {
        let field = MarkField::new(0x0f00_0000).unwrap();
        let marks = Marks::new(field, 2, 9).unwrap();
        assert_eq!(marks.client_leg, 0x0f00_0000);
        assert_eq!(marks.server_leg, 0x0e00_0000);
        assert_eq!(marks.refused, 0x0d00_0000);
        assert_eq!(marks.watched, 0x0c00_0000);
        assert_eq!(marks.listeners, [0x0b00_0000, 0x0a00_0000]);
        let error = Marks::new(field, 2, 10).unwrap_err().to_string();
        assert!(error.contains("need 16 marks"), "{error}");
    }
}
