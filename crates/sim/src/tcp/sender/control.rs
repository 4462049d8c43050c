//! The congestion control of a sender with tracked segments: what it does when losses are found, when they are
//! repaired, after a time-out, and at each ACK.
//!
//! BBR decides on cwnd itself. Reno and CUBIC lower ssthresh once for each recovery, and cwnd comes down to it by
//! proportional rate reduction (`prr`); otherwise it grows (`growth`), as far as it limits sending (`usage`).

use midspan_units::Time;

use super::Sender;
use super::bbr::{Acknowledged, Bbr, Connection, LossState};
use super::prr::{Progress, Reduction};
use super::tracker::Tracked;
use super::undo::Windows;
use crate::tcp::configuration::Variant;

impl Sender {
    /// Whether BBR is the congestion control.
    #[inline]
    pub(super) fn is_bbr(&self) -> bool {
        self.configuration.variant == Variant::Bbr
    }

    /// A policy lets BBR begin again, if it is the congestion control (Linux: `TCP_CONGESTION`, twice).
    pub fn begin_bbr_again(&mut self, now: Time) {
        if self.is_bbr() && self.is_open() {
            self.begin_bbr(now);
        }
    }

    /// BBR begins.
    pub(super) fn begin_bbr(&mut self, now: Time) {
        self.ssthresh = u64::MAX;
        let Some(connection) = self.connection(now) else {
            return;
        };
        if let Some(tracker) = &mut self.tracker {
            tracker.bbr = Some(Bbr::new(tracker.stream(), &connection));
        }
    }

    /// The connection as BBR sees it.
    pub(super) fn connection(&self, now: Time) -> Option<Connection> {
        let tracker = self.tracker.as_ref()?;
        let segment = self.segment_size();
        let header = u64::from(self.configuration.header_size);
        let limit = self.configuration.pacing_rate.map_or(u64::MAX, |rate| {
            let rate = u128::from(rate.bytes_per_second()) * u128::from(segment);
            u64::try_from(rate / u128::from(segment + header)).unwrap_or(u64::MAX)
        });
        Some(Connection {
            now,
            delivered: tracker.rate.delivered(),
            delivered_at: tracker.rate.delivered_at(),
            lost: tracker.segments.total_lost(),
            in_flight: tracker.segments.in_flight(),
            window: self.cwnd / segment,
            state: tracker.recovery.state,
            smoothed: tracker.timing.smoothed(),
            shortest: tracker.timing.shortest(),
            segment,
            release: tracker.pace.release,
            rate_limit: limit,
            is_application_limited: tracker.rate.is_application_limited(),
        })
    }

    /// Sets cwnd, in segments.
    pub(super) fn set_window(&mut self, segments: u64) {
        self.cwnd = segments.max(1).saturating_mul(self.segment_size());
    }

    /// cwnd, in segments.
    fn window(&self) -> u64 {
        self.cwnd / self.segment_size()
    }

    /// ssthresh falls because of a loss; a whole number of segments, as in Linux.
    fn lower_threshold(&mut self) {
        self.ssthresh = self.reduced_threshold();
        self.round_threshold();
        self.cwnd_fraction = 0;
        self.hystart.forget();
    }

    /// Recovery begins (Linux: `tcp_init_cwnd_reduction`).
    pub(super) fn begin_reduction(&mut self) {
        let window = self.window();
        match self.bbr_mut() {
            Some(bbr) => bbr.handle_loss(window),
            None => {
                self.lower_threshold();
                if let Some(tracker) = &mut self.tracker {
                    tracker.recovery.reduction = Reduction::new(window);
                }
            }
        }
    }

    /// Recovery ends (Linux: `tcp_end_cwnd_reduction`).
    pub(super) fn end_reduction(&mut self) {
        if !self.is_bbr() && self.ssthresh < u64::MAX {
            self.cwnd = self.ssthresh;
        }
    }

    /// The reordering timer has found losses, and recovery begins without an ACK (Linux: `tcp_rack_reo_timeout`).
    pub(super) fn reduce_without_ack(&mut self) {
        if !self.is_bbr() {
            self.reduce(1, false);
        }
    }

    /// Proportional rate reduction: `delivered` segments were delivered.
    fn reduce(&mut self, delivered: u64, is_safe: bool) {
        let threshold = self.ssthresh / self.segment_size();
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let window = tracker.recovery.reduction.window(Progress {
            delivered,
            is_safe,
            in_flight: tracker.segments.in_flight(),
            threshold,
        });
        if let Some(window) = window {
            self.set_window(window);
        }
    }

