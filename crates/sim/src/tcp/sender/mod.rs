//! The sender of data: what it may send, and how it reacts to loss.
//!
//! The common core is here and in these files:
//!
//! | file | what it does |
//! | --- | --- |
//! | `transmit` | the next segment |
//! | `growth`, `hystart` | how cwnd opens, and when slow start ends before a loss |
//! | `loss` | the common reaction to a loss |
//! | `round_trip` | the retransmission timer |
//! | `limits` | what limits sending |
//! | `decision`, `duplicate_start`, `window_scale` | what a policy changes: settings of a live socket, a duplicate start, a larger window scale |
//! | `getters`, `sample` | what callers and policies read |
//!
//! The variants differ in their reaction to duplicate ACKs and in recovery; each
//! has a file: `tahoe`, `reno`, `new_reno`, `sack`. `cubic` has SACK's recovery, and its own growth
//! of cwnd.
//!
//! BBR, and Reno and CUBIC as in Linux, need each segment tracked: `tracker` holds this state, in `segments` (what
//! is in flight), `delivery_rate` and `timing` (the round trip of every ACK). `rack` is the loss recovery of such a
//! sender, `paced` chooses the next segment, and `control` is what the congestion control does: `bbr`, or `growth`
//! (as far as cwnd is used: `usage`) and, in recovery, `prr`.

mod bbr;
mod control;
mod cubic;
mod decision;
mod delivery_rate;
mod duplicate_start;
mod getters;
mod growth;
mod hystart;
mod limits;
mod loss;
mod new_reno;
mod paced;
mod prr;
mod rack;
mod reno;
mod round_trip;
mod sack;
mod sample;
mod segments;
mod tahoe;
#[cfg(test)]
mod tests;
mod timing;
mod tracker;
mod transmit;
mod undo;
mod usage;
mod window_scale;

use midspan_units::Time;

use super::configuration::{SenderConfiguration, Variant};
use super::timers::{Timer, Timers};
use crate::packet::{Acknowledgement, Data};
use cubic::Cubic;
use hystart::HyStart;
use limits::Limits;
use round_trip::RoundTrip;
use sack::Scoreboard;
use tracker::Tracker;
use window_scale::WindowStretch;

/// The third duplicate ACK means that a segment was lost (RFC 5681: `DupThresh`).
const DUPLICATE_THRESHOLD: u32 = 3;

/// A sender of data as a state machine.
#[derive(Debug, Clone)]
pub struct Sender {
    configuration: SenderConfiguration,
    /// Largest amount in flight, whatever cwnd and the receiver allow, in bytes: the window limit
    /// and the in-flight cap of a decision, but at least a segment.
    flight_limit: u64,
    phase: Phase,
    /// SND.UNA: the first byte that is not acknowledged.
    unacknowledged: u64,
    /// SND.NXT: the next byte to be sent; a time-out sets it back.
    next: u64,
    /// The first byte that was never sent.
    highest: u64,
    /// The end of the data that the application has written.
    written: u64,
    /// The end of the window that the receiver advertised.
    peer_edge: u64,
    /// The largest window that it ever advertised.
    largest_peer_window: u64,
    /// The window scale that the peer announced, in bits.
    peer_window_scale: u8,
    /// Bits by which the peer's window is enlarged beyond the advertised value.
    window_stretch: WindowStretch,
    /// cwnd in bytes.
    cwnd: u64,
    /// The fraction of a byte that congestion avoidance could not add to cwnd yet: see `growth`.
    cwnd_fraction: u64,
    /// ssthresh in bytes.
    ssthresh: u64,
    /// Duplicate ACKs in a row.
    duplicates: u32,
    /// Whether fast recovery is in progress.
    recovering: bool,
    /// The end of the data that had been sent when a loss was last detected. Fast recovery ends
    /// there (RFC 6582), and no new one starts before it is acknowledged.
    recover: Option<u64>,
    /// The segment at this number must be sent again, whatever the window.
    resend: Option<u64>,
    /// Whether a partial ACK has restarted the timer in this recovery (RFC 6582 §3.2).
    partial_seen: bool,
    /// Slow start after a time-out: byte counting is more careful (RFC 3465 §2.3).
    after_timeout: bool,
    syn_resent: bool,
    /// Time-outs in a row, and the first unacknowledged byte at the first of them.
    timeouts_in_row: (u32, u64),
    probe: bool,
    /// The number of the cut segment that follows the oversized one just sent.
    cut: Option<u64>,
    /// The first data that was sent twice in a duplicate start.
    doubled: Option<u64>,
    round_trip: RoundTrip,
    scoreboard: Scoreboard,
    cubic: Cubic,
    hystart: HyStart,
    /// When the next segment may leave at the pacing rate.
    next_release: Time,
    timers: Timers<{ Timer::Retransmission as usize }, 3>,
    counters: SenderCounters,
    limits: Limits,
    /// The state of every segment; `None` if nothing needs it.
    tracker: Option<Box<Tracker>>,
    /// Whether losses are found by time (RFC 8985), and not by duplicate ACKs.
    uses_rack: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not opened yet.
    Closed,
    /// A SYN must be sent.
    Synchronise,
    /// The SYN was sent and is not answered yet.
    Synchronised,
    /// Data may be sent.
    Open,
}

