//! A long leg that another relay continues.

use std::net::IpAddr;

use midspan_handover::LongLegState;
use midspan_policy::narrow_leg;
use midspan_units::Time;

use super::{NarrowLeg, NarrowReport, Profiles};

impl NarrowLeg {
    /// The state of a leg without an access profile; `None` if the client has one.
    pub fn hand_over(&self) -> Option<LongLegState> {
        if self.place.is_some() {
            return None;
        }
        Some(LongLegState {
            decides: self.decides.kept()?,
            ack_size: self.ack_size,
            was_ahead: self.was_ahead,
        })
    }

    /// Continues the leg of another relay. It is read at once.
    pub fn take_over(state: LongLegState, client: IpAddr, profiles: &Profiles) -> Self {
        let decides = narrow_leg::NarrowLeg::continued(state.decides);
        let report = NarrowReport {
            sending_ahead_losses: decides.sending_ahead_losses(),
            ..NarrowReport::default()
        };
        Self {
            ack_size: state.ack_size,
            // It is read before anything is written.
            room: Some(0),
            next_look: Some(Time::ZERO),
            was_ahead: state.was_ahead,
            report,
            ..Self::new(client, profiles, decides, false, Time::ZERO)
        }
    }
}
