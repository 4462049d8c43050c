//! How hosts of a path acknowledge data.

use midspan_path::Acknowledge;
use midspan_policy::RoundTripSource;
use midspan_policy::ack_thinning::{AceSettings, FixedDelay, MaximumPacketsPerAck};
use midspan_units::TimeSpan;

use crate::tcp::{AckRule, Thinning};

/// Largest number of packets for one ACK (Tam §3.2).
const MAXIMUM: u32 = 5;
/// How long Linux waits for a second segment.
const LINUX: TimeSpan = TimeSpan::from_milliseconds(40);

/// How a host acknowledges a sender that starts with this initial window (segments).
pub(super) fn of_host(acknowledge: Acknowledge, initial_window: u32) -> AckRule {
    let (max_packets_per_ack, timeout) = (MAXIMUM, FixedDelay::TIME_OUT);
    AckRule::Thinned(match acknowledge {
        Acknowledge::Delayed => {
            return AckRule::Delayed {
                segments: 2,
                timeout: LINUX,
            };
        }
        Acknowledge::Every => return AckRule::Every,
        Acknowledge::FixedDelay(segments) => Thinning::FixedDelay { segments, timeout },
        Acknowledge::Ace(maximum) => ace(at_most(maximum, AceSettings::default())),
        Acknowledge::Thin(maximum) => {
            return AckRule::DelayedAndThinned {
                segments: 2,
                timeout: LINUX,
                thinning: ace(match maximum {
                    None => AceSettings::of_hosts(),
                    Some(maximum) => at_most(maximum, AceSettings::of_hosts()),
                }),
            };
        }
        Acknowledge::ExplicitWindow => Thinning::ExplicitWindow {
            max_packets_per_ack,
            timeout,
        },
        Acknowledge::WindowPrediction => Thinning::WindowPrediction {
            initial_window,
            max_packets_per_ack,
            timeout,
        },
        Acknowledge::CongestionControl => Thinning::CongestionControl {
            max_packets_per_ack,
            timeout,
        },
    })
}

fn at_most(maximum: u32, settings: AceSettings) -> AceSettings {
    settings.at_most(MaximumPacketsPerAck::Fixed(maximum))
}

const fn ace(settings: AceSettings) -> Thinning {
    Thinning::Ace {
        settings,
        round_trip: RoundTripSource::Timestamp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(acknowledge: Acknowledge) -> AceSettings {
        match of_host(acknowledge, 10) {
            AckRule::Thinned(Thinning::Ace { settings, .. })
            | AckRule::DelayedAndThinned {
                thinning: Thinning::Ace { settings, .. },
                ..
            } => settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn thin_is_what_midspan_thin_does_and_ace_is_the_paper() {
        let paper = settings(Acknowledge::Ace(3));
        assert_eq!(paper, at_most(3, AceSettings::default()));
        let thin = settings(Acknowledge::Thin(Some(3)));
        assert_eq!(thin, at_most(3, AceSettings::of_hosts()));
        assert_eq!(settings(Acknowledge::Thin(None)), AceSettings::of_hosts());
        assert!(thin.thins_in_recovery && thin.counts_only_recent);
        assert!(!paper.thins_in_recovery && !paper.counts_only_recent);
    }
}
