//! The congestion window of Reno and NewReno as a Markov chain, from one loss to the next.
//!
//! PFTK takes the mean of the window and the mean of everything else. That is good enough for a
//! long path with a small loss; where the window is a few segments, where a buffer or a queue cuts
//! it, or where a time-out lasts a thousand round trips, it is not. Here the window has a
//! distribution: it climbs until a packet is lost, at random or because the queue is full, and
//! what a loss leads to (fast retransmit or time-out, and the window after it) depends on how
//! large it was.
//!
//! - Climbing (RFC 5681): in congestion avoidance b·w packets for one more segment, in slow start b.
//!   Each packet is lost with probability p. The round trip is that of the path, or w/C where the
//!   window fills the queue.
//! - At the top the window stays where a buffer bounds it, and loses a packet where the queue
//!   does.
//! - A loss in a window of w is followed by w − 1 packets, of which each is lost with p too. Fast
//!   retransmit needs three duplicate ACKs; limited transmit (RFC 3042) sends one new packet for each
//!   of the first two. The retransmission may be lost: time-out. Further losses: NewReno takes a round
//!   trip for each (RFC 6582), Reno a time-out.
//! - After fast recovery the window is half, after a time-out it is one segment and slow start leads
//!   to half, or to a quarter where the time-out came in recovery.
//!
//! Sources: the loss states of Padhye, Firoiu, Towsley and Kurose ([`crate::pftk`]); RFC 5681,
//! 6298, 6582, 3042 for what happens in them. Nothing in it is fitted. The distribution lives on
//! a grid, so a result is exact to about half a percent, and grows with a quantity of the input
//! but for 2 %.

mod after_loss;
mod stationary;

use after_loss::AfterLoss;

use crate::PacketRate;
use crate::pftk::Conditions;

/// What a Reno-like sender does about several losses in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Fast recovery ends with the first new ACK; a second loss in the window is a time-out.
    Reno,
    /// Fast recovery goes on over partial ACKs (RFC 6582).
    NewReno,
}

/// A connection with a leg for itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowModel {
    /// What it does about several losses.
    pub recovery: Recovery,
    /// Round trip without waiting in the queue, in seconds.
    pub round_trip: f64,
    /// Rate of the link in packets per second; above zero.
    pub bandwidth: f64,
    /// Loss per packet, 0…1.
    pub loss: f64,
    /// b, packets per ACK.
    pub packets_per_ack: f64,
    /// Most packets that buffers allow in flight.
    pub window: Option<f64>,
    /// Packets that may wait in front of the link.
    pub queue: Option<f64>,
    /// Least retransmission time-out in seconds.
    pub time_out: f64,
}

/// What the chain says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowOutcome {
    /// Packets per second that arrive, each counted once.
    pub rate: f64,
    /// Share of the losses that end in a time-out.
    pub time_out_probability: f64,
    /// Mean time from a loss until what was lost arrives, in seconds.
    pub stall: f64,
    /// Losses per second.
    pub losses: f64,
    /// Mean packets in flight.
    pub in_flight: f64,
}

/// Delayed ACK of a packet without a successor, in seconds.
const DELAYED_ACK: f64 = 0.1;
/// Windows larger than this are taken as this: more than any buffer holds.
const LARGEST_WINDOW: f64 = 1e9;

/// Segments that a window of `window` has in flight: whole ones, so half a segment less in the mean.
fn whole_segments(window: f64) -> f64 {
    (window - 0.5).max(1.0)
}

/// A point of the grid of windows, and the way from it to the next.
#[derive(Debug, Clone, Copy)]
struct Step {
    window: f64,
    /// Congestion avoidance.
    avoidance: Climb,
    /// Slow start.
    slow_start: Climb,
    /// What a loss here leads to.
    loss: AfterLoss,
}

/// The way from one window to the next.
#[derive(Debug, Clone, Copy)]
struct Climb {
    /// Probability that it meets no loss.
    survives: f64,
    /// Mean packets sent on it, and mean time it takes, up to a loss.
    packets: f64,
    time: f64,
}

