//! Directions that may have a [low-water mark](midspan_policy::low_water_mark): fast bulk transfers, of which a thread
//! has few.

use midspan_policy::Leg;
use midspan_policy::low_water_mark::{LowWaterMark, MarkChange};
use midspan_units::Time;

use super::Session;
use crate::system;
use crate::table::{Key, Table};

/// Most such directions of one thread. A faster transfer takes the place of one without a mark.
const MOST: usize = 16;
/// A direction that carries this many bytes in one turn may be a fast one. A turn may carry a single packet, which has less
/// than 64 KiB.
const FAST_TURN: u64 = 32 << 10;

/// The marks of one thread.
#[derive(Debug, Default)]
pub struct LowWaterMarks {
    entries: Vec<Entry>,
    /// No mark is set any more.
    is_over: bool,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    inbound: Leg,
    mark: LowWaterMark,
}

impl LowWaterMarks {
    /// A session has had a turn. `before`: the bytes that it had carried [before](Session::carried) the turn.
    pub fn note_turn(&mut self, key: Key, session: &Session, before: [u64; 2], now: Time) {
        if self.is_over {
            return;
        }
        let carried = session.carried();
        for inbound in [Leg::Client, Leg::Server] {
            let of = |bytes: &[u64; 2]| bytes[inbound as usize];
            if of(&carried).saturating_sub(of(&before)) < FAST_TURN || session.is_bounded(inbound) {
                continue;
            }
            let both = [of(&carried), carried[inbound.other() as usize]];
            let is_it = |entry: &Entry| entry.key == key && entry.inbound == inbound;
            match self.entries.iter_mut().find(|entry| is_it(entry)) {
                Some(entry) => {
                    let change = entry.mark.handle_read(now, both);
                    carry_out(change, session, inbound);
                }
                None => self.begin(Entry {
                    key,
                    inbound,
                    mark: LowWaterMark::new(now, both),
                }),
            }
        }
    }

    fn begin(&mut self, entry: Entry) {
        if self.entries.len() < MOST {
            self.entries.push(entry);
        } else if let Some(place) = self.entries.iter_mut().find(|entry| !entry.mark.is_set()) {
            *place = entry;
        }
    }

    /// When the rest of a transfer may have to be reported.
    pub fn next_timeout(&self) -> Option<Time> {
        let timeouts = self.entries.iter().map(|entry| entry.mark.poll_timeout());
        timeouts.flatten().min()
    }

    /// Removes marks under which nothing has been reported for too long: the kernel then reports what has arrived.
    pub fn handle_timeouts(&mut self, sessions: &mut Table<Session>, now: Time) {
        self.entries.retain_mut(|entry| {
            let Some(session) = sessions.get_mut(entry.key) else {
                return false;
            };
            carry_out(entry.mark.handle_timeout(now), session, entry.inbound);
            true
        });
    }

    /// Removes all marks and sets none any more: another relay, which does not know of them, gets the sessions.
    pub fn end(&mut self, sessions: &mut Table<Session>) {
        self.is_over = true;
        for entry in self.entries.drain(..).filter(|entry| entry.mark.is_set()) {
            if let Some(session) = sessions.get_mut(entry.key) {
                carry_out(Some(MarkChange::Remove), session, entry.inbound);
            }
        }
    }

    /// All sessions have ended.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// If the kernel refuses a mark, it continues to report everything. It does not refuse to remove one.
fn carry_out(change: Option<MarkChange>, session: &Session, inbound: Leg) {
    let bytes = match change {
        None => return,
        Some(MarkChange::Set(bytes)) => bytes,
        Some(MarkChange::Remove) => 1,
    };
    let _ = system::set_low_water_mark(session.sockets().of(inbound), bytes);
}
