//! The limits that the links set for a flow: rates and round-trip time.

use midspan_link::Configuration;
use midspan_units::{BitRate, TimeSpan};

use crate::{Flow, Hop, Path};

/// The lowest rates on the path of a flow; `None` if no link has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// From the server to the client.
    pub down: Option<BitRate>,
    /// From the client to the server.
    pub up: Option<BitRate>,
}

impl Path {
    /// The lowest rate on the path of a flow, for each direction; for a link with a schedule, its
    /// [`mean_rate`].
    #[must_use]
    pub fn bottleneck(&self, flow: &Flow) -> Rates {
        Rates {
            down: self.least_rate(&self.way(flow.to, flow.from)),
            up: self.least_rate(&self.way(flow.from, flow.to)),
        }
    }

    /// The lowest rate in the direction of a flow's data; `None` if no link has a limit.
    #[must_use]
    pub fn data_rate(&self, flow: &Flow) -> Option<BitRate> {
        self.least_rate(&self.data_way(flow))
    }

    /// The mean delay of the links from client to server and back, at the start.
    #[must_use]
    pub fn round_trip_time(&self, flow: &Flow) -> TimeSpan {
        self.way(flow.from, flow.to)
            .iter()
            .map(|hop| self.link(hop.link))
            .fold(TimeSpan::ZERO, |sum, link| {
                sum + link.up.mean_delay() + link.down.mean_delay()
            })
    }

    fn least_rate(&self, way: &[Hop]) -> Option<BitRate> {
        way.iter()
            .filter_map(|hop| mean_rate(self.link(hop.link).direction(hop.direction)))
            .min()
    }
}

/// The mean rate of a direction over one repetition of its schedule, after the first one; without a
/// repetition, the rate at the start. For delivery opportunities, the mean rate of full packets.
///
/// `None` if there is no limit.
#[must_use]
pub fn mean_rate(configuration: &Configuration) -> Option<BitRate> {
    if let Some(opportunities) = configuration.opportunities() {
        return Some(opportunities.mean_rate());
    }
    let schedule = &configuration.schedule;
    let (Some(period), Some(last)) = (
        schedule.repeat,
        schedule.steps.iter().rev().find_map(|step| step.rate),
    ) else {
        return configuration.state.rate;
    };
    // A repetition begins with the rate with which the previous one ended.
    let mut rate = last;
    let mut since = TimeSpan::ZERO;
    let mut bits = 0_u128;
    let carried = |rate: BitRate, span: TimeSpan| {
        u128::from(rate.bits_per_second()) * u128::from(span.nanoseconds())
    };
    for step in &schedule.steps {
        bits += carried(rate, step.at - since);
        since = step.at;
        rate = step.rate.unwrap_or(rate);
    }
    bits += carried(rate, period - since);
    let mean = bits.checked_div(u128::from(period.nanoseconds()))?;
    BitRate::from_bits_per_second(u64::try_from(mean).unwrap_or(u64::MAX))
}
