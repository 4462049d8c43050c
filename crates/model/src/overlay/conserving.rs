//! The analysis with packets conserved: the reading that Midspan uses for planning.
//!
//! Like the printed analysis, it has the states of the send buffer as an M/M/1/K queue, the loss
//! cycle T_f, N_f, T_l, N_l and the remaining receive buffer. It differs in two points.
//!
//! 1. T_l = N_l/ρₖ\[0\]. The printed N_l/min(ρₖ₋₁, ρₖ\[0\]) counts the stalls of a slower inbound
//!    leg twice: once in its average rate ρₖ₋₁ and once more in T_f.
//! 2. The load of the queue. An outbound leg that starves at times can serve only U = Σ p(j)·ρₖ{j}
//!    < ρₖ\[0\]; the data that it could not send waits. So the load is ρₖ₋₁/U, not ρₖ₋₁/ρₖ\[0\]:
//!    the root of r·U(r) = ρₖ₋₁. U grows with r, because a fuller buffer starves less, so there is
//!    one root. If the root is at most 1, the leg carries everything that arrives; otherwise it
//!    carries U.
//!
//! Legs whose formula contains the cost of their time-outs are bounded further: see `interrupted`.
//!
//! Consequences: U ≤ ρₖ\[0\], so no chain is faster than its slowest leg. With K → ∞, a load of 1
//! or more fills any backlog, so U → ρₖ\[0\] and the chain is as fast as its slowest leg. U grows
//! with ρₖ\[0\], K and N_l and falls with T_f, so no improvement of a leg makes the chain slower.

use super::interrupted;
use super::queue::Queue;
use super::{Analysis, Numbers, Solution};

/// Halvings of an interval: enough for every digit of a double.
const HALVINGS: u32 = 60;

/// Finds ρ with ρ = F(ρ), where F(ρ) is the output of the last leg if ρ loads the receive buffers.
/// F falls as ρ grows, so there is one such ρ; bisection ends when the interval is within ε of Eq.
/// (2).
pub fn solve(legs: &[Numbers], expected: f64, analysis: &Analysis) -> Solution {
    let through = |rates: &[f64]| rates.last().copied().unwrap_or(0.0);
    let expected = expected.min(interrupted::bound(legs));
    // With idle receive buffers: the most that can pass.
    let mut idle = chain(legs, 0.0);
    let most = through(&idle).min(expected);
    let loaded = chain(legs, most);
    if through(&loaded) >= most {
        if let Some(last) = idle.last_mut() {
            *last = most;
        }
        return Solution {
            rates: idle,
            iterations: 1,
            converged: true,
        };
    }
    // Far below ε, so that the result does not jump as the input changes.
    let epsilon = analysis.epsilon.clamp(1e-12, 1e-9);
    let (mut low, mut high) = (0.0, most);
    let mut iterations = 1;
    while iterations < HALVINGS && high - low > epsilon * high {
        iterations += 1;
        let middle = (low + high) / 2.0;
        if through(&chain(legs, middle)) >= middle {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut rates = chain(legs, low);
    if let Some(last) = rates.last_mut() {
        *last = low;
    }
    Solution {
        rates,
        iterations,
        converged: high - low <= epsilon * high,
    }
}

/// The rate that each leg can pass if `through` loads the receive buffers.
fn chain(legs: &[Numbers], through: f64) -> Vec<f64> {
    let mut rates: Vec<f64> = Vec::with_capacity(legs.len());
    for (index, leg) in legs.iter().enumerate() {
        let mut rate = leg.isolated;
        if let Some(window) = legs
            .get(index + 1)
            .and_then(|next| leg.window_rate(next, through))
        {
            rate = rate.min(window);
        }
        if let (Some(inbound), Some(&arriving)) = (index.checked_sub(1), rates.last()) {
            rate = rate.min(carried(leg, &legs[inbound], arriving));
        }
        rates.push(rate);
    }
    rates
}

/// The part of `arriving` that the outbound `leg` carries.
fn carried(leg: &Numbers, inbound: &Numbers, arriving: f64) -> f64 {
    let service = leg.isolated;
    let Some(between_losses) = inbound.between_losses else {
        return arriving.min(service);
    };
    if arriving <= 0.0 {
        return 0.0;
    }
    let room = leg.waiting / leg.packet;
    // Packets that a stall of the inbound leg needs, and packets between two losses.
    let needed = inbound.stall * service / leg.packet;
    let refill = between_losses / leg.packet;
    // U(r) = Σ p(j)·(min(j, T_f·ρₖ[0]) + N_l)/(T_f + N_l/ρₖ[0]).
    let capacity = |load: f64| {
        let backlog = Queue::new(load, room).mean_up_to(needed);
        service * (refill + backlog) / (refill + needed)
    };
    let even = capacity(1.0);
    if even >= arriving {
        return arriving;
    }
    let (mut low, mut high) = (1.0, arriving / even);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if middle * capacity(middle) < arriving {
            low = middle;
        } else {
            high = middle;
        }
    }
    (arriving / high).min(service)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::numbers;
    use super::*;

    #[test]
    fn a_slower_inbound_leg_loses_nothing() {
        let found = carried(&numbers(200.0, 8.0), &numbers(100.0, 1.0), 100.0);
        assert_eq!(found, 100.0);
    }

    #[test]
    fn equal_legs_starve_less_the_larger_the_buffer() {
        let at = |room| carried(&numbers(100.0, room), &numbers(100.0, 1.0), 100.0);
        assert!(at(1.0) < 81.0, "{}", at(1.0));
        assert!(at(8.0) < at(64.0) && at(64.0) < at(512.0));
        assert!(at(512.0) > 99.0 && at(512.0) < 100.0);
        assert!((at(1e9) - 100.0).abs() < 1e-6);
    }

    #[test]
    fn a_much_faster_inbound_leg_keeps_the_buffer_full() {
        // 64 packets last longer than a stall of 26.
        let found = carried(&numbers(100.0, 64.0), &numbers(1e6, 1.0), 1e6);
        assert!((found - 100.0).abs() < 1e-6, "{found}");
        // 10 packets do not: 16.4 of each 126.4 packets are missing.
        let found = carried(&numbers(100.0, 10.0), &numbers(1e6, 1.0), 1e6);
        assert!((found - 100.0 * 110.0 / 126.4).abs() < 0.01, "{found}");
    }
}
