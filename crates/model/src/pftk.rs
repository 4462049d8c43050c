//! Steady throughput of TCP Reno under random loss: Padhye, Firoiu, Towsley and Kurose.
//!
//! Sources: J. Padhye et al., "Modeling TCP throughput: a simple model and its empirical
//! validation", SIGCOMM 1998, and "Modeling TCP Reno performance", IEEE/ACM Transactions on
//! Networking 8 (2), 2000 (below *ToN*). Maki's Eq. (1) is the approximation of its send rate.
//!
//! The authors tested the formulas for losses above 0.001 and round trips above 0.1 s; slow start
//! is not included.
//!
//! Results for degenerate input. Without loss, only a window limits the rate; without a window, the result is
//! `None`. If every packet is lost, the rate is zero. Without delay, only time-outs take time; if there are
//! none, the result is `None`.

use std::num::NonZeroU32;

use midspan_units::{Probability, TimeSpan};

use crate::PacketRate;

/// The inputs of the formulas: a path and the TCP on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// RTT, in seconds.
    pub(crate) round_trip: f64,
    /// p, loss indications per packet, 0…1.
    pub(crate) loss: f64,
    /// T_o, the first retransmission time-out, in seconds.
    pub(crate) time_out: f64,
    /// Packets that one ACK acknowledges.
    pub(crate) packets_per_ack: f64,
    /// b of the formulas: packets that arrive for each growth of the window by 1/W. Equal to
    /// `packets_per_ack` if the sender counts ACKs, and 1 if it counts what they acknowledge.
    pub(crate) growth: f64,
}

impl Conditions {
    /// Conditions of a path: round trip, loss per packet, the first retransmission time-out, and b,
    /// the number of packets that one ACK acknowledges (1, or 2 with delayed ACKs).
    #[must_use]
    pub fn new(
        round_trip: TimeSpan,
        loss: Probability,
        time_out: TimeSpan,
        packets_per_ack: NonZeroU32,
    ) -> Self {
        Self {
            round_trip: round_trip.as_seconds(),
            loss: loss.as_f64(),
            time_out: time_out.as_seconds(),
            packets_per_ack: f64::from(packets_per_ack.get()),
            growth: f64::from(packets_per_ack.get()),
        }
    }
}

/// The square-root part: congestion avoidance alone, no time-outs.
///
/// ρ = 1 / (RTT·√(2bp/3)) packets/s. SIGCOMM Eq. (20); Hasegawa Eq. (2).
#[must_use]
pub fn square_root(conditions: &Conditions) -> Option<PacketRate> {
    let &Conditions {
        round_trip,
        loss,
        growth: b,
        ..
    } = conditions;
    per_packet(loss, round_trip * (2.0 * b * loss / 3.0).sqrt())
}

/// The approximation with time-outs that Maki uses throughout.
///
/// ρ = 1 / (RTT·√(2bp/3) + T_o·min(1, 3·√(3bp/8))·p·(1 + 32p²)) packets/s. Maki Eq. (1), the
/// approximation at the end of both papers of Padhye et al. without its window limit.
#[must_use]
pub fn approximate(conditions: &Conditions) -> Option<PacketRate> {
    let &Conditions {
        round_trip,
        loss,
        time_out,
        growth: b,
        ..
    } = conditions;
    let avoidance = round_trip * (2.0 * b * loss / 3.0).sqrt();
    let share = (3.0 * (3.0 * b * loss / 8.0).sqrt()).min(1.0);
    let waiting = time_out * share * loss * (1.0 + 32.0 * loss * loss);
    per_packet(loss, avoidance + waiting)
}

/// The full model's send rate B(p), retransmissions included, in packets/s. SIGCOMM
/// Eq. (31).
///
/// `window` is the receiver's window W_m in packets; `None` if it is no limit. A window of less
/// than one packet counts as one.
///
/// The printed equation changes branch where the unlimited window reaches W_m, and jumps there: for
/// b = 1 upwards as loss grows, for b > 2 downwards as the window grows. Here the result of the
/// limited branch is kept between the unlimited one at that point and the unlimited one at this
/// loss. So the rate never rises with loss and never falls with the window; away from that point,
/// nothing changes.
#[must_use]
pub fn send_rate(conditions: &Conditions, window: Option<f64>) -> Option<PacketRate> {
    full(conditions, window, |loss, _, share| share / (1.0 - loss))
}

