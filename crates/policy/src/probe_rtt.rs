//! BBR without ProbeRTT, on a leg that gets the rate that the operator has written.
//!
//! BBR holds the shortest round trip for ten seconds. Then it measures it again without a queue: it sends four segments
//! only, for 200 ms and at least one round trip (ProbeRTT, draft-cardwell-iccrg-bbr-congestion-control-00). Over a link
//! with a round trip of 600 ms, hardly anything is sent for 1.2 s of each ten.
//!
//! A leg that is paced at a written rate, below the rate of its link, makes no queue. If the leg also gets this rate,
//! other connections make none either, and the shortest round trip of the connection is still that of the link. So BBR
//! begins again before its ten seconds are over: it then takes the shortest round trip that TCP has measured as a new
//! one. BBR's Startup sends no more than the written rate.
//!
//! A leg that does not get its rate, because other connections share the link or because the round trip has become
//! longer, probes as usual.

use std::collections::BTreeMap;

use midspan_units::{BitRate, Time, TimeSpan};

use crate::congestion::BBR;
use crate::{
    Decision, LegDecision, LegSample, LegSettings, Pacing, PacingBy, SessionId, SessionSample,
};

/// How often sessions with such legs are sampled.
pub(crate) const SAMPLING_INTERVAL: TimeSpan = TimeSpan::from_seconds(1);
/// BBR begins again after this time. Two further samples are due before BBR would probe.
const BEGINS_AGAIN_AFTER: TimeSpan = TimeSpan::from_seconds(7);
/// A leg gets its rate if it delivers at least this many percent of it.
const PERCENT_DELIVERED: u64 = 90;

/// Decides when BBR begins again, for the sessions of one listener.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProbeRtt {
    /// The written rate of each leg that is concerned; that of the client leg first.
    rates: [Option<BitRate>; 2],
    /// When BBR began on each leg of a session.
    begun: BTreeMap<SessionId, [Time; 2]>,
}

impl ProbeRtt {
    /// For sessions whose legs have these settings; the client leg first.
    pub fn new(legs: [&LegSettings; 2]) -> Self {
        Self {
            rates: legs.map(written_rate),
            begun: BTreeMap::new(),
        }
    }

    /// Whether any leg is concerned.
    pub fn concerns_any(&self) -> bool {
        self.rates.iter().any(Option::is_some)
    }

    /// Takes a reading of a session, and adds to a decision on which legs BBR begins again.
    pub fn handle_sample(&mut self, now: Time, sample: &SessionSample, decision: &mut Decision) {
        if !self.concerns_any() {
            return;
        }
        // The first sample is taken soon after the session has begun to carry data.
        let begun = self.begun.entry(sample.session).or_insert([now; 2]);
        let legs: [(&LegSample, &mut LegDecision); 2] = [
            (&sample.client, &mut decision.client),
            (&sample.server, &mut decision.server),
        ];
        for ((rate, begun), (leg, decision)) in self.rates.iter().zip(begun).zip(legs) {
            if rate.is_some_and(|rate| gets(leg, rate)) && now.since(*begun) >= BEGINS_AGAIN_AFTER {
                *begun = now;
                decision.bbr_again = true;
            }
        }
    }

    /// The session is over.
    pub fn forget(&mut self, session: SessionId) {
        self.begun.remove(&session);
    }
}

/// The rate at which the kernel paces a leg with BBR, if the operator has written one.
fn written_rate(settings: &LegSettings) -> Option<BitRate> {
    let is_bbr = settings.congestion_control.as_deref() == Some(BBR);
    let is_written = settings.pacing == Pacing::Fixed && settings.pacing_by == PacingBy::Kernel;
    settings.pacing_rate.filter(|_| is_bbr && is_written)
}

/// Whether a leg that has data to send delivers this rate.
fn gets(leg: &LegSample, rate: BitRate) -> bool {
    let delivers = leg.delivery_rate.is_some_and(|delivered| {
        let [delivered, rate] = [delivered, rate].map(|it| u128::from(it.bits_per_second()));
        delivered * 100 >= rate * u128::from(PERCENT_DELIVERED)
    });
    leg.unacknowledged > 0 && delivers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at_written_rate() -> LegSettings {
        LegSettings {
            congestion_control: Some(BBR.to_owned()),
            pacing_rate: "1.9 Mbit/s".parse().ok(),
            ..LegSettings::default()
        }
    }

    fn with_server_leg(leg: &LegSettings) -> ProbeRtt {
        ProbeRtt::new([&LegSettings::default(), leg])
    }

    fn sample(session: u64, delivered: u64) -> SessionSample {
        let leg = LegSample {
            delivery_rate: BitRate::from_bits_per_second(delivered),
            unacknowledged: 100,
            ..LegSample::default()
        };
        SessionSample {
            session: SessionId(session),
            client: leg,
            server: leg,
            ..SessionSample::default()
        }
    }

    /// The seconds in which BBR begins again, if the leg delivers this much in each second.
    fn begins_again(delivered: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut policy = with_server_leg(&at_written_rate());
        let mut seconds = Vec::new();
        for (second, rate) in (0..).zip(delivered) {
            let mut decision = Decision::default();
            let now = Time::ZERO + TimeSpan::from_seconds(second);
            policy.handle_sample(now, &sample(1, rate), &mut decision);
            assert!(!decision.client.bbr_again, "the client leg has no rate");
            if decision.server.bbr_again {
                seconds.push(second);
            }
        }
        seconds
    }

    #[test]
    fn a_leg_that_gets_its_rate_does_not_probe() {
        assert_eq!(begins_again([1_800_000; 30]), [7, 14, 21, 28]);
    }

    #[test]
    fn a_leg_that_shares_its_link_probes_as_usual() {
        assert_eq!(begins_again([1_000_000; 30]), []);
        // From the moment on at which the leg has the link for itself.
        let shared = std::iter::repeat_n(1_000_000, 12);
        let alone = std::iter::repeat_n(1_900_000, 10);
        assert_eq!(begins_again(shared.chain(alone)), [12, 19]);
    }

    #[test]
    fn only_legs_with_bbr_and_a_written_rate_are_concerned() {
        assert!(with_server_leg(&at_written_rate()).concerns_any());
        let other = |change: fn(&mut LegSettings)| {
            let mut leg = at_written_rate();
            change(&mut leg);
            with_server_leg(&leg).concerns_any()
        };
        assert!(!other(|leg| leg.pacing_rate = None));
        assert!(!other(
            |leg| leg.congestion_control = Some("cubic".to_owned())
        ));
        assert!(!other(|leg| leg.pacing = Pacing::Auto));
        assert!(!other(|leg| leg.pacing_by = PacingBy::Input));
        let mut none = with_server_leg(&LegSettings::default());
        none.handle_sample(Time::ZERO, &sample(1, 1), &mut Decision::default());
        assert!(none.begun.is_empty());
    }

    #[test]
    fn nothing_remains_of_a_session_that_is_over() {
        let mut policy = with_server_leg(&at_written_rate());
        policy.handle_sample(Time::ZERO, &sample(7, 1), &mut Decision::default());
        assert_eq!(policy.begun.len(), 1);
        policy.forget(SessionId(7));
        assert!(policy.begun.is_empty());
    }

    proptest! {
        #[test]
        fn bbr_begins_again_at_most_every_seven_seconds(
            rates in proptest::collection::vec(0_u64..4_000_000, 0..200),
        ) {
            let seconds = begins_again(rates);
            prop_assert!(seconds.windows(2).all(|pair| pair[1] - pair[0] >= 7), "{seconds:?}");
        }
    }
}
