//! Readings and the report of a session.

use std::os::fd::OwnedFd;

use midspan_linux::tcp;
use midspan_policy::{Leg, Request, SessionId, SessionSample};
use midspan_units::{ByteSize, Time};

use super::{Phase, Session};
use crate::observation::{LegReport, ReportedPhase, SessionReport};
use crate::sample::sample;
use crate::system;
use crate::transfer::Transfer;

impl Session {
    /// A reading of both legs.
    ///
    /// # Errors
    /// Those of reading `TCP_INFO`.
    pub fn sample(&self) -> std::io::Result<SessionSample> {
        let held = |transfer: &Transfer| ByteSize::from_bytes(transfer.direction.held().into());
        Ok(SessionSample {
            lasted: None,
            session: SessionId(self.record.id),
            request: Some(Request {
                client: self.record.client,
                server: self.record.server,
            }),
            client: sample(&self.client)?,
            server: sample(&self.server)?,
            held_towards_client: held(&self.to_client),
            held_towards_server: held(&self.to_server),
        })
    }

    /// The congestion control of a leg.
    pub fn congestion_control(&self, leg: Leg) -> Option<String> {
        tcp::congestion_control(self.socket(leg)).ok()
    }

    /// Reads both legs for the counters of the listener.
    pub fn sample_for_numbers(&mut self) {
        if let Ok(sample) = self.sample() {
            self.record.note_sample(&sample);
        }
    }

    /// The report of the session, with a reading of both legs.
    pub fn report(&self, now: Time) -> SessionReport {
        let leg = |socket: &OwnedFd| {
            let sample = sample(socket).unwrap_or_default();
            LegReport {
                local: system::own_address(socket),
                peer: system::peer_address(socket).ok().flatten(),
                congestion_control: tcp::congestion_control(socket).ok(),
                ..LegReport::from(&sample)
            }
        };
        let phase = match self.phase {
            Phase::Connecting => ReportedPhase::Connecting,
            Phase::Relaying => ReportedPhase::Relaying,
            Phase::Settling { .. } => ReportedPhase::Settling,
        };
        let legs = [leg(&self.client), leg(&self.server)];
        let narrow = self.narrow.as_ref();
        let sample = || sample(&self.client).unwrap_or_default();
        SessionReport {
            narrow: narrow.map(|leg| leg.report(&sample())),
            ..self.record.report(now, phase, legs)
        }
    }
}