/// The full model's throughput T(p), the rate of arriving packets per second. ToN, the section on
/// throughput, written for any b.
///
/// Like [`send_rate`], except that half of the last, partly lost round arrives, and one packet of a
/// sequence of time-outs.
#[must_use]
pub fn throughput(conditions: &Conditions, window: Option<f64>) -> Option<PacketRate> {
    full(conditions, window, |_, window, share| share - window / 2.0)
}

/// E\[W\], the window in packets at which a loss is noticed. SIGCOMM Eq. (13).
///
/// `None` without loss, because then it has no bound. At least one packet.
#[must_use]
pub fn window_at_loss(conditions: &Conditions) -> Option<f64> {
    let &Conditions {
        loss, growth: b, ..
    } = conditions;
    let offset = (2.0 + b) / (3.0 * b);
    (loss > 0.0).then(|| {
        let window = offset + (8.0 * (1.0 - loss) / (3.0 * b * loss) + offset * offset).sqrt();
        window.max(1.0)
    })
}

/// Q̂(w), the probability that a loss in a window of `window` packets leads to a time-out. SIGCOMM
/// §2.2.
#[must_use]
pub fn time_out_probability(loss: f64, window: f64) -> f64 {
    if window <= 3.0 || loss >= 1.0 {
        return 1.0;
    }
    // For loss → 0 the expression tends to 3/w; ln1p and expm1 keep its precision.
    let survive = |packets: f64| libm::exp(packets * libm::log1p(-loss));
    let fail = |packets: f64| -libm::expm1(packets * libm::log1p(-loss));
    if loss <= 0.0 {
        return (3.0 / window).min(1.0);
    }
    let share = fail(3.0) * (1.0 + survive(3.0) * fail(window - 3.0)) / fail(window);
    share.clamp(0.0, 1.0)
}

/// G(p), the factor for the doubling of the time-out. SIGCOMM Eq. (28).
fn back_off(p: f64) -> f64 {
    1.0 + p * (1.0 + p * (2.0 + p * (4.0 + p * (8.0 + p * (16.0 + p * 32.0)))))
}

/// Packets of a cycle, (1−p)/p + W + `extra(p, W, Q̂)`, divided by its duration.
fn full(
    conditions: &Conditions,
    limit: Option<f64>,
    extra: impl Fn(f64, f64, f64) -> f64,
) -> Option<PacketRate> {
    let &Conditions {
        round_trip,
        loss,
        growth: b,
        ..
    } = conditions;
    if loss >= 1.0 {
        return Some(PacketRate::ZERO);
    }
    let limit = limit.map(|window| window.max(1.0));
    let Some(unlimited) = window_at_loss(conditions) else {
        // No loss: one window in each round trip.
        let window = limit.filter(|_| round_trip > 0.0)?;
        return Some(PacketRate::from_f64(window / round_trip));
    };
    let growing =
        |loss: f64, window: f64| cycle(conditions, loss, window, b / 2.0 * window + 1.0, &extra);
    let free = growing(loss, unlimited)?;
    let Some(window) = limit.filter(|window| *window <= unlimited) else {
        return Some(PacketRate::from_f64(free));
    };
    let rounds = b / 8.0 * window + (1.0 - loss) / (loss * window) + 2.0;
    let limited = cycle(conditions, loss, window, rounds, &extra)?;
    // The loss at which the unlimited window is `window`, where the branches meet.
    let border = 1.0 / (1.0 + window * (3.0 * b * window / 8.0 - b / 4.0 - 0.5)).max(1.0);
    let at_border = growing(border, window).unwrap_or(0.0);
    Some(PacketRate::from_f64(limited.max(at_border).min(free)))
}

/// Packets per second of a cycle of `rounds` round trips that ends at a window of `window`.
fn cycle(
    conditions: &Conditions,
    loss: f64,
    window: f64,
    rounds: f64,
    extra: impl Fn(f64, f64, f64) -> f64,
) -> Option<f64> {
    if loss >= 1.0 {
        return Some(0.0);
    }
    let share = time_out_probability(loss, window);
    let packets = (1.0 - loss) / loss + window + extra(loss, window, share);
    let waiting = share * back_off(loss) * conditions.time_out / (1.0 - loss);
    let time = conditions.round_trip * rounds + waiting;
    (time > 0.0).then(|| packets / time)
}

