//! Loss recovery of a sender with tracked segments: RACK-TLP (RFC 8985) and F-RTO (RFC 5682), as in Linux.
//! Senders with BBR have it, and those with SACK whose configuration tracks segments. What cwnd becomes is up to the
//! congestion control (`control`).
//!
//! A segment is lost if a segment that was sent later has arrived, and a reordering window has passed.
//! In this way, segments that are lost again after they were sent again are found too. If no ACK comes, a
//! probe leaves after two round trips. After a time-out, everything counts as lost that was not sent again
//! just before.

use midspan_units::{Time, TimeSpan};

use super::Sender;
use super::bbr::LossState;
use super::cubic::Cubic;
use super::timing::Timing;
use super::tracker::{Forced, Pending, Probe, Tracked, Tracker};
use crate::packet::Acknowledgement;
use crate::tcp::configuration::Variant;
use crate::tcp::timers::Timer;

/// Without reordering, this many segments beyond a gap show a loss at once.
const DUPLICATE_THRESHOLD: u64 = 3;
/// What timers add for delayed processing (Linux: `TCP_TIMEOUT_MIN`).
const MARGIN: TimeSpan = TimeSpan::from_milliseconds(2);

impl Sender {
    /// A policy has chosen another congestion control for a live socket (Linux: `TCP_CONGESTION`),
    /// by its kernel name. Reno, CUBIC and BBR take effect. But nothing replaces BBR again: Linux
    /// would continue to pace such a socket, and no policy does this. Needs SACK.
    pub fn handle_congestion_control(&mut self, now: Time, name: &str) {
        let chosen = match name {
            "bbr" => Variant::Bbr,
            "cubic" => Variant::Cubic,
            "reno" => Variant::Sack,
            _ => return,
        };
        if self.is_bbr() || !self.is_selective() || chosen == self.configuration.variant {
            return;
        }
        self.configuration.variant = chosen;
        self.cubic = Cubic::default();
        if chosen == Variant::Bbr {
            let is_new = self.tracker.is_none();
            self.tracker.get_or_insert_with(Self::own_tracker);
            let recovered_by_rack = std::mem::replace(&mut self.uses_rack, true);
            if self.is_open() {
                if !recovered_by_rack {
                    self.take_over(now);
                }
                if is_new {
                    self.begin_tracking(now);
                } else {
                    self.begin_bbr(now);
                }
            }
        }
        self.check_invariants();
    }

    /// The connection is open.
    pub(super) fn begin_tracking(&mut self, now: Time) {
        let (smoothed, least) = (self.round_trip.smoothed(), self.round_trip.least());
        let floor = self.configuration.minimum_timeout;
        if let Some(tracker) = &mut self.tracker {
            tracker.timing = Timing::starting_with(smoothed, least, floor);
        }
        if self.is_bbr() {
            self.begin_bbr(now);
        }
    }

    /// Continues the loss recovery of RFC 6675 in which another congestion control has left the
    /// sender.
    fn take_over(&mut self, now: Time) {
        let gone_back = self.next < self.highest;
        let lost: Vec<u64> = {
            let lost_below = self.scoreboard.lost_below(self.segment_size());
            let (next, resent) = (self.next, self.scoreboard.resent_below());
            let recovering = self.recovering;
            let is_lost = |start: u64| {
                (gone_back && start >= next)
                    || (recovering && start >= resent && start < lost_below)
            };
            let segments = self
                .tracker
                .iter()
                .flat_map(|tracker| tracker.segments.missing());
            segments
                .map(|one| one.start)
                .filter(|start| is_lost(*start))
                .collect()
        };
        let state = match (gone_back, self.recovering) {
            (true, _) => LossState::TimedOut,
            (false, true) => LossState::Recovery,
            (false, false) => LossState::Open,
        };
        let end = self.recover.unwrap_or_default();
        let highest = self.highest;
        if let Some(tracker) = &mut self.tracker {
            // Without a tracker before, the segments in flight are not known one by one.
            if tracker.segments.count() == 0 && highest > self.unacknowledged {
                let snapshot = tracker.rate.handle_sent(now, true);
                tracker
                    .segments
                    .push(self.unacknowledged, highest, snapshot);
            }
            for start in lost {
                tracker.segments.lose(start);
            }
            tracker.recovery.state = state;
            tracker.recovery.end = end;
            tracker.pace.release = self.next_release;
        }
        self.next = highest;
        self.recovering = false;
        self.resend = None;
        self.duplicates = 0;
        if self.unacknowledged < highest {
            self.arm(now, Pending::Timeout);
        }
    }

