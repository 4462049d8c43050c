//! End-to-end throughput of a connection split by proxies, including the interaction of the legs:
//! Maki et al., "Performance analysis and improvement of TCP proxy mechanism in TCP overlay
//! networks", §III.
//!
//! Without interaction, a chain of legs is as fast as its slowest leg, Eq. (4). In a proxy the legs
//! interact. While the inbound leg waits for a retransmission, in-order delivery passes no data on,
//! and the outbound leg starves unless its send buffer holds enough (Fig. 3(a)). And the data that
//! a slow outbound leg leaves in the proxy closes the inbound leg's window (Fig. 3(b)).
//!
//! There are two readings of the analysis, see [`Reading`]: the paper's own, in `printed`, and the
//! one for planning, in `conserving`. Both use the queue of `queue` and the loss cycle of `cycle`.

mod conserving;
mod cycle;
mod interrupted;
mod printed;
mod queue;

use midspan_units::ByteSize;

use crate::leg::{Isolated, Leg, Limit};
use crate::{ModelError, Throughput};

/// Largest number of legs in a chain.
pub const MOST_LEGS: usize = 1024;

/// How the paper's analysis is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reading {
    /// The paper's text as printed, Eqs (2)–(6). It counts the stalls of a slower inbound leg twice
    /// (they are part of its average rate already). So even endless send buffers do not restore the
    /// throughput of the slowest leg, and a faster outbound leg can give a lower result.
    Printed,
    /// The same states, cycle and queue, with the packets conserved: data that the outbound leg
    /// cannot send is not lost but waits in the send buffer, so the buffer has the load that
    /// carries the flow. Never better than the slowest leg, equal to it with endless send buffers,
    /// and never worse for more bandwidth, less delay, less loss or more buffer.
    #[default]
    Conserving,
}

/// How to run the analysis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Analysis {
    /// The reading to use.
    pub reading: Reading,
    /// ε of Eq. (2): the iteration ends when the throughput changes by less than this share. The
    /// paper uses 0.01. Values of 10⁻¹² or less, and values that are not a number, count as 10⁻¹².
    pub epsilon: f64,
    /// Largest number of iterations; at least one is made.
    pub most_iterations: u32,
}

impl Default for Analysis {
    fn default() -> Self {
        Self {
            reading: Reading::default(),
            epsilon: 0.01,
            most_iterations: 100,
        }
    }
}

impl Analysis {
    /// The paper's own settings: as printed, ε = 0.01.
    #[must_use]
    pub fn printed() -> Self {
        Self {
            reading: Reading::Printed,
            ..Self::default()
        }
    }
}

/// A leg in a chain, with the proxy buffer that feeds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainedLeg {
    /// The leg alone.
    pub leg: Leg,
    /// SBₖ, room in the proxy for data that waits for this leg. Unused on the first leg, whose
    /// sender always has data. Less than one segment counts as one segment.
    pub waiting: ByteSize,
}

/// The result of the analysis for one leg.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LegOutcome {
    /// The leg alone: ρₖ\[0\] and its limits.
    pub isolated: Isolated,
    /// ρₖ: the rate of this leg with interaction, in bit/s of user data.
    pub throughput: Throughput,
    /// T_f, how long a loss on this leg stalls the data, in seconds.
    pub stall: f64,
}

/// The result of the analysis for a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// ρ, end to end, in bit/s of user data.
    pub throughput: Throughput,
    /// ρ\[0\], the rate of the slowest leg alone, Eq. (4).
    pub expected: Throughput,
    /// The legs, in order from the sender.
    pub legs: Vec<LegOutcome>,
    /// The leg that is the slowest alone; the first one of equals.
    pub slowest: usize,
    /// Number of iterations.
    pub iterations: u32,
    /// Whether the iterations reached ε. If not, `throughput` is that of the last iteration.
    pub converged: bool,
}

impl Outcome {
    /// The limit of the slowest leg.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.legs[self.slowest].isolated.limit
    }

    /// Share of the expected throughput that the interaction costs, 0…1; zero if the expected
    /// throughput is zero.
    #[must_use]
    pub fn coupling_loss(&self) -> f64 {
        self.throughput
            .ratio(self.expected)
            .map_or(0.0, |share| (1.0 - share).clamp(0.0, 1.0))
    }
}

/// A leg in the units of both readings. Rates are in bytes of user data per second and buffers in
/// bytes, so that legs with different segment sizes can be combined.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    /// Bytes of data in a packet of this leg.
    packet: f64,
    round_trip: f64,
    /// ρₖ\[0\].
    isolated: f64,
    /// RBₖ.
    receive_buffer: f64,
    /// SBₖ.
    waiting: f64,
    /// T_f of a loss on this leg.
    stall: f64,
    /// N_l, bytes between two losses on this leg; `None` without loss.
    between_losses: Option<f64>,
    /// The duration of a time-out in seconds, and the bytes between two time-outs; `None` without
    /// time-outs, and if the leg's formula does not contain them.
    time_outs: Option<(f64, f64)>,
}