/// One packet in each `time` seconds; includes the results for no loss and for a loss of 1.
fn per_packet(loss: f64, time: f64) -> Option<PacketRate> {
    if loss >= 1.0 {
        Some(PacketRate::ZERO)
    } else if loss > 0.0 && time > 0.0 {
        Some(PacketRate::from_f64(1.0 / time))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(loss: f64, b: f64) -> Conditions {
        Conditions {
            round_trip: 0.2,
            loss,
            time_out: 1.0,
            packets_per_ack: b,
            growth: b,
        }
    }

    #[test]
    fn the_approximation_is_that_of_maki_section_4() {
        let mut c = conditions(0.01, 1.0);
        c.round_trip = 0.1;
        let rate = approximate(&c).unwrap().packets_per_second();
        assert!((rate - 99.92).abs() < 0.005, "{rate}");
    }

    #[test]
    fn the_full_model_is_the_printed_equation_away_from_the_border() {
        // SIGCOMM Eq. (31) for b = 2 written out, W_m = 12.
        let (rtt, t0, most) = (0.2, 1.0, 12.0);
        for loss in [1e-4, 1e-3, 3e-3, 0.03, 0.1] {
            let free = 2.0 / 3.0 * (1.0 + (3.0 * (1.0 - loss) / loss + 1.0f64).sqrt());
            let q = |w: f64| {
                let good: f64 = 1.0 - loss;
                let cubed = good.powi(3);
                let rest = 1.0 - libm::pow(good, w - 3.0);
                ((1.0 - cubed) * (1.0 + cubed * rest) / (1.0 - libm::pow(good, w))).min(1.0)
            };
            let g = 1.0
                + loss
                + 2.0 * loss.powi(2)
                + 4.0 * loss.powi(3)
                + 8.0 * loss.powi(4)
                + 16.0 * loss.powi(5)
                + 32.0 * loss.powi(6);
            let window = free.min(most);
            let rounds = if free < most {
                free + 1.0
            } else {
                most / 4.0 + (1.0 - loss) / (loss * most) + 2.0
            };
            let printed = ((1.0 - loss) / loss + window + q(window) / (1.0 - loss))
                / (rtt * rounds + q(window) * g * t0 / (1.0 - loss));
            let found = send_rate(&conditions(loss, 2.0), Some(most)).unwrap();
            assert!(
                (found.packets_per_second() / printed - 1.0).abs() < 1e-9,
                "{loss}: {found:?} {printed}"
            );
        }
    }

    #[test]
    fn what_arrives_is_less_than_what_is_sent() {
        for loss in [1e-4, 1e-2, 0.3, 0.9] {
            let sent = send_rate(&conditions(loss, 1.0), None).unwrap();
            let arriving = throughput(&conditions(loss, 1.0), None).unwrap();
            assert!(arriving < sent, "{loss}");
        }
    }

    #[test]
    fn for_small_losses_all_forms_agree() {
        let c = conditions(1e-6, 1.0);
        let root = square_root(&c).unwrap().packets_per_second();
        for rate in [approximate(&c), send_rate(&c, None), throughput(&c, None)] {
            let rate = rate.unwrap().packets_per_second();
            assert!((rate / root - 1.0).abs() < 0.01, "{rate} {root}");
        }
    }

    #[test]
    fn no_loss_and_nothing_but_loss() {
        assert_eq!(approximate(&conditions(0.0, 1.0)), None);
        assert_eq!(throughput(&conditions(0.0, 1.0), None), None);
        let window = throughput(&conditions(0.0, 1.0), Some(10.0)).unwrap();
        assert!((window.packets_per_second() - 50.0).abs() < 1e-9);
        let all = conditions(1.0, 1.0);
        for rate in [square_root(&all), approximate(&all), throughput(&all, None)] {
            assert_eq!(rate, Some(PacketRate::ZERO));
        }
        assert_eq!(window_at_loss(&conditions(0.0, 1.0)), None);
        assert_eq!(time_out_probability(0.0, 6.0), 0.5);
    }
}