    /// An ACK has arrived, and its segments are delivered: the rest of Linux's `tcp_ack`.
    pub(super) fn react(&mut self, now: Time, ack: &Acknowledgement, tracked: &Tracked) {
        let advanced = ack.number > self.unacknowledged && ack.number <= self.highest;
        if advanced {
            self.unacknowledged = ack.number;
            self.scoreboard.remove_below(ack.number);
            if self.configuration.duplicate_start.is_some() {
                self.end_duplicate_start(ack.number);
            }
        }
        self.publish_timing(tracked.round_trip.is_some());
        let late = self.recover_by_ack(now, advanced, tracked);
        if self.unacknowledged == self.highest {
            self.timers.stop(Timer::Retransmission);
        } else if late {
            // Losses will be looked for when the reordering window has passed.
        } else if advanced || tracked.is_later_than_first {
            self.restart_tracked_timer(now);
        }
        self.control(now, advanced, tracked);
    }

    /// Copies what the timing of all ACKs has shown to the estimator that others read.
    pub(super) fn publish_timing(&mut self, measured: bool) {
        if let Some(tracker) = &mut self.tracker
            && measured
            && let (Some(smoothed), Some(timeout)) =
                (tracker.timing.smoothed(), tracker.timing.timeout())
        {
            self.round_trip
                .replace(smoothed, timeout, tracker.timing.shortest());
        }
    }

    /// The state of loss recovery after an ACK (Linux: `tcp_fastretrans_alert`). Returns whether a
    /// reordering timer runs.
    fn recover_by_ack(&mut self, now: Time, advanced: bool, tracked: &Tracked) -> bool {
        let number = self.unacknowledged;
        let can_send = self.written > self.next && self.peer_edge > self.next;
        let highest = self.highest;
        let Some(connection) = self.connection(now) else {
            return false;
        };
        let Some(tracker) = &mut self.tracker else {
            return false;
        };
        let recovery = &mut tracker.recovery;
        if advanced {
            recovery.timeouts = 0;
        }
        let is_duplicate = !advanced && !tracked.news && !tracked.window_moved;
        let repaired = recovery.end_probe(number, is_duplicate);
        let is_orderly = tracker.segments.arrived() == 0 && !tracker.segments.has_lost();
        let is_over = recovery.state == LossState::Recovery && number >= recovery.end;
        if is_over {
            recovery.state = LossState::Open;
        }
        let is_open = recovery.state == LossState::Open;
        if repaired {
            self.begin_reduction();
        }
        if repaired || is_over {
            self.end_reduction();
        }
        if is_open && !is_over && advanced && is_orderly {
            return false;
        }
        let Some(tracker) = &mut self.tracker else {
            return false;
        };
        let recovery = &mut tracker.recovery;
        if recovery.state == LossState::TimedOut {
            let spurious = (advanced && tracked.answers_original)
                || (recovery.may_be_spurious && tracked.original_arrived);
            if spurious {
                recovery.state = LossState::Open;
                recovery.may_be_spurious = false;
                tracker.segments.find_again();
                self.undo_timeout(&connection);
            } else {
                if recovery.may_be_spurious {
                    if highest > recovery.end {
                        recovery.may_be_spurious = !tracked.news;
                    } else if advanced && number < recovery.end {
                        recovery.end = highest;
                        recovery.may_be_spurious = can_send;
                    }
                }
                if number >= recovery.end {
                    recovery.state = LossState::Open;
                    recovery.may_be_spurious = false;
                }
            }
        }
        let (late, lost_again) = self.detect_losses(now);
        let Some(tracker) = &self.tracker else {
            return late;
        };
        let state = tracker.recovery.state;
        let may_enter = state == LossState::Open || (state == LossState::TimedOut && lost_again);
        if may_enter && tracker.segments.has_lost() {
            self.enter_recovery();
        }
        late
    }

