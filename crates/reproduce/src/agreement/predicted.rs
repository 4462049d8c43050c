//! The prediction of the analysis for a drawn path.

use midspan_model::ModelError;
use midspan_model::leg::{Leg, Transport};
use midspan_model::overlay::{self, Analysis, ChainedLeg, Outcome};
use midspan_model::path::{Hop, Section};
use midspan_model::response::{Response, TimeOut};
use midspan_model::window::Recovery;
use midspan_sim::tcp::Variant;
use midspan_units::TimeSpan;

use super::draw::{Draw, DrawnLeg};

impl Draw {
    /// The analysis of the path, split at every node.
    ///
    /// # Errors
    /// None for a drawn path.
    pub fn predict(&self) -> Result<Outcome, ModelError> {
        let chain = self
            .legs
            .iter()
            .map(|leg| self.chained(leg))
            .collect::<Result<Vec<_>, _>>()?;
        overlay::analyse(&chain, &Analysis::default())
    }

    fn chained(&self, leg: &DrawnLeg) -> Result<ChainedLeg, ModelError> {
        let hop = Hop {
            rate: leg.rate,
            round_trip: leg.round_trip,
            loss: leg.loss,
            return_rate: None,
            queue: Some(leg.queue),
        };
        let recovery = match self.variant {
            Variant::Reno => Recovery::Reno,
            _ => Recovery::NewReno,
        };
        let mut transport = Transport::new(1460, 40, Response::Window(recovery))?;
        transport.time_out = TimeOut::Fixed(TimeSpan::from_seconds(1));
        transport.packets_per_ack = std::num::NonZeroU32::MIN.saturating_add(1);
        Ok(ChainedLeg {
            leg: Leg {
                section: Section::of(&hop),
                transport,
                receive_buffer: leg.receive_buffer,
                send_buffer: Some(leg.send_buffer),
            },
            waiting: leg.send_buffer,
        })
    }
}
