//! Chooses the next segment of a sender with tracked segments: lost segments first, and bursts at the pacing rate.

use midspan_units::{Time, TimeSpan};

use super::Sender;
use super::bbr::LossState;
use super::tracker::{Forced, Pending};
use crate::packet::{Data, DataKind};
use crate::tcp::timers::Timer;

/// As in `fq`, the first segments are not paced.
const UNPACED: u64 = 10;

impl Sender {
    #[inline(never)]
    pub(super) fn next_tracked(&mut self, now: Time) -> Option<Data> {
        if self.cut.is_some() {
            return self.take_cut();
        }
        if self.is_bbr() && self.tracker.as_ref()?.bbr.is_none() {
            // Without a handshake, the connection is open from the start.
            self.begin_tracking(now);
        }
        let forced = self.tracker.as_mut()?.recovery.forced.take();
        match forced {
            Some(Forced::First) => {
                let most = self.segment_size();
                let first = self.tracker.as_mut()?.segments.first(most)?;
                return Some(self.send_tracked(now, first.start, first.length()));
            }
            Some(Forced::Probe) => return self.send_probe_of_tail(now),
            None => {}
        }
        let resends = self.may_resend();
        if !self.may_leave(now, resends) {
            return None;
        }
        let most = self.segment_size();
        let tracker = self.tracker.as_mut()?;
        let window = self.cwnd / most;
        let has_room = tracker.segments.in_flight() < window;
        if has_room && resends {
            let lost = tracker.segments.next_to_resend(most)?;
            // What does not continue the burst is a burst of its own.
            let continues = tracker.pace.burst == (now, lost.start);
            if tracker.pace.left == 0 || !continues {
                if self.is_held(now) {
                    return None;
                }
                self.begin_burst(now);
            }
            return Some(self.send_tracked(now, lost.start, lost.length()));
        }
        let limit = self.unacknowledged.saturating_add(self.flight_limit);
        let length = if has_room { self.sendable(limit) } else { 0 };
        if length == 0 {
            self.guard_closed_window(now);
            return self.probe.then(|| self.send_probe(now));
        }
        self.probe = false;
        let tracker = self.tracker.as_mut()?;
        let continues = tracker.pace.burst == (now, self.next);
        if tracker.pace.left == 0 || !continues {
            if self.is_held(now) {
                return None;
            }
            self.begin_burst(now);
        }
        Some(self.send_tracked(now, self.next, length))
    }

    /// Whether lost segments go before new data. After a time-out that may be spurious, new data
    /// shows whether it was (RFC 5682).
    fn may_resend(&self) -> bool {
        self.tracker.as_ref().is_some_and(|tracker| {
            let recovery = &tracker.recovery;
            let waits = recovery.state == LossState::TimedOut && recovery.may_be_spurious;
            tracker.segments.has_to_resend() && !waits
        })
    }

    /// Whether anything may leave now; if not, sets the timer of the pacing rate.
    fn may_leave(&mut self, now: Time, resends: bool) -> bool {
        let Some(tracker) = &self.tracker else {
            return false;
        };
        let has_data = resends || self.written > self.next;
        let in_burst = tracker.pace.left > 0 && tracker.pace.burst.0 == now;
        !has_data || in_burst || !self.is_held(now)
    }

    /// Whether the pacing rate holds the next burst back; if so, sets the timer for it.
    fn is_held(&mut self, now: Time) -> bool {
        let release = self
            .tracker
            .as_ref()
            .map_or(now, |tracker| tracker.pace.release);
        let held = now < release;
        if held {
            self.timers.set(Timer::Pacing, release);
        }
        held
    }

    /// Whether cwnd, loss recovery or pacing holds the next segment back.
    pub(super) fn is_held_back(&self, now: Time) -> bool {
        let window = self.cwnd / self.segment_size();
        self.tracker.as_ref().is_some_and(|tracker| {
            tracker.segments.in_flight() >= window
                || tracker.recovery.state != LossState::Open
                || tracker.pace.release > now
        })
    }

    fn begin_burst(&mut self, now: Time) {
        let segment = self.segment_size();
        if let Some(tracker) = &mut self.tracker {
            let shortest = tracker.timing.shortest();
            let burst = tracker.bbr.as_ref();
            tracker.pace.left = burst.map_or(1, |bbr| bbr.burst(segment, shortest));
            tracker.pace.credit = now.since(tracker.pace.release);
            tracker.pace.release = tracker.pace.release.max(now);
        }
    }

