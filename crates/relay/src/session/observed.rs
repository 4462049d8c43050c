//! Readings and the report of a session.

use midspan_policy::ahead_history::AheadRecord;
use midspan_policy::{Leg, SessionId, SessionSample};
use midspan_units::{ByteSize, Time, TimeSpan};

use super::{Phase, Session};
use crate::narrow::NarrowReport;
use crate::observation::{LegReport, ReportedPhase, SessionReport};
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
            interval: TimeSpan::ZERO,
            ahead: AheadRecord::default(),
            session: SessionId(self.id()),
            request: Some(self.identity().request()),
            client: self.sockets().sample(Leg::Client)?,
            server: self.sockets().sample(Leg::Server)?,
            held_towards_client: held(&self.to_client),
            held_towards_server: held(&self.to_server),
        })
    }

    /// The bytes that each direction has carried: the direction from the client first.
    pub const fn carried(&self) -> [u64; 2] {
        [self.record.bytes_to_server, self.record.bytes_to_client]
    }

    /// Reads both legs for the counters of the listener.
    pub fn sample_for_numbers(&mut self) {
        if let Ok(sample) = self.sample() {
            self.record.note_sample(&sample);
        }
    }

    /// The phase of the session's life.
    pub const fn reported_phase(&self) -> ReportedPhase {
        match self.phase {
            Phase::Connecting => ReportedPhase::Connecting,
            Phase::Relaying => ReportedPhase::Relaying,
            Phase::Settling { .. } => ReportedPhase::Settling,
        }
    }

    /// The report of a leg, with a reading.
    fn leg_report(&self, leg: Leg) -> LegReport {
        let sockets = self.sockets();
        LegReport {
            local: system::own_address(sockets.of(leg)),
            peer: system::peer_address(sockets.of(leg)).ok().flatten(),
            congestion_control: sockets.congestion_control(leg),
            ..LegReport::from(&sockets.sample(leg).unwrap_or_default())
        }
    }

    /// The report of the session, with a reading of both legs.
    pub fn report(&self, now: Time) -> SessionReport {
        let phase = self.reported_phase();
        let legs = [Leg::Client, Leg::Server].map(|leg| self.leg_report(leg));
        let narrow = self.narrow.as_ref();
        let sample = || self.sockets().sample(Leg::Client).unwrap_or_default();
        let narrow = narrow.map(|leg| leg.report(&sample()));
        with_narrow(
            self.record.report(self.identity(), now, phase, legs),
            narrow,
        )
    }
}

/// Adds the report of a narrow or long leg. The kernel reads the client's window with a raised scale;
/// the report has the window that the client advertises.
pub fn with_narrow(mut report: SessionReport, narrow: Option<NarrowReport>) -> SessionReport {
    let added = narrow.as_ref().map_or(0, |leg| leg.added_window_scale);
    report.client_leg.peer_window_bytes >>= added;
    report.narrow = narrow;
    report
}