/// The counters of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderCounters {
    /// Segments with data that were sent, retransmissions included.
    pub segments: u64,
    /// Those of them that were retransmissions.
    pub retransmissions: u64,
    /// Bytes that were retransmitted.
    pub bytes_retransmitted: u64,
    /// SYNs sent.
    pub syns: u64,
    /// How often fast retransmit was entered.
    pub fast_retransmits: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Probes of a zero window.
    pub probes: u64,
}

impl Sender {
    /// A sender that is not open yet. Without a handshake it cannot learn the receiver's first
    /// window, which is therefore given: `peer_window` bytes.
    #[must_use]
    pub fn new(mut configuration: SenderConfiguration, peer_window: u64) -> Self {
        let ceiling = configuration.segment_ceiling;
        let ceiling = *configuration
            .segment_ceiling
            .insert(ceiling.unwrap_or(configuration.segment_size));
        configuration.segment_size = configuration.segment_size.min(ceiling);
        let segment = u64::from(configuration.segment_size);
        let variant = configuration.variant;
        let is_tracked = variant == Variant::Bbr || configuration.tracks_segments;
        Self {
            flight_limit: configuration.window_limit.max(segment),
            phase: Phase::Closed,
            unacknowledged: 0,
            next: 0,
            highest: 0,
            written: 0,
            peer_edge: if configuration.handshake {
                0
            } else {
                peer_window
            },
            largest_peer_window: peer_window,
            peer_window_scale: 0,
            window_stretch: WindowStretch::default(),
            cwnd: segment * u64::from(configuration.initial_window),
            cwnd_fraction: 0,
            ssthresh: u64::MAX,
            duplicates: 0,
            recovering: false,
            recover: None,
            resend: None,
            partial_seen: false,
            after_timeout: false,
            syn_resent: false,
            timeouts_in_row: (0, 0),
            probe: false,
            cut: None,
            doubled: None,
            round_trip: RoundTrip::new(&configuration),
            scoreboard: Scoreboard::default(),
            cubic: Cubic::default(),
            hystart: HyStart::default(),
            next_release: Time::ZERO,
            timers: Timers::new(),
            counters: SenderCounters::default(),
            limits: Limits::default(),
            tracker: is_tracked.then(Self::own_tracker),
            uses_rack: is_tracked && variant.is_selective(),
            configuration,
        }
    }

    /// The application opens the connection.
    pub fn handle_open(&mut self) {
        if self.phase == Phase::Closed {
            self.phase = if self.configuration.handshake {
                Phase::Synchronise
            } else {
                Phase::Open
            };
        }
    }

    /// The initial window is of this many segments. Has an effect before anything is sent.
    pub fn start_with(&mut self, segments: u32) {
        if self.highest == 0 {
            self.configuration.initial_window = segments;
            self.cwnd = u64::from(self.configuration.segment_size) * u64::from(segments);
        }
    }

