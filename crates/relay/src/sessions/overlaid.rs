//! Sessions whose legs are hops of an overlay: what their connections measure.

use std::collections::BTreeMap;

use midspan_policy::overlay::{Congestion, LegReading};
use midspan_policy::{Leg, LegSample, SessionSample};
use midspan_units::{ByteSize, Time, TimeSpan};

use crate::overlay::{OverlayPart, SharedOverlay};
use crate::session::Session;
use crate::table::{Key, Table};

/// How often running sessions are read, and how many at most at a time.
const INTERVAL: TimeSpan = TimeSpan::from_seconds(1);
const AT_ONCE: usize = 64;

#[derive(Debug)]
struct Overlaid {
    key: Key,
    part: OverlayPart,
    /// Segments sent, and sent again, at the newest reading of each leg.
    read: [(u32, u32); 2],
}

/// The sessions of a thread whose legs are hops, by their number.
#[derive(Debug, Default)]
pub struct OverlaidSessions {
    sessions: BTreeMap<u64, Overlaid>,
    /// The newest reading, and the session that was read last.
    read: Time,
    after: u64,
    overlay: SharedOverlay,
}

impl OverlaidSessions {
    /// No sessions; their measurements go here.
    pub fn new(overlay: SharedOverlay) -> Self {
        Self {
            overlay,
            ..Self::default()
        }
    }

    /// A session of this listener begins.
    pub fn begin(&mut self, id: u64, key: Key, part: OverlayPart, listener: &str) {
        self.overlay.counts().note_session(listener, &part);
        let overlaid = Overlaid {
            key,
            part,
            read: [(0, 0); 2],
        };
        self.sessions.insert(id, overlaid);
    }

    /// All sessions have ended without a last reading.
    pub fn forget_all(&mut self) {
        self.sessions.clear();
    }

    /// Another relay has the session from now on, and measures nothing for the overlay.
    pub fn forget(&mut self, id: u64) {
        self.sessions.remove(&id);
    }

    /// Reads some of the sessions, in turn.
    pub fn read_some(&mut self, table: &mut Table<Session>, now: Time) {
        if self.sessions.is_empty() || now.since(self.read) < INTERVAL {
            return;
        }
        self.read = now;
        let next = self.sessions.range(self.after.saturating_add(1)..);
        let mut ids: Vec<u64> = next.take(AT_ONCE).map(|(id, _)| *id).collect();
        if ids.len() < AT_ONCE {
            let first = self.sessions.keys().take(AT_ONCE - ids.len()).copied();
            ids.extend(first.filter(|id| *id <= self.after));
        }
        for id in ids {
            self.after = id;
            if let Some(overlaid) = self.sessions.get_mut(&id)
                && let Some(session) = table.get_mut(overlaid.key)
                && let Ok(sample) = session.sample()
            {
                overlaid.read(now, session, &sample, &self.overlay);
            }
        }
    }

    /// A session has ended, with this last sample.
    pub fn end(&mut self, now: Time, id: u64, session: &Session, sample: &SessionSample) {
        let Some(mut overlaid) = self.sessions.remove(&id) else {
            return;
        };
        overlaid.read(now, session, sample, &self.overlay);
        if let (Some((site, left)), Some(lasted)) = (overlaid.part.left, sample.lasted) {
            let carried = session.record.bytes_to_client + session.record.bytes_to_server;
            let carried = (ByteSize::from_bytes(carried), lasted);
            self.overlay.known().note_ended(now, site, left, carried);
        }
    }
}

impl Overlaid {
    fn read(
        &mut self,
        now: Time,
        session: &Session,
        sample: &SessionSample,
        overlay: &SharedOverlay,
    ) {
        let legs = [Leg::Client, Leg::Server].into_iter();
        for ((leg, node), read) in legs.zip(&self.part.nodes).zip(&mut self.read) {
            let Some(node) = node else {
                continue;
            };
            let now_read = sample.leg(leg);
            let name = session.sockets().congestion_control(leg);
            if let Some(reading) = reading(now_read, read, name.as_deref()) {
                overlay.known().note_reading(now, node, &reading);
            }
        }
    }
}

/// What a leg has measured since the reading before, whose counters are `read`; `None` if the leg cannot
/// be read any more, so that its counters are zero.
fn reading(
    sample: &LegSample,
    read: &mut (u32, u32),
    congestion: Option<&str>,
) -> Option<LegReading> {
    let counters = (sample.segments_sent, sample.segments_retransmitted);
    let sent = counters.0.checked_sub(read.0)?;
    let lost = counters.1.checked_sub(read.1)?;
    *read = counters;
    Some(LegReading {
        round_trip: sample.round_trip_time,
        least_round_trip: sample.minimum_round_trip_time,
        sent: sent.into(),
        lost: lost.into(),
        rate: sample.delivery_rate.filter(|_| sent > 0),
        is_application_limited: sample.is_application_limited,
        congestion: congestion.map_or_else(Congestion::default, Congestion::of_name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_has_what_came_since_the_one_before() {
        let mut read = (0, 0);
        let at = |sent, again| LegSample {
            segments_sent: sent,
            segments_retransmitted: again,
            ..LegSample::default()
        };
        let first = reading(&at(100, 3), &mut read, Some("bbr")).unwrap();
        assert_eq!((first.sent, first.lost), (100, 3));
        assert_eq!(first.congestion, Congestion::Bbr);
        let second = reading(&at(150, 3), &mut read, None).unwrap();
        assert_eq!((second.sent, second.lost), (50, 0));
        // The socket has failed.
        assert_eq!(reading(&at(0, 0), &mut read, None), None);
    }
}
