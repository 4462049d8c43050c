//! Response functions: the rate that a sender's congestion control reaches at a given loss.
//!
//! PFTK describes TCP Reno. Today's senders run CUBIC or BBR, with SACK and RACK-TLP; this module
//! has their functions, so that predictions hold for them too.

use crate::pftk::{self, Conditions};
use crate::window::{Recovery, WindowModel};
use crate::{PacketRate, path::Section};

/// The sender to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Response {
    /// Reno according to Maki's Eq. (1), [`pftk::approximate`].
    #[default]
    Reno,
    /// Reno according to the full model, [`pftk::throughput`], which includes the receive window.
    RenoFull,
    /// CUBIC according to RFC 9438, with SACK and RACK-TLP (RFC 8985): see [`cubic`].
    Cubic,
    /// BBR version 1, that of Linux: see [`bbr`].
    Bbr,
    /// Reno or NewReno according to the distribution of the window, which includes buffers and
    /// queue: see [`crate::window`].
    Window(Recovery),
}

/// The rate of a sender in the long run, and how it recovers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// The rate that loss allows; `None` if loss sets no limit.
    pub rate: Option<PacketRate>,
    /// Probability that a lost packet is noticed only by a time-out, 0…1.
    pub time_out_probability: f64,
    /// Mean time from a loss until the lost data arrives, and losses per second, if the formula
    /// contains them.
    pub cycle: Option<Cycle>,
}

/// How often a leg loses packets, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cycle {
    /// Mean time from a loss until the lost data arrives, in seconds.
    pub stall: f64,
    /// Losses per second, including those at a full queue; several losses in one window count as
    /// one.
    pub losses: f64,
}

impl Response {
    /// Share of the window that remains after a loss: β for CUBIC, half for Reno; BBR does not
    /// react to loss.
    #[must_use]
    pub const fn remains_after_loss(self) -> f64 {
        match self {
            Self::Reno | Self::RenoFull | Self::Window(_) => 0.5,
            Self::Cubic => CUBIC_BETA,
            Self::Bbr => 1.0,
        }
    }

    /// The rate under `conditions`. `bandwidth` is that of the section in packets/s. `window`, the
    /// number of packets in flight that buffers allow, is part of the formulas of
    /// [`Response::RenoFull`] and [`Response::Window`]; `queue`, the number of packets that may
    /// wait, is part of [`Response::Window`].
    #[must_use]
    pub fn steady(
        self,
        conditions: &Conditions,
        bandwidth: PacketRate,
        window: Option<f64>,
        queue: Option<f64>,
    ) -> Steady {
        let reno = |rate| Steady {
            rate,
            time_out_probability: reno_time_outs(conditions),
            cycle: None,
        };
        // RACK-TLP detects a loss at the tail too; only a lost retransmission leads to a time-out.
        let modern = |rate| Steady {
            rate,
            time_out_probability: conditions.loss,
            cycle: None,
        };
        match self {
            Self::Reno => reno(pftk::approximate(conditions)),
            Self::RenoFull => reno(pftk::throughput(conditions, window)),
            Self::Cubic => modern(cubic(conditions)),
            Self::Bbr => modern(Some(bbr(conditions, bandwidth))),
            Self::Window(recovery) => {
                let model = WindowModel::new(recovery, conditions, bandwidth, window, queue);
                by_window(&model)
            }
        }
    }
}

/// The result of [`crate::window`]; without a result, either nothing bounds the rate or nothing
/// passes.
fn by_window(model: &WindowModel) -> Steady {
    match model.solve() {
        Some(outcome) => Steady {
            rate: Some(PacketRate::from_f64(outcome.rate)),
            time_out_probability: outcome.time_out_probability,
            cycle: Some(Cycle {
                stall: outcome.stall,
                losses: outcome.losses,
            }),
        },
        None => Steady {
            rate: (model.loss >= 1.0).then_some(PacketRate::ZERO),
            time_out_probability: model.loss.min(1.0).floor(),
            cycle: None,
        },
    }
}

/// min(1, 3/E\[W\]): the probability that Reno notices a loss only by a time-out (Maki, below Eq.
/// (6)).
fn reno_time_outs(conditions: &Conditions) -> f64 {
    pftk::window_at_loss(conditions).map_or(0.0, |window| (3.0 / window).min(1.0))
}

/// C and β of RFC 9438 §4.6, §5.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// CUBIC in packets/s.
///
/// Average window (RFC 9438 §5.1): the larger of (C·(3+β)/(4·(1−β)))^¼·RTT^¾/p^¾ and, in the
/// Reno-friendly region, √(3/(2p)). The time-outs of Eq. (1) are added, weighted with the
/// probability p that a retransmission is lost too, because RACK-TLP leaves only these to
/// time-outs.
///
/// No loss: `None`. Every packet lost: zero. No delay: time-outs only.
#[must_use]
pub fn cubic(conditions: &Conditions) -> Option<PacketRate> {
    let &Conditions {
        round_trip,
        loss,
        time_out,
        ..
    } = conditions;
    if loss <= 0.0 {
        return None;
    }
    if loss >= 1.0 {
        return Some(PacketRate::ZERO);
    }
    let factor = CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA));
    let concave = libm::pow(factor, 0.25) * libm::pow(round_trip / loss, 0.75);
    let friendly = (1.5 / loss).sqrt();
    let window = concave.max(friendly);
    let waiting = time_out * loss * loss * (1.0 + 32.0 * loss * loss);
    let time = round_trip / window + waiting;
    (time > 0.0).then(|| PacketRate::from_f64(1.0 / time))
}

