//! The policy that applies the configured settings.

use midspan_units::{Time, TimeSpan};

use super::SessionSettings;
use crate::learned_start::LearnedStart;
use crate::probe_rtt::{self, ProbeRtt};
use crate::{
    Admission, Decision, Handshake, KnowledgeParts, LegStart, Policy, Request, SessionId,
    SessionSample, Start,
};

/// Splits every connection and sets both legs as configured. The only change of a live session: BBR
/// does not probe for the round trip on a leg that gets its written rate.
#[derive(Debug, Clone)]
pub struct Configured {
    settings: SessionSettings,
    handshake: Handshake,
    probe_rtt: ProbeRtt,
}

impl Configured {
    /// A policy that follows `settings`.
    #[must_use]
    pub fn new(settings: SessionSettings) -> Self {
        Self {
            probe_rtt: ProbeRtt::new([&settings.client, &settings.server]),
            settings,
            handshake: Handshake::Early,
        }
    }

    /// The same policy with this handshake; the default is [`Handshake::Early`].
    #[must_use]
    pub fn with_handshake(mut self, handshake: Handshake) -> Self {
        self.handshake = handshake;
        self
    }
}

impl Policy for Configured {
    fn admit(&mut self, _now: Time, _request: &Request) -> Admission {
        Admission::Intercept {
            handshake: self.handshake,
            connect_timeout: self.settings.connect_timeout,
        }
    }

    fn start(
        &mut self,
        _now: Time,
        _request: &Request,
        _window: Option<LearnedStart>,
        _known: &mut dyn KnowledgeParts,
    ) -> Start {
        Start {
            client: LegStart::from(&self.settings.client),
            server: LegStart::from(&self.settings.server),
        }
    }

    fn sample(
        &mut self,
        now: Time,
        sample: &SessionSample,
        _known: &mut dyn KnowledgeParts,
    ) -> Decision {
        let mut decision = Decision::default();
        self.probe_rtt.handle_sample(now, sample, &mut decision);
        decision
    }

    fn end(&mut self, _now: Time, sample: &SessionSample, _known: &mut dyn KnowledgeParts) {
        self.probe_rtt.forget(sample.session);
    }

    fn lose(&mut self, session: SessionId) {
        self.probe_rtt.forget(session);
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        let concerns_any = self.probe_rtt.concerns_any();
        concerns_any.then_some(probe_rtt::SAMPLING_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Knowledge, LegSettings};
    use midspan_units::ByteSize;

    #[test]
    fn legs_start_as_configured() {
        let buffer = Buffer::Fixed(ByteSize::from_bytes(1 << 20));
        let settings = SessionSettings {
            client: LegSettings {
                congestion_control: Some("bbr".into()),
                send_buffer: buffer,
                ..LegSettings::default()
            },
            ..SessionSettings::default()
        };
        let request = Request {
            client: "192.0.2.1:1000".parse().unwrap(),
            server: "192.0.2.2:80".parse().unwrap(),
        };
        let mut policy = Configured::new(settings);
        let known = &mut Knowledge::default();
        let start = policy.start(Time::ZERO, &request, None, known);
        assert_eq!(start.client.congestion_control.as_deref(), Some("bbr"));
        assert_eq!(start.client.send_buffer, buffer);
        assert_eq!(start.server, LegStart::default());
        let decision = policy.sample(Time::ZERO, &SessionSample::default(), known);
        assert_eq!(decision, Decision::default());
    }
}
