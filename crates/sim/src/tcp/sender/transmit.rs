//! Chooses the next segment to send.

use midspan_units::Time;

use super::{DUPLICATE_THRESHOLD, Phase, Sender};
use crate::packet::{Data, DataKind};
use crate::tcp::timers::Timer;

impl Sender {
    #[inline]
    pub(super) fn next_segment(&mut self, now: Time) -> Option<Data> {
        match self.phase {
            Phase::Open => {}
            Phase::Synchronise => return Some(self.synchronise(now)),
            Phase::Closed | Phase::Synchronised => return None,
        }
        if self.uses_rack {
            return self.next_tracked(now);
        }
        if self.is_held_by_pacing(now) {
            return None;
        }
        if self.cut.is_some() {
            return self.take_cut();
        }
        if let Some(sequence) = self.resend.take() {
            return Some(self.send_again(now, sequence));
        }
        if self.recovering && self.is_selective() {
            // The fields are copied one by one, so that the other cases need not build the segment
            // in memory.
            let Data {
                kind,
                sequence,
                length,
            } = self.next_in_sack_recovery(now)?;
            return Some(Data {
                kind,
                sequence,
                length,
            });
        }
        if self.is_selective() {
            // After a time-out: data that has arrived is not sent again (RFC 6675 §5.1).
            self.next = self.scoreboard.skip(self.next).max(self.next);
        }
        self.next_in_window(now)
    }

    /// Whether the pacing rate holds the next segment back; if so, sets the timer for it.
    #[inline]
    fn is_held_by_pacing(&mut self, now: Time) -> bool {
        let held = self.configuration.pacing_rate.is_some() && now < self.next_release;
        if held {
            self.timers.set(Timer::Pacing, self.next_release);
        }
        held
    }

    /// The next segment from SND.NXT on, if the windows allow it.
    #[inline]
    fn next_in_window(&mut self, now: Time) -> Option<Data> {
        let edge = self.unacknowledged.saturating_add(self.own_window());
        let length = self.sendable(edge);
        if length == 0 {
            self.guard_closed_window(now);
            return self.probe.then(|| self.send_probe(now));
        }
        self.probe = false;
        let sequence = self.next;
        self.next += length;
        Some(self.send(now, sequence, length))
    }

    /// The smaller of cwnd and the flight limit, in bytes from SND.UNA.
    fn own_window(&self) -> u64 {
        (self.cwnd + self.beyond_cwnd()).min(self.flight_limit)
    }

    /// Bytes that may be sent beyond cwnd, because as many have left the network: with limited
    /// transmit (RFC 3042), one segment for each of the first two duplicate ACKs; with SACK, the
    /// bytes that the receiver reported (RFC 6675 §5, step 3).
    pub(super) fn beyond_cwnd(&self) -> u64 {
        let gone_back = self.next < self.highest;
        if self.is_selective() && (gone_back || self.configuration.limited_transmit) {
            self.scoreboard.held_below(self.next)
        } else if gone_back
            || self.recovering
            || self.duplicates >= DUPLICATE_THRESHOLD
            || !self.configuration.limited_transmit
        {
            0
        } else {
            u64::from(self.duplicates) * self.segment_size()
        }
    }

    /// How many bytes may be sent from SND.NXT on, as one segment; zero if it is better to wait.
    /// `own_edge` is the end of the sender's own window.
    pub(super) fn sendable(&self, own_edge: u64) -> u64 {
        let segment = self.segment_size();
        let full = segment.min(self.written - self.next);
        let edge = own_edge.min(self.peer_edge);
        if full == segment && self.next + segment <= edge {
            return segment;
        }
        if full == 0 || edge <= self.next {
            return 0;
        }
        let room = edge - self.next;
        if room >= full {
            // The last bytes that were written: RFC 9293 §3.7.4 (Nagle).
            let wait = self.configuration.nagle && self.next > self.unacknowledged;
            return if wait && self.next == self.highest {
                0
            } else {
                full
            };
        }
        // The receiver's window cuts the segment: only if it will never be much larger
        // (RFC 9293 §3.8.6.2.1).
        let cut_by_peer = self.peer_edge <= own_edge;
        if cut_by_peer && room >= self.largest_peer_window / 2 {
            room
        } else {
            0
        }
    }

    /// If nothing is in flight and the window is zero, only a probe can detect that it opens again.
    pub(super) fn guard_closed_window(&mut self, now: Time) {
        let idle = self.unacknowledged == self.highest;
        let waiting = self.written > self.next && idle;
        if waiting && !self.probe && !self.timers.is_running(Timer::Persist) {
            self.timers
                .set(Timer::Persist, now + self.round_trip.timeout());
        }
    }

    #[inline]
    pub(super) fn send_probe(&mut self, now: Time) -> Data {
        self.probe = false;
        self.counters.probes += 1;
        self.timers
            .set(Timer::Persist, now + self.round_trip.timeout());
        Data {
            kind: DataKind::Probe,
            sequence: self.unacknowledged,
            length: 0,
        }
    }

    #[inline]
    fn synchronise(&mut self, now: Time) -> Data {
        self.phase = Phase::Synchronised;
        self.counters.syns += 1;
        if !self.syn_resent {
            self.round_trip.start(now, 0, 0);
        }
        self.restart_timer(now);
        Data {
            kind: DataKind::Synchronise,
            sequence: 0,
            length: 0,
        }
    }

    /// Retransmits the segment at `sequence`, regardless of the window.
    #[inline]
    pub(super) fn send_again(&mut self, now: Time, sequence: u64) -> Data {
        let end = self
            .scoreboard
            .next_start(sequence)
            .unwrap_or(self.highest)
            .min(self.highest);
        let length = self.segment_size().min(end - sequence);
        // Otherwise, after a go-back, the window would send it a second time.
        self.next = self.next.max(sequence + length);
        self.send(now, sequence, length)
    }

    #[inline]
    pub(super) fn send(&mut self, now: Time, sequence: u64, length: u64) -> Data {
        let end = sequence + length;
        if self.configuration.duplicate_start.is_some() {
            self.begin_cut(sequence, length);
        }
        if self.tracker.is_some() {
            self.track_sent(now, sequence, length);
        }
        self.counters.segments += 1;
        if sequence < self.highest {
            // Retransmitted data may be beyond a limit that was lowered since.
            self.counters.retransmissions += 1;
            self.counters.bytes_retransmitted += length;
        } else {
            debug_assert!(
                end - self.unacknowledged <= self.flight_limit,
                "the window limit is exceeded"
            );
            debug_assert!(end <= self.peer_edge, "the receiver's window is exceeded");
            self.round_trip.start(now, self.unacknowledged, end);
            if self.configuration.hystart && self.cwnd < self.ssthresh {
                self.hystart.handle_sent(now, end);
            }
        }
        self.highest = self.highest.max(end);
        if !self.timers.is_running(Timer::Retransmission) {
            self.restart_timer(now);
        }
        if let Some(rate) = self.configuration.pacing_rate {
            let size = length + u64::from(self.configuration.header_size);
            self.next_release = now + rate.transmission_time(size);
        }
        Data {
            kind: DataKind::Payload,
            sequence,
            // At most a segment.
            length: u32::try_from(length).unwrap_or(self.configuration.segment_size),
        }
    }
}