/// Above this loss, a probe at 1.25 times the estimate returns less than the estimate.
const BBR_LOSS: f64 = 0.2;
/// Least number of packets in flight with BBR.
const BBR_LEAST_WINDOW: f64 = 4.0;

/// BBR version 1 in packets/s, on a path without other traffic.
///
/// BBR does not treat loss as a signal: the arriving rate is bandwidth·(1−p) as long as probing at
/// 1.25 times the estimated rate still returns at least that rate, 1.25·(1−p) > 1, so p < 0.2.
/// Above that, the estimate shrinks at every probe until 4 packets in a round trip remain.
/// (Cardwell et al., "BBR: congestion-based congestion control", CACM 60 (2), 2017, Fig. 8:
/// collapse between 15 and 20 %.) Every packet lost: zero.
#[must_use]
pub fn bbr(conditions: &Conditions, bandwidth: PacketRate) -> PacketRate {
    let &Conditions {
        round_trip, loss, ..
    } = conditions;
    let arriving = bandwidth.packets_per_second() * (1.0 - loss);
    if loss < BBR_LOSS || round_trip <= 0.0 {
        return PacketRate::from_f64(arriving);
    }
    let floor = BBR_LEAST_WINDOW * (1.0 - loss) / round_trip;
    PacketRate::from_f64(arriving.min(floor))
}

/// The first retransmission time-out, T_o.
///
/// Never below the round trip: an ACK cannot arrive sooner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TimeOut {
    /// A fixed time in seconds. With 1 s (the least that RFC 6298 allows), the results are those of
    /// Maki's Table I, Table II and §IV.
    Fixed(midspan_units::TimeSpan),
    /// Four round trips: Maki Eq. (3).
    FourRoundTrips,
    /// The round trip plus 200 ms: the value of Linux if the delay hardly varies.
    Linux,
}

impl TimeOut {
    /// The time-out on `section`, in seconds.
    #[must_use]
    pub fn on(self, section: &Section) -> f64 {
        let round_trip = section.round_trip();
        match self {
            Self::Fixed(span) => span.as_seconds().max(round_trip),
            Self::FourRoundTrips => 4.0 * round_trip,
            Self::Linux => round_trip + 0.2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(round_trip: f64, loss: f64) -> Conditions {
        Conditions {
            round_trip,
            loss,
            time_out: round_trip + 0.2,
            packets_per_ack: 1.0,
            growth: 1.0,
        }
    }

    #[test]
    fn cubic_has_the_windows_of_rfc_9438() {
        // RFC 9438 §5.1, RTT 0.1 s: loss, and the average window of CUBIC with C = 0.4.
        for (loss, window) in [(1.0e-4, 187.0), (1.0e-5, 1054.0), (1.0e-6, 5926.0)] {
            let rate = cubic(&conditions(0.1, loss)).unwrap().packets_per_second();
            // The table has whole packets; time-outs cost almost nothing here.
            assert!((rate * 0.1 - window).abs() < 0.6, "{loss}: {rate}");
        }
    }

    #[test]
    fn at_high_loss_and_short_delay_cubic_is_reno_friendly() {
        let rate = cubic(&conditions(0.01, 0.01)).unwrap().packets_per_second();
        let friendly = (1.5f64 / 0.01).sqrt() / 0.01;
        assert!(rate < friendly && rate > 0.97 * friendly, "{rate}");
    }

    #[test]
    fn bbr_hardly_feels_loss_until_it_collapses() {
        let bandwidth = PacketRate::from_f64(1000.0);
        let rate = |loss| bbr(&conditions(0.1, loss), bandwidth).packets_per_second();
        assert_eq!(rate(0.1), 900.0);
        assert_eq!(rate(0.0), 1000.0);
        assert!((rate(0.25) - 30.0).abs() < 1e-9);
        assert_eq!(rate(1.0), 0.0);
    }

    #[test]
    fn loss_orders_the_senders() {
        // A long path with some loss: BBR above CUBIC above Reno.
        let bandwidth = PacketRate::from_f64(10_000.0);
        let rate = |response: Response| {
            let steady = response.steady(&conditions(0.25, 0.001), bandwidth, None, None);
            steady.rate.unwrap().packets_per_second()
        };
        assert!(rate(Response::Bbr) > rate(Response::Cubic));
        assert!(rate(Response::Cubic) > rate(Response::Reno));
    }
}