impl WindowModel {
    /// A leg under `conditions`, of which the time-out is the first one; see the fields for the
    /// others.
    #[must_use]
    pub fn new(
        recovery: Recovery,
        conditions: &Conditions,
        bandwidth: PacketRate,
        window: Option<f64>,
        queue: Option<f64>,
    ) -> Self {
        Self {
            recovery,
            round_trip: conditions.round_trip,
            bandwidth: bandwidth.packets_per_second(),
            loss: conditions.loss,
            packets_per_ack: conditions.packets_per_ack.max(1.0),
            window,
            queue,
            time_out: conditions.time_out,
        }
    }

    /// The distribution of windows and what follows from it; `None` where nothing bounds the rate
    /// but the link, and where every packet is lost (p = 1).
    #[must_use]
    pub fn solve(&self) -> Option<WindowOutcome> {
        let reachable = self.loss < 1.0 && self.bandwidth > 0.0;
        let bounded = self.loss > 0.0 || self.queue.is_some() || self.window.is_some();
        if !reachable || !bounded {
            return None;
        }
        let held = self.held_window();
        let full = self.full_queue();
        if self.loss <= 0.0 && held <= full {
            return Some(self.without_loss(held));
        }
        let grid = self.grid(held.min(full), held <= full);
        Some(self.stationary(&grid))
    }

    /// Whole packets that the buffers allow in flight, less what waits for a delayed ACK.
    fn held_window(&self) -> f64 {
        let window = self.window.map_or(LARGEST_WINDOW, |window| {
            window.floor().clamp(1.0, LARGEST_WINDOW)
        });
        // A packet without a successor is acknowledged when the timer ends or, once a round trip
        // has passed, by the next one.
        let odd = window % self.packets_per_ack;
        let waits = DELAYED_ACK / (DELAYED_ACK + self.round_trip);
        (window - odd.min(window - 1.0) * waits).max(1.0)
    }

    /// The window that fills the link and the queue: one more packet is dropped.
    fn full_queue(&self) -> f64 {
        self.queue.map_or(LARGEST_WINDOW, |queue| {
            let link = self.bandwidth * self.base_round_trip();
            (link + queue).clamp(1.0, LARGEST_WINDOW)
        })
    }

    /// Propagation, and the transmission of the packets that one ACK is for.
    fn base_round_trip(&self) -> f64 {
        self.round_trip + self.packets_per_ack / self.bandwidth
    }

    /// The round trip with `window` packets in flight.
    fn round_trip_with(&self, window: f64) -> f64 {
        self.base_round_trip().max(window / self.bandwidth)
    }

    fn without_loss(&self, window: f64) -> WindowOutcome {
        WindowOutcome {
            rate: (window / self.round_trip_with(window)).min(self.bandwidth),
            time_out_probability: 0.0,
            stall: 0.0,
            losses: 0.0,
            in_flight: window,
        }
    }

    /// Windows up to `top`, where it stays (`held`) or meets a full queue.
    fn grid(&self, top: f64, held: bool) -> Vec<Step> {
        let mut windows = vec![1.0];
        let mut next: f64 = 1.5;
        while next < top * 0.995 {
            windows.push(next);
            next = (next + 0.5).max(next * 1.03);
        }
        windows.push(top.max(1.0));
        let mut grid: Vec<Step> = windows
            .windows(2)
            .map(|pair| {
                let middle = (pair[0] + pair[1]) / 2.0;
                let step = self.packets_per_ack * (pair[1] - pair[0]);
                Step {
                    window: pair[0],
                    avoidance: self.climb(middle, step * middle),
                    slow_start: self.climb(middle, step),
                    loss: self.loss_at(middle),
                }
            })
            .collect();
        let stays = Climb {
            survives: 0.0,
            packets: if held { 1.0 / self.loss } else { 0.0 },
            time: 0.0,
        };
        let stays = Climb {
            time: stays.packets * self.round_trip_with(top) / top,
            ..stays
        };
        grid.push(Step {
            window: top,
            avoidance: stays,
            slow_start: stays,
            loss: self.loss_at(top),
        });
        grid
    }

    /// `packets` sent at about `window`.
    fn climb(&self, window: f64, packets: f64) -> Climb {
        let survives = libm::exp(packets * libm::log1p(-self.loss));
        let sent = if self.loss > 0.0 {
            -libm::expm1(packets * libm::log1p(-self.loss)) / self.loss
        } else {
            packets
        };
        Climb {
            survives,
            packets: sent,
            time: sent * self.round_trip_with(window) / whole_segments(window),
        }
    }
}