    fn enter_recovery(&mut self) {
        self.counters.fast_retransmits += 1;
        self.begin_reduction();
        let end = self.highest;
        if let Some(tracker) = &mut self.tracker {
            tracker.recovery.state = LossState::Recovery;
            tracker.recovery.end = end;
            tracker.recovery.probe = None;
            tracker.recovery.may_be_spurious = false;
        }
    }

    /// RFC 8985 §6.2: marks the segments that are lost. Returns whether others may only be late, so
    /// that a timer runs for them, and whether one that had been sent again was lost again.
    fn detect_losses(&mut self, now: Time) -> (bool, bool) {
        let Some(tracker) = &mut self.tracker else {
            return (false, false);
        };
        if !std::mem::take(&mut tracker.rack.advanced) {
            return (false, false);
        }
        let (wait, lost_again) = tracker.mark_lost(now);
        if let Some(wait) = wait {
            tracker.recovery.pending = Pending::Reordering;
            self.timers.set(Timer::Retransmission, now + wait + MARGIN);
        }
        (wait.is_some(), lost_again)
    }

    /// The retransmission timer of a tracked sender has expired.
    pub(super) fn tracked_timeout(&mut self, now: Time) {
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        match tracker.recovery.pending {
            Pending::Timeout => self.tracked_time_out(now),
            Pending::Probe => self.probe_tail(now),
            Pending::Reordering => {
                let lost_before = tracker.segments.total_lost();
                let (wait, _) = tracker.mark_lost(now);
                let found = tracker.segments.total_lost() > lost_before;
                let state = tracker.recovery.state;
                match wait {
                    Some(wait) => self.timers.set(Timer::Retransmission, now + wait + MARGIN),
                    None => self.arm_from_first(now),
                }
                if found && state != LossState::Recovery {
                    self.enter_recovery();
                    self.reduce_without_ack();
                }
            }
        }
    }

    /// RFC 8985 §7.3: the next segment leaves as a probe, or the last one again.
    fn probe_tail(&mut self, now: Time) {
        let end = self.highest;
        if let Some(tracker) = &mut self.tracker
            && tracker.recovery.probe.is_none()
        {
            tracker.recovery.probe = Some(Probe {
                end,
                is_resent: false,
            });
            tracker.recovery.forced = Some(Forced::Probe);
        }
        self.arm(now, Pending::Timeout);
    }

    /// No ACK has come for a time-out: everything that was not sent again just now is lost, and the
    /// first segment leaves again (Linux: `tcp_enter_loss`).
    fn tracked_time_out(&mut self, now: Time) {
        self.counters.timeouts += 1;
        self.timeouts_in_row = match self.timeouts_in_row {
            (count, at) if at == self.unacknowledged => (count + 1, at),
            _ => (1, self.unacknowledged),
        };
        let (number, highest) = (self.unacknowledged, self.highest);
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let round_trip = tracker.rack.round_trip;
        let is_old = |sent: Time| now.since(sent) >= round_trip;
        let lost: Vec<u64> = tracker
            .segments
            .missing()
            .enumerate()
            .filter(|(index, segment)| *index == 0 || is_old(segment.snapshot.sent()))
            .map(|(_, segment)| segment.start)
            .collect();
        for start in lost {
            tracker.segments.lose(start);
        }
        let recovery = tracker.recovery;
        let is_new = recovery.state == LossState::Open;
        let is_first = is_new
            || recovery.end <= number
            || (recovery.state == LossState::TimedOut && recovery.timeouts == 0);
        self.reduce_by_timeout(is_first);
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let recovery = &mut tracker.recovery;
        recovery.state = LossState::TimedOut;
        recovery.end = highest;
        recovery.probe = None;
        recovery.may_be_spurious = is_new || recovery.timeouts > 0;
        recovery.forced = Some(Forced::First);
        recovery.timeouts += 1;
        let in_flight = tracker.segments.in_flight();
        self.set_window(in_flight + 1);
        self.note_timeout(now);
        self.round_trip.back_off();
        self.arm(now, Pending::Timeout);
    }

    /// Starts the timer again after progress: for a probe if one may be sent, otherwise for a
    /// time-out.
    pub(super) fn restart_tracked_timer(&mut self, now: Time) {
        if !self.schedule_probe(now, false) {
            self.arm_from_first(now);
        }
    }

