//! Bursts and forward data, as distributions.

use midspan_link::{Bursts, Histogram};
use midspan_units::{Time, TimeSpan};

use super::legs::{LegName, legs};
use crate::observer::Observer;
use crate::packet::{Packet, Segment};
use crate::scenario::{Scenario, ScenarioError};

/// Measures bursts on every leg, and the forward data of every proxy, from a given time on.
///
/// A burst is a run of segments whose gaps are below half of the pacing gap. On a leg that is not
/// paced, the segments of a burst are back to back at the rate of its first link.
#[derive(Debug, Clone)]
pub struct BurstWatch {
    from: Time,
    legs: Vec<LegName>,
    bursts: Vec<Bursts>,
    forward: Vec<Histogram>,
}

impl BurstWatch {
    /// Measures the legs of `scenario` from the time `from` on.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(scenario: &Scenario, from: TimeSpan) -> Result<Self, ScenarioError> {
        let legs = legs(scenario)?;
        Ok(Self {
            from: Time::ZERO + from,
            bursts: legs.iter().map(|leg| Bursts::new(leg.burst_gap)).collect(),
            forward: vec![Histogram::default(); legs.len()],
            legs,
        })
    }

    /// Lengths of the bursts of a connection, in segments.
    pub fn bursts(&mut self, connection: usize) -> Option<&Histogram> {
        self.bursts.get_mut(connection).map(Bursts::finish)
    }

    /// The data that the proxy at the end of a connection handed on at once, in segments of its
    /// outbound leg, rounded up.
    #[must_use]
    pub fn forward_data(&self, connection: usize) -> Option<&Histogram> {
        self.forward.get(connection)
    }

    /// The connections: the name of each one's flow, and the number of the leg, counted from 1.
    pub fn connections(&self) -> impl Iterator<Item = (&str, usize)> {
        self.legs.iter().map(|leg| (leg.flow.as_str(), leg.leg))
    }
}

impl Observer for BurstWatch {
    fn sent(&mut self, now: Time, packet: &Packet) {
        if now >= self.from
            && matches!(packet.segment, Segment::Data(_))
            && let Some(bursts) = self.bursts.get_mut(packet.connection as usize)
        {
            bursts.handle_segment(now);
        }
    }

    fn forwarded(&mut self, now: Time, connection: u32, bytes: u64) {
        let outbound = self.legs.get(connection as usize + 1);
        if now >= self.from
            && let (Some(forward), Some(leg)) =
                (self.forward.get_mut(connection as usize), outbound)
        {
            forward.add(bytes.div_ceil(u64::from(leg.segment_size.max(1))));
        }
    }
}
