//! The consequences of a packet loss: fast retransmit, recovery, time-outs.

use super::{Recovery, WindowModel};

/// Longest retransmission time-out in seconds (RFC 6298).
const LONGEST_TIME_OUT: f64 = 60.0;

/// The consequences of a loss.
#[derive(Debug, Clone, Copy)]
pub(super) struct AfterLoss {
    /// Mean time until the window grows again, and packets that get through in that time.
    pub(super) time: f64,
    pub(super) packets: f64,
    /// Probability that there are too few duplicate ACKs: a time-out, then slow start to half the
    /// window.
    pub(super) time_out: f64,
    /// Probability of a time-out during fast recovery: then slow start to a quarter of the window.
    pub(super) time_out_later: f64,
    /// Mean time until the lost packet arrives.
    pub(super) stall: f64,
}

impl WindowModel {
    /// The consequences of losing a packet in a window of `window`.
    pub(super) fn loss_at(&self, window: f64) -> AfterLoss {
        let p = self.loss;
        let following = (window - 1.0).max(0.0);
        let room = self
            .window
            .map_or(2.0, |most| (most.floor() - window).clamp(0.0, 2.0));
        let [none, one, two] = self.duplicates(following);
        // Limited transmit replaces missing duplicate ACKs.
        let by_one = room.min(1.0);
        let by_two = (room - 1.0).max(0.0);
        let saved_one = by_two * (1.0 - p) * (1.0 - p);
        let saved_two = by_one * (1.0 - p) + by_two * (p - p * p);
        let time_out = (none + one * (1.0 - saved_one) + two * (1.0 - saved_two)).clamp(0.0, 1.0);
        // Both the retransmission and the first packet that is sent in recovery must arrive:
        // without that packet, no second fast retransmit follows.
        let both = (1.0 - p) * (1.0 - p);
        let more = following + room;
        let recovers = match self.recovery {
            Recovery::Reno => both * libm::exp(more * libm::log1p(-p)),
            Recovery::NewReno => both * libm::exp(more * libm::log1p(-p * p)),
        };
        let later = (1.0 - time_out) * (1.0 - recovers);
        let others = match self.recovery {
            Recovery::Reno => 0.0,
            Recovery::NewReno => more * p,
        };
        let detection = self.round_trip_with(window);
        let round = self.round_trip_with(window * 0.75);
        let slow = (two * saved_two + 2.0 * one * saved_one) * round;
        let rounds = 1.0 + others;
        let fresh = (window / 2.0)
            .min(self.window.map_or(f64::MAX, |most| most - window))
            .max(0.0);
        let fast = rounds * round;
        let waiting = self.waiting(detection, more * p);
        let again = self.base_round_trip() * (1.0 + more * p);
        let recovered = (1.0 - time_out) * recovers;
        AfterLoss {
            time: detection
                + slow
                + recovered * fast
                + later * (fast / 2.0 + waiting + again)
                + time_out * (waiting + again),
            packets: following + 1.0 + recovered * rounds * fresh + later * fresh,
            time_out,
            time_out_later: later,
            stall: recovered * (slow + fast)
                + later * (fast / 2.0 + waiting + round)
                + time_out * (waiting + round),
        }
    }

    /// Probabilities of no, one and two duplicate ACKs after a loss that is followed by `following`
    /// packets.
    fn duplicates(&self, following: f64) -> [f64; 3] {
        // If the packet before the lost one was not acknowledged yet, the first ACK is not a
        // duplicate.
        let swallowed = 1.0 - 1.0 / self.packets_per_ack;
        let below = self.arrivals(following.floor());
        let above = self.arrivals(following.floor() + 1.0);
        let part = following - following.floor();
        let arrive: [f64; 4] =
            std::array::from_fn(|count| below[count] * (1.0 - part) + above[count] * part);
        [
            arrive[0] + arrive[1] * swallowed,
            arrive[1] * (1.0 - swallowed) + arrive[2] * swallowed,
            arrive[2] * (1.0 - swallowed) + arrive[3] * swallowed,
        ]
    }

    /// Probabilities that none, one, two or three of `count` packets arrive; `count` is whole.
    fn arrivals(&self, count: f64) -> [f64; 4] {
        let p = self.loss;
        let mut ways = 1.0;
        std::array::from_fn(|arrive| {
            let arrive = arrive as f64;
            if arrive > 0.0 {
                ways *= (count - arrive + 1.0) / arrive * (1.0 - p);
            }
            if arrive > count {
                return 0.0;
            }
            let rest = count - arrive;
            let lost = if rest == 0.0 { 1.0 } else { libm::pow(p, rest) };
            ways * lost
        })
    }

    /// Mean time that time-outs take: the first one, each doubled one as long as the retransmission
    /// is lost, and those of `others` lost packets that are retransmitted.
    fn waiting(&self, round_trip: f64, others: f64) -> f64 {
        let first = self.time_out.max(round_trip).min(LONGEST_TIME_OUT);
        let (mut sum, mut reached, mut wait) = (0.0, 1.0, first);
        for _ in 0..64 {
            sum += reached * wait;
            reached *= self.loss;
            wait = (2.0 * wait).min(LONGEST_TIME_OUT);
            if reached < 1e-12 {
                break;
            }
        }
        sum + (others + 1.0) * self.loss * (2.0 * first).min(LONGEST_TIME_OUT)
    }
}