    /// RFC 8985 §7.2: schedules a tail loss probe after two round trips.
    ///
    /// `from_first`: a time-out of the first segment may come earlier.
    pub(super) fn schedule_probe(&mut self, now: Time, from_first: bool) -> bool {
        let mut timeout = self.round_trip.timeout();
        let floor = self.configuration.minimum_timeout;
        let Some(tracker) = &self.tracker else {
            return false;
        };
        let Some(smoothed) = tracker.timing.smoothed() else {
            return false;
        };
        if tracker.recovery.state != LossState::Open || tracker.segments.arrived() > 0 {
            return false;
        }
        if from_first && let Some(sent) = tracker.segments.first_sent() {
            let left = (sent + timeout).since(now);
            if left > TimeSpan::ZERO {
                timeout = left;
            }
        }
        let margin = if tracker.segments.count() == 1 {
            floor
        } else {
            MARGIN
        };
        let deadline = (now + (smoothed * 2 + margin).min(timeout)).max(now);
        self.set_tracked_timer(now, deadline, Pending::Probe);
        true
    }

    /// The time-out runs from the last sending of the first unacknowledged segment, if a shorter
    /// timer ran until now; otherwise from now (Linux: `tcp_rearm_rto`).
    fn arm_from_first(&mut self, now: Time) {
        let timeout = self.round_trip.timeout();
        let from = self.tracker.as_ref().and_then(|tracker| {
            let shorter = tracker.recovery.pending != Pending::Timeout;
            tracker.segments.first_sent().filter(|_| shorter)
        });
        let deadline = (from.unwrap_or(now) + timeout).max(now);
        self.set_tracked_timer(now, deadline, Pending::Timeout);
    }

    /// Starts the timer for a time-out from now.
    pub(super) fn arm(&mut self, now: Time, pending: Pending) {
        let deadline = now + self.round_trip.timeout();
        self.set_tracked_timer(now, deadline, pending);
    }

    /// What pacing holds back cannot be acknowledged earlier.
    fn set_tracked_timer(&mut self, now: Time, deadline: Time, pending: Pending) {
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        tracker.recovery.pending = pending;
        let held = tracker.pace.release.since(now);
        self.timers.set(Timer::Retransmission, deadline + held);
    }

    /// Everything that was sent is lost, because the peer took none of it as it was sent. Unless BBR is used, it is
    /// sent again as after a time-out: this is no sign of congestion.
    pub(super) fn lose_everything(&mut self) {
        let highest = self.highest;
        if let Some(tracker) = &mut self.tracker {
            let starts: Vec<u64> = tracker.segments.missing().map(|one| one.start).collect();
            for start in starts {
                tracker.segments.lose(start);
            }
            if tracker.bbr.is_none() {
                tracker.recovery.state = LossState::TimedOut;
                tracker.recovery.end = highest;
                tracker.recovery.may_be_spurious = false;
            }
        }
    }
}

impl Tracker {
    /// Marks the segments that are lost by their time. Returns how long to wait for the others that
    /// were sent before one that has arrived, and whether one was lost again.
    fn mark_lost(&mut self, now: Time) -> (Option<TimeSpan>, bool) {
        let window = self.reordering_window();
        let mut lost_again = false;
        while let Some(segment) = self.segments.oldest_in_flight() {
            let sent = segment.snapshot.sent();
            if (sent, segment.end) >= self.rack.sent {
                break;
            }
            let late_at = sent + self.rack.round_trip + window;
            if late_at > now {
                return (Some(self.latest_wait(now, window)), lost_again);
            }
            lost_again |= segment.was_resent;
            self.segments.lose(segment.start);
        }
        (None, lost_again)
    }

    /// The time after which the last segment that was sent before one that has arrived is late.
    fn latest_wait(&self, now: Time, window: TimeSpan) -> TimeSpan {
        let (sent, _) = self.rack.sent;
        (sent + self.rack.round_trip + window).since(now)
    }

    fn reordering_window(&self) -> TimeSpan {
        let is_strict = !self.rack.reordering_seen
            && (self.recovery.state >= LossState::Recovery
                || self.segments.arrived() >= DUPLICATE_THRESHOLD);
        if is_strict {
            return TimeSpan::ZERO;
        }
        let quarter = self.timing.shortest().unwrap_or_default() / 4;
        quarter.min(self.timing.smoothed().unwrap_or_default())
    }
}
