//! What a route really takes at one time.

use midspan_policy::overlay::{Congestion, RouteLeg};
use midspan_units::{BitRate, TimeSpan};

use crate::network::{Leg, Network};

/// The network as sessions find it at one time.
#[derive(Debug, Clone)]
pub struct Truth {
    network: Network,
    /// Nodes that have failed.
    down: Vec<bool>,
    /// Sessions on each leg, in the direction of their data.
    sessions: Vec<u32>,
}

impl Truth {
    /// This network, without sessions.
    pub fn new(network: Network) -> Self {
        let count = network.len();
        Self {
            down: vec![false; count],
            sessions: vec![0; count * count],
            network,
        }
    }

    /// A node fails.
    pub fn fail(&mut self, node: usize) {
        if let Some(down) = self.down.get_mut(node) {
            *down = true;
        }
    }

    /// Whether a node has failed.
    pub fn is_down(&self, node: usize) -> bool {
        self.down.get(node).copied().unwrap_or(true)
    }

    /// The leg from one node to another one; `None` if nothing passes.
    pub fn leg(&self, now: f64, from: usize, to: usize) -> Option<Leg> {
        match self.is_down(from) || self.is_down(to) {
            true => None,
            false => self.network.leg(now, from, to),
        }
    }

    /// The leg for one more session, which shares its rate with those that are there.
    pub fn shared(&self, now: f64, from: usize, to: usize) -> Option<RouteLeg> {
        let leg = self.leg(now, from, to)?;
        let others = self
            .sessions
            .get(self.place(from, to))
            .copied()
            .unwrap_or(0);
        route_leg(&leg, leg.rate / f64::from(others + 1))
    }

    /// A session begins (1) or ends (−1) on a leg.
    pub fn count(&mut self, from: usize, to: usize, change: i32) {
        let place = self.place(from, to);
        if let Some(sessions) = self.sessions.get_mut(place) {
            *sessions = sessions.saturating_add_signed(change);
        }
    }

    /// The legs of a route in the direction of the data: from the exit to the ingress. `stops` begins at the ingress.
    pub fn legs(&self, now: f64, stops: &[usize]) -> Option<Vec<RouteLeg>> {
        let hops = stops.windows(2).rev();
        hops.map(|hop| match hop {
            [near, far] => self.shared(now, *far, *near),
            _ => None,
        })
        .collect()
    }

    fn place(&self, from: usize, to: usize) -> usize {
        from * self.network.len() + to
    }
}

/// A leg for the formulas.
fn route_leg(leg: &Leg, rate: f64) -> Option<RouteLeg> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // Positive, and far below 2⁶³.
    let rate = BitRate::from_bits_per_second(rate.max(1_000.0) as u64)?;
    Some(RouteLeg {
        round_trip: span(leg.round_trip),
        loss: leg.loss,
        rate,
        congestion: Congestion::Cubic,
        is_hop: true,
    })
}

/// A time in seconds; none below zero.
pub fn span(seconds: f64) -> TimeSpan {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    TimeSpan::from_nanoseconds((seconds.max(0.0) * 1e9) as u64)
}
