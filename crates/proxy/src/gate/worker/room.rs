//! Room for another SYN: a place in the table, and memory.

use std::net::IpAddr;
use std::sync::Arc;

use midspan_policy::Request;
use midspan_relay::{Reception, Seat, SetAside, Shortage};

use super::super::held::Packet;
use super::super::statistics::count;
use super::super::syn::{self, Syn};
use super::Worker;

/// Most SYNs that make room for one new connection: of its client, and of all clients.
const ROOMS_AT_ONCE: usize = 3;
/// Memory of a held SYN in addition to the packet: the server leg's socket and the gate's own data.
const EACH_HELD: u64 = 6 << 10;
/// The kernel uses about twice a packet's bytes as memory, and more for fragments.
const HELD_FACTOR: u64 = 2;

impl Worker {
    /// The state in which a SYN finds its connection, after others have made room.
    pub(super) fn arrive(&mut self, syn: &Syn) -> Reception {
        for _ in 0..ROOMS_AT_ONCE {
            match (self.shared.openings).arrive(syn.request, syn.sequence, self.now) {
                Reception::FullBut(other) => self.make_room(other),
                reception => return reception,
            }
        }
        Reception::Full
    }

    /// Lets a SYN whose client is overdue pass untouched, so that there is room for a new one.
    pub(super) fn make_room(&mut self, request: Request) {
        match self.take_held(|all| all.take_of(request)) {
            None => {
                self.shared.openings.forget(request);
            }
            // The server may have answered since this turn began.
            Some(held) if held.call.is_answered() => self.answer(held),
            Some(held) => {
                count(&self.counters.passed_overdue);
                self.end_call(held.call, request);
                self.leave(held.packet.id, request);
            }
        }
    }

    /// Sets memory aside for a SYN of this length. If all memory for held SYNs is in use, one whose
    /// client is overdue makes room.
    pub(super) fn set_aside(&mut self, length: u32) -> Result<SetAside, Shortage> {
        let limits = Arc::clone(&self.shared.limits);
        let bytes = EACH_HELD + u64::from(length) * HELD_FACTOR;
        for _ in 0..ROOMS_AT_ONCE {
            if let Some(set_aside) = limits.set_aside_to_open(bytes) {
                return Ok(set_aside);
            }
            let Some(overdue) = self.shared.openings.overdue_held(self.now) else {
                break;
            };
            self.make_room(overdue);
        }
        limits.log(Shortage::Memory);
        Err(Shortage::Memory)
    }

    /// Whether the operator drains a client of this listener.
    pub(super) fn drains(&self, client: IpAddr, listener: usize) -> bool {
        let known = self.listeners.get(listener);
        known.is_some_and(|known| known.listener.drains(client))
    }

    /// Counts a connection that passes untouched because of this shortage.
    pub(super) fn count_shortage(&self, shortage: Shortage) {
        count(match shortage {
            Shortage::Sessions => &self.counters.passed_sessions,
            Shortage::Client => &self.counters.passed_client,
            Shortage::ClientRate => &self.counters.passed_client_rate,
            Shortage::Memory => &self.counters.passed_memory,
            Shortage::Descriptors => &self.counters.passed_descriptors,
        });
    }

    /// Gets a place for a connection among the relay's sessions.
    pub(super) fn take_seat(
        &self,
        request: Request,
        listener: usize,
    ) -> Result<Option<Seat>, Shortage> {
        match self.listeners.get(listener) {
            Some(known) => {
                let (limits, client) = (&self.shared.limits, request.client.ip());
                limits.take(&known.listener.name, client, self.relay_time())
            }
            None => Ok(None),
        }
    }
}

/// Removes the data of a SYN; `false` if this is not possible and the SYN has more data than was
/// copied.
pub(super) fn shorten(packet: &mut Packet) -> bool {
    match syn::data_length(&packet.bytes, packet.length) {
        Some(0) => true,
        Some(_) => match syn::without_data(&packet.bytes) {
            Some(cut) => {
                packet.bytes = cut;
                true
            }
            None => false,
        },
        None => packet.bytes.len() as u64 >= u64::from(packet.length),
    }
}
