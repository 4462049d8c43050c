//! For how long sending was busy and what held it back: the chronographs of Linux's `TCP_INFO`.
//!
//! As in Linux, at each time one condition counts, and all of them are busy time. Linux finds the
//! condition when it has sent what it can (`tcp_write_xmit`, `tcp_cwnd_validate`), and so does
//! this.

use midspan_policy::LimitedTimes;
use midspan_units::{Time, TimeSpan};

use super::{Phase, Sender};

/// What goes on, and what went on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    current: Limit,
    since: Time,
    busy: TimeSpan,
    receive_window: TimeSpan,
    send_buffer: TimeSpan,
    /// The application has data that the send buffer cannot take.
    application_waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Limit {
    /// All that was written is acknowledged.
    #[default]
    Idle,
    /// Data is under way or waits for cwnd, pacing or Nagle.
    Busy,
    /// cwnd lets the next segment pass and the peer's window does not.
    ReceiveWindow,
    /// cwnd lets a segment pass and the send buffer has none, although the application has data.
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
    /// The application has data that the send buffer cannot take (`SOCK_NOSPACE`), or has no
    /// longer. A sender whose window limit is its send buffer need not be told.
    pub const fn handle_full_buffer(&mut self, full: bool) {
        self.limits.application_waits = full;
    }

    pub(super) fn limited_times(&self, now: Time) -> LimitedTimes {
        self.limits.times(now)
    }

    /// Nothing more can be sent now.
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
        let segment = self.segment_size();
        let paced = self.configuration.pacing_rate.is_some() && now < self.next_release;
        // A loss has just lowered cwnd: in recovery it is what holds back.
        let by_cwnd = self.unacknowledged + self.cwnd + self.beyond_cwnd() < self.next + segment;
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