    /// A time-out has occurred, and nothing else is done about it yet. `is_first`: the window that is lost was not
    /// reduced before (Linux: `tcp_enter_loss`).
    pub(super) fn reduce_by_timeout(&mut self, is_first: bool) {
        if !is_first {
            return;
        }
        let window = self.window();
        if let Some(bbr) = self.bbr_mut() {
            bbr.handle_loss(window);
            return;
        }
        let before = Windows {
            cwnd: self.cwnd,
            // `tcp_current_ssthresh`
            ssthresh: self.ssthresh.max(self.cwnd / 2 + self.cwnd / 4),
        };
        if let Some(tracker) = &mut self.tracker {
            tracker.recovery.before = before;
        }
        self.lower_threshold();
    }

    /// What was lost by a time-out is known, and cwnd is set.
    pub(super) fn note_timeout(&mut self, now: Time) {
        if self.is_bbr() {
            if let Some(connection) = self.connection(now)
                && let Some(bbr) = self.bbr_mut()
            {
                bbr.handle_timeout(&connection);
            }
        } else if self.configuration.variant == Variant::Cubic {
            self.cubic.time_out();
        }
    }

    /// The last time-out was spurious (Linux: `tcp_undo_cwnd_reduction`).
    pub(super) fn undo_timeout(&mut self, connection: &Connection) {
        if let Some(bbr) = self.bbr_mut() {
            bbr.handle_undo(connection);
        } else if let Some(tracker) = &self.tracker {
            let Windows { cwnd, ssthresh } = tracker.recovery.before;
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = self.ssthresh.max(ssthresh);
        }
    }

    /// New data, up to `end`, leaves (`is_new`), or a segment again.
    pub(super) fn control_sent(&mut self, now: Time, end: u64, is_new: bool) {
        if self.is_bbr() {
            return;
        }
        if let Some(tracker) = &mut self.tracker
            && tracker.recovery.state == LossState::Recovery
        {
            tracker.recovery.reduction.handle_sent();
        }
        if is_new && self.configuration.hystart && self.cwnd < self.ssthresh {
            self.hystart.handle_sent(now, end);
        }
    }

    /// An ACK has arrived, and its losses are found (Linux: `tcp_cong_control`). `advanced`: it acknowledges new
    /// data in order.
    pub(super) fn control(&mut self, now: Time, advanced: bool, tracked: &Tracked) {
        if self.is_bbr() {
            self.run_bbr(now, tracked);
            return;
        }
        let Some(tracker) = &self.tracker else {
            return;
        };
        if tracker.recovery.state == LossState::Recovery {
            let no_loss = tracker.segments.total_lost() == tracked.prior_lost;
            self.reduce(tracked.delivered, advanced && no_loss);
            return;
        }
        if !advanced {
            return;
        }
        if self.configuration.hystart {
            self.end_slow_start(now);
        }
        let in_slow_start = self.cwnd < self.ssthresh;
        let is_limited = self.tracker.as_ref().is_some_and(|tracker| {
            let window = self.window();
            tracker.usage.is_cwnd_limited(window, in_slow_start)
        });
        if is_limited || !self.configuration.grow_only_when_limited {
            self.grow(now, tracked.delivered * self.segment_size());
        }
    }

    /// Nothing more can be sent now: whether cwnd is the reason.
    pub(super) fn note_usage(&mut self) {
        let window = self.window();
        let (unacknowledged, next) = (self.unacknowledged, self.next);
        if let Some(tracker) = &mut self.tracker {
            let segments = &tracker.segments;
            let is_limited = segments.in_flight() >= window;
            let count = segments.count();
            tracker
                .usage
                .note(is_limited, count, (unacknowledged, next));
        }
    }

    fn run_bbr(&mut self, now: Time, tracked: &Tracked) {
        let Some(connection) = self.connection(now) else {
            return;
        };
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let Some(bbr) = &mut tracker.bbr else {
            return;
        };
        let reaction = bbr.handle_acknowledged(
            &connection,
            &Acknowledged {
                segments: tracked.delivered,
                losses: connection.lost - tracked.prior_lost,
                prior_in_flight: tracked.prior_in_flight,
                sample: tracked.sample,
                round_trip: tracked.round_trip,
                is_delayed: tracked.is_delayed,
            },
        );
        if reaction.limits_flight {
            tracker.rate.limit_by_application(connection.in_flight);
        }
        self.set_window(reaction.window);
        if let Some(threshold) = reaction.threshold {
            self.ssthresh = threshold.saturating_mul(connection.segment);
        }
    }

    fn bbr_mut(&mut self) -> Option<&mut Bbr> {
        self.tracker.as_mut()?.bbr.as_mut()
    }
}