    /// A probe for a lost tail: new data if there is any, or the last segment again.
    fn send_probe_of_tail(&mut self, now: Time) -> Option<Data> {
        let limit = self.unacknowledged.saturating_add(self.flight_limit);
        let length = self.sendable(limit);
        if length > 0 {
            let sent = self.send_tracked(now, self.next, length);
            self.arm(now, Pending::Timeout);
            return Some(sent);
        }
        let most = self.segment_size();
        let tracker = self.tracker.as_mut()?;
        if let Some(probe) = &mut tracker.recovery.probe {
            probe.is_resent = true;
        }
        let last = tracker.segments.last(most)?;
        Some(self.send_tracked(now, last.start, last.length()))
    }

    fn send_tracked(&mut self, now: Time, sequence: u64, length: u64) -> Data {
        let end = sequence + length;
        if self.configuration.duplicate_start.is_some() {
            self.begin_cut(sequence, length);
        }
        self.leave_idle(now);
        self.track_sent(now, sequence, length);
        self.counters.segments += 1;
        let is_new = sequence >= self.highest;
        let is_first = sequence == self.unacknowledged;
        if is_new {
            debug_assert!(end <= self.peer_edge, "the receiver's window is exceeded");
            self.highest = end;
            self.next = end;
        } else {
            self.counters.retransmissions += 1;
            self.counters.bytes_retransmitted += length;
        }
        self.control_sent(now, end, is_new);
        self.pace_sent(now, end, length);
        if is_new {
            let pending = self
                .tracker
                .as_ref()
                .map(|tracker| tracker.recovery.pending);
            let running = self.timers.is_running(Timer::Retransmission);
            let by_timeout = !running || pending == Some(Pending::Probe);
            if by_timeout && !self.schedule_probe(now, true) {
                self.arm(now, Pending::Timeout);
            } else if running && pending == Some(Pending::Timeout) {
                self.schedule_probe(now, true);
            }
        } else if is_first
            && self
                .tracker
                .as_ref()
                .is_some_and(|tracker| tracker.recovery.pending != Pending::Reordering)
        {
            self.arm(now, Pending::Timeout);
        }
        Data {
            kind: DataKind::Payload,
            sequence,
            // At most a segment.
            length: u32::try_from(length).unwrap_or(self.configuration.segment_size),
        }
    }

    /// If nothing is in flight, BBR begins again from idle.
    fn leave_idle(&mut self, now: Time) {
        let is_idle =
            (self.tracker.as_ref()).is_some_and(|tracker| tracker.segments.in_flight() == 0);
        if !is_idle {
            return;
        }
        if let Some(connection) = self.connection(now)
            && let Some(tracker) = &mut self.tracker
            && let Some(bbr) = &mut tracker.bbr
        {
            let window = bbr.handle_start(&connection);
            self.set_window(window);
        }
    }

    /// The next burst leaves when this one has taken its time at the pacing rate. A burst of BBR that left
    /// late makes up for at most half of its time. Without BBR, the rate includes headers.
    fn pace_sent(&mut self, now: Time, end: u64, length: u64) {
        let segments = self.counters.segments;
        let size = length + u64::from(self.configuration.header_size);
        let highest_rate = self.configuration.pacing_rate;
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let rate = tracker.bbr.as_ref().map(|bbr| bbr.pacing_rate());
        let pace = &mut tracker.pace;
        pace.left = pace.left.saturating_sub(1);
        pace.burst = (now, end);
        pace.release = pace.release.max(now);
        let Some(rate) = rate else {
            pace.release +=
                highest_rate.map_or(TimeSpan::ZERO, |rate| rate.transmission_time(size));
            return;
        };
        if rate == 0 || segments <= UNPACED {
            return;
        }
        let time = u128::from(length) * 1_000_000_000 / u128::from(rate);
        let time = TimeSpan::from_nanoseconds(u64::try_from(time).unwrap_or(u64::MAX));
        let made_up = pace.credit.min(time / 2);
        pace.credit = pace.credit - made_up;
        pace.release += time - made_up;
    }
}
