//! The congestion window of Reno and NewReno as a Markov chain, from one loss to the next.
//!
//! PFTK uses the mean of the window and the mean of everything else. That suffices for a long path
//! with a small loss. It does not suffice if the window is a few segments, if a buffer or a queue
//! limits it, or if a time-out lasts a thousand round trips. Here the window has a distribution: it
//! grows until a packet is lost, at random or because the queue is full. The consequences of the
//! loss (fast retransmit or time-out, and the window after it) depend on how large the window was.
//!
//! - Growth (RFC 5681): one more segment needs b·w packets in congestion avoidance, b in slow
//!   start. b is the number of packets per ACK, or 1 if the sender counts bytes (RFC 3465). Each packet is lost with probability p. The round trip is that of the path, or w/C if
//!   the window fills the queue.
//! - At the top, the window stays if a buffer bounds it, and loses a packet if the queue bounds it.
//! - A loss in a window of w is followed by w − 1 packets, each of which is lost with p too. Fast
//!   retransmit needs three duplicate ACKs; limited transmit (RFC 3042) sends one new packet for
//!   each of the first two. If the retransmission is lost, a time-out follows. For further losses,
//!   NewReno takes a round trip each (RFC 6582), Reno a time-out.
//! - After fast recovery the window is half. After a time-out it is one segment, and slow start
//!   leads to half, or to a quarter if the time-out occurred in recovery.
//!
//! Sources: the loss states of Padhye, Firoiu, Towsley and Kurose ([`crate::pftk`]); RFC 5681, RFC
//! 6298, RFC 6582 and RFC 3042 for the reactions. No parameter is fitted. The distribution is on a
//! grid, so a result is exact to about half a percent, and is monotone in each input except for
//! deviations of up to 2 %.

mod after_loss;
mod stationary;

use after_loss::AfterLoss;

use crate::PacketRate;
use crate::pftk::Conditions;

/// How a Reno-like sender reacts to several losses in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Fast recovery ends with the first new ACK; a second loss in the window leads to a time-out.
    Reno,
    /// Fast recovery continues after partial ACKs (RFC 6582).
    NewReno,
}

/// A connection that has a leg for itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowModel {
    /// How the sender reacts to several losses in one window.
    pub recovery: Recovery,
    /// Round trip without waiting in the queue, in seconds.
    pub round_trip: f64,
    /// Rate of the link in packets per second; above zero.
    pub bandwidth: f64,
    /// Loss per packet, 0…1.
    pub loss: f64,
    /// Packets per ACK.
    pub packets_per_ack: f64,
    /// b, packets for a growth of 1/w.
    pub growth: f64,
    /// Largest number of packets in flight that buffers allow.
    pub window: Option<f64>,
    /// Packets that may wait before the link.
    pub queue: Option<f64>,
    /// Least retransmission time-out in seconds.
    pub time_out: f64,
}

/// The result of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowOutcome {
    /// Packets per second that arrive, each counted once.
    pub rate: f64,
    /// Share of the losses that end in a time-out.
    pub time_out_probability: f64,
    /// Mean time from a loss until the lost data arrives, in seconds.
    pub stall: f64,
    /// Losses per second.
    pub losses: f64,
    /// Mean packets in flight.
    pub in_flight: f64,
}

/// Delayed ACK of a packet without a successor, in seconds.
const DELAYED_ACK: f64 = 0.1;
/// Larger windows count as this one, which is more than any buffer holds.
const LARGEST_WINDOW: f64 = 1e9;

/// Segments in flight with a window of `window`: only whole ones, so half a segment less on
/// average.
fn whole_segments(window: f64) -> f64 {
    (window - 0.5).max(1.0)
}

/// A point of the grid of windows, and the growth from it to the next point.
#[derive(Debug, Clone, Copy)]
struct Step {
    window: f64,
    /// Congestion avoidance.
    avoidance: Climb,
    /// Slow start.
    slow_start: Climb,
    /// The consequences of a loss at this window.
    loss: AfterLoss,
}

/// The growth from one window to the next.
#[derive(Debug, Clone, Copy)]
struct Climb {
    /// Probability that no packet is lost.
    survives: f64,
    /// Mean number of packets sent, and mean time taken, up to a loss.
    packets: f64,
    time: f64,
}

impl WindowModel {
    /// A leg under `conditions`, whose time-out is the first one; for the other parameters see the
    /// fields.
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
            growth: conditions.growth.max(1.0),
            window,
            queue,
            time_out: conditions.time_out,
        }
    }

    /// The distribution of windows and its results; `None` if only the link bounds the rate, or if
    /// every packet is lost (p = 1).
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

    /// Whole packets in flight that the buffers allow, minus the packets that wait for a delayed
    /// ACK.
    fn held_window(&self) -> f64 {
        let window = self.window.map_or(LARGEST_WINDOW, |window| {
            window.floor().clamp(1.0, LARGEST_WINDOW)
        });
        // A packet without a successor is acknowledged when the timer expires or, once a round trip
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

    /// Propagation delay, and the transmission of the packets that one ACK covers.
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

    /// The windows up to `top`, where the window stays (`held`) or fills the queue.
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
                let step = self.growth * (pair[1] - pair[0]);
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

    /// The growth while `packets` are sent at about `window`.
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
