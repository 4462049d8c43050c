//! How long sending was busy, and what limited it: the chronographs of Linux's `TCP_INFO`.
//!
//! As in Linux, one condition applies at each time, and the busy time is the sum of all except
//! `Idle`. Like Linux (`tcp_write_xmit`, `tcp_cwnd_validate`), the sender determines the condition
//! when it has sent everything that it can send.

use midspan_policy::LimitedTimes;
use midspan_units::{Time, TimeSpan};

use super::{Phase, Sender};

/// The present condition, and the times of all conditions so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    current: Limit,
    since: Time,
    busy: TimeSpan,
    receive_window: TimeSpan,
    send_buffer: TimeSpan,
    /// Whether the application has data for which the send buffer has no room.
    application_waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Limit {
    /// All written data is acknowledged.
    #[default]
    Idle,
    /// Data is in flight, or waits for cwnd, pacing or Nagle's algorithm.
    Busy,
    /// cwnd allows the next segment, but the peer's window does not.
    ReceiveWindow,
    /// cwnd allows a segment, but the send buffer has none, although the application has data.
    SendBuffer,
}

impl Limits {
    /// The times up to `now`.
    fn times(&self, now: Time) -> LimitedTimes {
        let mut limits = *self;
        limits.enter(now, limits.current);
        LimitedTimes {
            busy: limits.busy,
            receive_window: limits.receive_window,
            send_buffer: limits.send_buffer,
        }
    }

    fn enter(&mut self, now: Time, limit: Limit) {
        let spent = now.since(self.since);
        self.since = now;
        if self.current != Limit::Idle {
            self.busy = self.busy + spent;
        }
        match self.current {
            Limit::Idle | Limit::Busy => {}
            Limit::ReceiveWindow => self.receive_window = self.receive_window + spent,
            Limit::SendBuffer => self.send_buffer = self.send_buffer + spent,
        }
        self.current = limit;
    }
}

impl Sender {
    /// Sets whether the application has data for which the send buffer has no room
    /// (`SOCK_NOSPACE`). This call is not needed for a sender whose window limit is its send
    /// buffer.
    pub const fn handle_full_buffer(&mut self, full: bool) {
        self.limits.application_waits = full;
    }

    pub(super) fn limited_times(&self, now: Time) -> LimitedTimes {
        self.limits.times(now)
    }

    /// Nothing more can be sent now: determines the condition.
    #[inline]
    pub(super) fn note_limit(&mut self, now: Time) {
        let limit = self.limit(now);
        if limit != self.limits.current {
            self.limits.enter(now, limit);
        }
    }

    #[inline]
    fn limit(&self, now: Time) -> Limit {
        if self.phase != Phase::Open || self.unacknowledged == self.written {
            return Limit::Idle;
        }
        if self.uses_rack && self.is_held_back(now) {
            return Limit::Busy;
        }
        let segment = self.segment_size();
        let paced = self.configuration.pacing_rate.is_some() && now < self.next_release;
        // A loss has just lowered cwnd: in recovery, cwnd is the limit.
        let by_cwnd = !self.uses_rack
            && self.unacknowledged + self.cwnd + self.beyond_cwnd() < self.next + segment;
        if by_cwnd || self.recovering || paced {
            return Limit::Busy;
        }
        let buffered = self
            .unacknowledged
            .saturating_add(self.configuration.window_limit)
            .min(self.written);
        let full_buffer = self.limits.application_waits || buffered < self.written;
        let next = segment.min(buffered.saturating_sub(self.next));
        if next < segment && full_buffer {
            Limit::SendBuffer
        } else if next > 0 && self.peer_edge < self.next + next {
            Limit::ReceiveWindow
        } else {
            Limit::Busy
        }
    }
}