    /// The application writes `bytes` more; `u64::MAX` means without end.
    pub fn handle_write(&mut self, bytes: u64) {
        if self.tracker.is_some() {
            self.track_write();
        }
        self.written = self.written.saturating_add(bytes);
    }

    /// The application writes nothing more, and removes the data that was never sent.
    pub fn handle_stop(&mut self) {
        self.written = self.highest;
    }

    /// An ACK arrives.
    pub fn handle_acknowledgement(&mut self, now: Time, ack: &Acknowledgement) {
        let assumed = self.with_assumed_window(ack);
        let ack = assumed.as_ref().unwrap_or(ack);
        self.process_acknowledgement(now, ack);
    }

    #[inline]
    fn process_acknowledgement(&mut self, now: Time, ack: &Acknowledgement) {
        let window_moved = match self.phase {
            Phase::Closed | Phase::Synchronise => return,
            Phase::Synchronised => {
                self.establish(now);
                // The window of a SYN is never scaled (RFC 7323 §2.2).
                self.learn_window(ack.number, ack.window_edge)
            }
            Phase::Open if self.window_stretch.is_none() => {
                self.learn_window(ack.number, ack.window_edge)
            }
            Phase::Open => self.learn_stretched_window(ack),
        };
        let mut has_round_trip = false;
        let news = if self.tracker.is_some() {
            let mut tracked = self.track_acknowledgement(now, ack);
            has_round_trip = tracked.round_trip.is_some();
            if self.uses_rack {
                tracked.window_moved = window_moved;
                self.react(now, ack, &tracked);
                self.check_invariants();
                return;
            }
            tracked.news
        } else {
            self.is_selective() && self.scoreboard.update(self.unacknowledged, ack)
        };
        if ack.number > self.unacknowledged && ack.number <= self.highest {
            self.advance(now, ack.number);
        } else if ack.number == self.unacknowledged && self.unacknowledged < self.highest {
            // RFC 5681 §2: an ACK that opens the window is not a duplicate; one with new SACK
            // information is (RFC 6675 §2).
            let duplicate = if self.is_selective() {
                news
            } else {
                !window_moved
            };
            if duplicate {
                self.duplicate(now);
            }
        }
        if self.configuration.tracks_segments {
            self.publish_timing(has_round_trip);
        }
        self.check_invariants();
    }

