//! The analysis as printed: Maki §III B, Eqs (2)–(6).

use super::queue::Queue;
use super::{Analysis, Numbers, Solution};

/// Iterates until |ρ\[i−1\] − ρ\[i\]|/ρ\[i−1\] < ε, Eq. (2).
pub fn solve(legs: &[Numbers], expected: f64, analysis: &Analysis) -> Solution {
    let epsilon = analysis.epsilon.max(1e-12);
    let mut through = expected;
    let mut iterations = 0;
    loop {
        iterations += 1;
        let rates = iterate(legs, through);
        let next = rates.last().copied().unwrap_or(0.0);
        let converged = (through - next).abs() < epsilon * through;
        if converged || next <= 0.0 || iterations >= analysis.most_iterations {
            return Solution {
                rates,
                iterations,
                converged: converged || next <= 0.0,
            };
        }
        through = next;
    }
}

/// ρₖ\[i\] for all legs in order, from ρ\[i−1\].
fn iterate(legs: &[Numbers], through: f64) -> Vec<f64> {
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
            rate = rate.min(arriving).min(fed(leg, &legs[inbound], arriving));
        }
        rates.push(rate);
    }
    rates
}

/// ρₖ⁗ of Eq. (5): the sum over the states of the send buffer at the start of a loss cycle.
///
/// The states are those of an M/M/1/K queue, K = SBₖ, load ρₖ₋₁\[i\]/ρₖ\[0\].
fn fed(leg: &Numbers, inbound: &Numbers, arriving: f64) -> f64 {
    let Some(between_losses) = inbound.between_losses else {
        return leg.isolated;
    };
    if arriving <= 0.0 {
        return 0.0;
    }
    let service = leg.isolated;
    let room = leg.waiting / leg.packet;
    let queue = Queue::new(arriving / service, room);
    // States of up to T_f·ρₖ[0] packets starve; the others send at ρₖ[0].
    let starving = (inbound.stall * service / leg.packet)
        .floor()
        .min(room.floor());
    let lasting = queue.at_least(starving + 1.0);
    // Σ p(j)·j over the starving states, in bytes.
    let backlog = (queue.mean_up_to(starving) - starving * lasting).max(0.0) * leg.packet;
    let time = inbound.stall + between_losses / arriving.min(service);
    lasting * service + (backlog + (1.0 - lasting) * between_losses) / time
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::numbers;
    use super::*;

    #[test]
    fn the_closed_form_is_the_sum_of_eq_5() {
        for (arriving, service) in [(80.0, 100.0), (100.0, 100.0), (120.0, 100.0), (30.0, 400.0)] {
            for room in [1.0, 8.0, 64.0, 300.0] {
                let (leg, inbound) = (numbers(service, room), numbers(arriving, 1.0));
                let load: f64 = arriving / service;
                let states = 0..=room as i32;
                let total: f64 = states.clone().map(|j| load.powi(j)).sum();
                let sum: f64 = states
                    .map(|j| {
                        let refill = f64::min(arriving, service);
                        let share = if f64::from(j) > 0.264 * service {
                            1.0
                        } else {
                            (f64::from(j) + 100.0) / (0.264 + 100.0 / refill) / service
                        };
                        load.powi(j) / total * share * service
                    })
                    .sum();
                let found = fed(&leg, &inbound, arriving);
                assert!(
                    (found - sum).abs() < 1e-7,
                    "{arriving} {room}: {found} {sum}"
                );
            }
        }
    }
}
