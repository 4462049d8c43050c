//! What is to be intercepted, and where rules, routes and marks take their place.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use thiserror::Error;

use super::left_alone::LeftAlone;
use crate::initial_window::MarkField;
use midspan_linux::netlink::Prefix;

/// Where rules, routes and marks are taken from, so that they live beside those of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the nftables tables; the ones for the queue add `_queue`.
    pub table: String,
    /// The bits of a packet's mark that are ours; shared with the initial windows, which take
    /// the low values.
    pub marks: MarkField,
    /// Number of the routing table that leads to this machine.
    pub routing_table: u32,
    /// Priority of the rules that lead there; before those of other users of marks.
    pub rule_priority: u32,
    /// Conntrack zone of client legs; server legs take the next one.
    pub zone: u16,
    /// Number of the queue for SYNs (NFQUEUE).
    pub queue: u16,
    /// Priority of the chain that takes SYNs, in the hook `forward`: behind the host's filter,
    /// so that what it refuses is refused. The next two are taken as well.
    pub forward_priority: i32,
}

impl Place {
    /// Another place beside this one, for rules that are in force for a moment only, to try the
    /// host's firewall. Marks and zones are the same.
    #[must_use]
    pub fn trial(&self) -> Self {
        Self {
            table: format!("{}_check", self.table),
            routing_table: self.routing_table.saturating_add(1),
            ..self.clone()
        }
    }

    /// Conntrack zone in which server legs call.
    #[must_use]
    pub const fn server_zone(&self) -> u16 {
        self.zone.wrapping_add(1)
    }
}

/// Which connections a listener takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Which of the [marks of listeners](Marks::listeners) it has: a number from 0, its own. A
    /// selection keeps it when the plan changes, since packets under way carry the mark.
    pub slot: usize,
    /// Interfaces at which clients arrive; a name may end in `*`.
    pub interfaces: Vec<String>,
    /// Port of the IPv4 listener on 127.0.0.1; `None` leaves IPv4 alone.
    pub ipv4_port: Option<u16>,
    /// Port of the IPv6 listener on ::1; `None` leaves IPv6 alone.
    pub ipv6_port: Option<u16>,
    /// Destination ports to take; empty for all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Destination ports to leave alone.
    pub except_ports: Vec<RangeInclusive<u16>>,
    /// Servers and clients to leave alone.
    pub except: Vec<Prefix>,
    /// Further sockets of the listener.
    pub rungs: Vec<Rung>,
}

/// Sockets of a listener that have a mark of their own, and so an initial window: a SYN that is sent
/// again with this hop limit (TTL) goes to them. It never leaves the machine, so that the hop limit
/// is free to say so, where marks are few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rung {
    /// The hop limit.
    pub hop_limit: u8,
    /// Port of the IPv4 listener on 127.0.0.1.
    pub ipv4_port: Option<u16>,
    /// Port of the IPv6 listener on ::1.
    pub ipv6_port: Option<u16>,
}

/// All that is to be intercepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where rules, routes and marks are taken from.
    pub place: Place,
    /// What each listener takes; for a connection the first that fits.
    pub selections: Vec<Selection>,
    /// Interfaces at which clients of earlier selections may still be: their connections go on.
    pub more_interfaces: BTreeSet<String>,
    /// New connections from and to these hosts pass untouched.
    pub bypasses: Vec<Prefix>,
    /// New connections between these pass untouched for a while.
    pub left_alone: LeftAlone,
    /// Marks that sockets towards clients may have, besides [`Marks::client_leg`].
    pub client_leg_marks: BTreeSet<u32>,
    /// Marks that sockets towards servers may have, besides [`Marks::server_leg`].
    pub server_leg_marks: BTreeSet<u32>,
}

impl Plan {
    /// Whether connections of IPv6 are taken.
    #[must_use]
    pub fn takes_ipv6(&self) -> bool {
        (self.selections.iter()).any(|selection| selection.ipv6_port.is_some())
    }

    /// Takes no connections of IPv6.
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
    /// The bits that are ours.
    pub mask: u32,
    /// Of sockets towards clients.
    pub client_leg: u32,
    /// Of sockets towards servers.
    pub server_leg: u32,
    /// Of a SYN that is to be answered with a RST.
    pub refused: u32,
    /// Of a SYN that passes untouched, and whose client's next packet is of interest if no answer
    /// comes by.
    pub watched: u32,
    /// Of SYNs for each listener; at least one. The first also leads all packets for our sockets
    /// to them.
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

/// Marks besides those of the listeners.
const FIXED: usize = 4;

impl Marks {
    /// Marks besides those of listeners.
    pub const BESIDES_LISTENERS: usize = FIXED;

    /// The marks for so many transparent listeners, beside `others` that are taken from the low
    /// end of the field.
    ///
    /// # Errors
    /// The field is too small.
    pub fn new(field: MarkField, listeners: usize, others: usize) -> Result<Self, TooFewMarks> {
        let slots: Vec<usize> = (0..listeners).collect();
        Self::with_slots(field, &slots, others)
    }

    /// The same for listeners with these [slots](Selection::slot).
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
            // The last packets of a listener that has gone need a way too.
            listeners: match slots {
                [] => vec![get(FIXED)?],
                slots => (slots.iter().map(|slot| get(FIXED.saturating_add(*slot))))
                    .collect::<Result<_, _>>()?,
            },
        })
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