    /// The deadline of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Time) {
        match self.timers.expire(now) {
            Some(Timer::Retransmission) if self.phase == Phase::Synchronised => {
                self.phase = Phase::Synchronise;
                self.syn_resent = true;
                self.counters.timeouts += 1;
                self.timeouts_in_row.0 += 1;
                self.round_trip.back_off();
            }
            Some(Timer::Retransmission) if self.uses_rack => self.tracked_timeout(now),
            Some(Timer::Retransmission) => self.time_out(now),
            Some(Timer::Persist) => {
                self.probe = true;
                self.round_trip.back_off();
            }
            Some(Timer::Pacing | Timer::DelayedAck) | None => {}
        }
        self.check_invariants();
    }

    /// The next segment to be sent.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<Data> {
        let segment = self.next_segment(now);
        if segment.is_none() {
            self.note_limit(now);
            if self.uses_rack {
                self.note_usage();
            }
        }
        self.check_invariants();
        segment
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, Timer)> {
        self.timers.next()
    }

    /// Bytes that were written but never sent.
    #[must_use]
    pub const fn not_sent(&self) -> u64 {
        self.written - self.highest
    }

    /// Whether the connection is given up, after too many time-outs in a row.
    #[must_use]
    pub const fn has_given_up(&self) -> bool {
        self.timeouts_in_row.0 >= self.configuration.give_up_after
    }

    /// Closes the connection at once: nothing more is sent, and no timer runs.
    pub fn handle_abort(&mut self) {
        self.phase = Phase::Closed;
        for timer in [Timer::Retransmission, Timer::Persist, Timer::Pacing] {
            self.timers.stop(timer);
        }
    }

    fn segment_size(&self) -> u64 {
        u64::from(self.configuration.segment_size)
    }

    const fn is_selective(&self) -> bool {
        self.configuration.variant.is_selective()
    }

    fn establish(&mut self, now: Time) {
        self.phase = Phase::Open;
        self.timers.stop(Timer::Retransmission);
        self.timeouts_in_row = (0, 0);
        if let Some(round_trip) = self.configuration.hop_round_trip {
            self.round_trip.cancel();
            self.round_trip.measure(round_trip);
        } else if self.syn_resent {
            // RFC 5681 §3.1: after a lost SYN, one segment.
            self.cwnd = self.segment_size();
            self.round_trip.cancel();
        } else {
            self.round_trip.acknowledge(now, 0);
        }
        if self.tracker.is_some() {
            self.begin_tracking(now);
        }
    }

    /// An ACK of everything before `number` announced the window up to `edge`. Returns whether the
    /// window moved.
    #[inline]
    fn learn_window(&mut self, number: u64, edge: u64) -> bool {
        let moved = edge > self.peer_edge;
        if moved {
            self.peer_edge = edge;
            let window = edge.saturating_sub(number);
            self.largest_peer_window = self.largest_peer_window.max(window);
            self.timers.stop(Timer::Persist);
        }
        moved
    }

    /// Everything before `number` is newly acknowledged.
    #[inline]
    fn advance(&mut self, now: Time, number: u64) {
        let acknowledged = number - self.unacknowledged;
        let limited = self.is_cwnd_limited();
        self.unacknowledged = number;
        self.next = self.next.max(number);
        if self.configuration.duplicate_start.is_some() {
            self.end_duplicate_start(number);
        }
        self.resend = self.resend.filter(|sequence| *sequence >= number);
        self.round_trip.acknowledge(now, number);
        let mut restart = true;
        if self.recovering {
            restart = match self.configuration.variant {
                // Tahoe has no recovery.
                Variant::Tahoe | Variant::Reno => self.reno_advance(),
                Variant::NewReno => self.new_reno_advance(acknowledged),
                Variant::Sack | Variant::Cubic | Variant::Bbr => self.sack_advance(),
            };
        } else {
            if self.is_selective() {
                self.scoreboard.remove_below(number);
            }
            if self.configuration.hystart {
                self.end_slow_start(now);
            }
            if limited || !self.configuration.grow_only_when_limited {
                self.grow(now, acknowledged);
            }
        }
        self.duplicates = 0;
        if self.unacknowledged == self.highest {
            self.timers.stop(Timer::Retransmission);
        } else if restart {
            self.restart_timer(now);
        }
    }

    fn duplicate(&mut self, now: Time) {
        self.duplicates += 1;
        match self.configuration.variant {
            Variant::Tahoe => self.tahoe_duplicate(now),
            Variant::Reno | Variant::NewReno => self.reno_duplicate(now),
            Variant::Sack | Variant::Cubic | Variant::Bbr => self.sack_duplicate(now),
        }
    }

    fn restart_timer(&mut self, now: Time) {
        let deadline = now + self.round_trip.timeout();
        self.timers.set(Timer::Retransmission, deadline);
    }

    /// Panics in debug builds if the state is inconsistent.
    pub fn check_invariants(&self) {
        debug_assert!(self.unacknowledged <= self.next && self.next <= self.highest);
        debug_assert!(self.highest <= self.written, "sent what was not written");
        debug_assert!(self.cwnd >= 1 && self.ssthresh >= 2 * self.segment_size());
        debug_assert!(
            self.unacknowledged == self.highest
                || self.timers.is_running(Timer::Retransmission)
                || self.phase == Phase::Closed,
            "data under way without a timer"
        );
        debug_assert!(!self.recovering || self.recover.is_some());
        debug_assert!(self.recover.is_none_or(|recover| recover <= self.highest));
        self.scoreboard
            .check_invariants(self.unacknowledged, self.highest);
        if let Some(tracker) = &self.tracker {
            let segments = &tracker.segments;
            segments.check_invariants(self.unacknowledged, self.highest);
        }
    }
}