impl Numbers {
    fn of(chained: &ChainedLeg, isolated: &Isolated) -> Self {
        let leg = &chained.leg;
        let packet = f64::from(leg.transport.payload());
        let loss = leg.section.loss();
        let round_trip = leg.section.round_trip();
        let (share, rate) = (isolated.time_out_probability, isolated.rate);
        let stall = isolated.cycle.map_or_else(
            || cycle::stall(round_trip, leg.transport.time_out.on(&leg.section), share),
            |cycle| cycle.stall,
        );
        let between_losses = match isolated.cycle {
            Some(cycle) => {
                (cycle.losses > 0.0).then(|| packet * rate.packets_per_second() / cycle.losses)
            }
            None => (loss > 0.0).then(|| packet / loss),
        };
        Self {
            packet,
            round_trip,
            isolated: rate.packets_per_second() * packet,
            receive_buffer: leg.transport.packets_in(leg.receive_buffer) * packet,
            waiting: leg.transport.packets_in(chained.waiting) * packet,
            stall,
            between_losses,
            // Only if the formula contains its stalls: the paper's own formulas stay as they are.
            time_outs: between_losses
                .filter(|_| isolated.cycle.is_some())
                .and_then(|bytes| cycle::time_outs(round_trip, stall, share, bytes)),
        }
    }

    /// The rate that the free part of the receive buffer allows on this leg: RRBₖ/RTTₖ. `next` is
    /// the leg that empties the buffer, `through` the throughput of the chain.
    ///
    /// Receive buffer and the next leg's send buffer are one M/M/1/K queue of that leg's
    /// packets, K = RBₖ + SBₖ₊₁, load ρ\[i−1\]/ρₖ₊₁\[0\]; RRBₖ = min(RBₖ, K − mean length).
    fn window_rate(&self, next: &Self, through: f64) -> Option<f64> {
        if self.round_trip <= 0.0 {
            return None;
        }
        let room = (self.receive_buffer + next.waiting) / next.packet;
        let queue = queue::Queue::new(through / next.isolated, room);
        let free = (room - queue.mean()) * next.packet;
        Some(free.min(self.receive_buffer).max(0.0) / self.round_trip)
    }
}

/// The end-to-end throughput of `chain`, from the sender's leg to the receiver's.
///
/// For a chain of one leg, the result is that leg alone. If one leg passes nothing, the chain
/// passes nothing.
///
/// # Errors
/// [`ModelError::Legs`] if the chain is empty or has more than [`MOST_LEGS`].
pub fn analyse(chain: &[ChainedLeg], analysis: &Analysis) -> Result<Outcome, ModelError> {
    if chain.is_empty() || chain.len() > MOST_LEGS {
        return Err(ModelError::Legs {
            found: chain.len(),
            most: MOST_LEGS,
        });
    }
    let isolated: Vec<Isolated> = chain.iter().map(|leg| leg.leg.isolated()).collect();
    let legs: Vec<Numbers> = chain
        .iter()
        .zip(&isolated)
        .map(|(leg, isolated)| Numbers::of(leg, isolated))
        .collect();
    let (slowest, expected) = slowest(&legs);
    let result = if expected <= 0.0 {
        Solution::none(legs.len())
    } else {
        match analysis.reading {
            Reading::Printed => printed::solve(&legs, expected, analysis),
            Reading::Conserving => conserving::solve(&legs, expected, analysis),
        }
    };
    let throughput = |bytes_per_second: f64| Throughput::from_f64(bytes_per_second * 8.0);
    Ok(Outcome {
        throughput: throughput(result.through()),
        expected: throughput(expected),
        legs: isolated
            .into_iter()
            .zip(&legs)
            .zip(&result.rates)
            .map(|((isolated, numbers), rate)| LegOutcome {
                isolated,
                throughput: throughput(*rate),
                stall: numbers.stall,
            })
            .collect(),
        slowest,
        iterations: result.iterations,
        converged: result.converged,
    })
}

/// The leg that is the slowest alone, and its rate, Eq. (4).
fn slowest(legs: &[Numbers]) -> (usize, f64) {
    legs.iter()
        .enumerate()
        .fold((0, f64::MAX), |(slowest, least), (index, leg)| {
            if leg.isolated < least {
                (index, leg.isolated)
            } else {
                (slowest, least)
            }
        })
}

/// The rates of all legs, and how they were found.
struct Solution {
    /// ρₖ in bytes per second.
    rates: Vec<f64>,
    iterations: u32,
    converged: bool,
}

impl Solution {
    fn none(legs: usize) -> Self {
        Self {
            rates: vec![0.0; legs],
            iterations: 0,
            converged: true,
        }
    }

    /// The output of the last leg.
    fn through(&self) -> f64 {
        self.rates.last().copied().unwrap_or(0.0)
    }
}

/// Shared by the tests of both readings.
#[cfg(test)]
mod fixtures {
    use super::Numbers;

    /// A leg of 100 ms with packets of one byte, which loses every hundredth packet and then
    /// stalls.
    pub fn numbers(isolated: f64, waiting: f64) -> Numbers {
        Numbers {
            packet: 1.0,
            round_trip: 0.1,
            isolated,
            receive_buffer: 1000.0,
            waiting,
            stall: 0.264,
            between_losses: Some(100.0),
            time_outs: None,
        }
    }
}
