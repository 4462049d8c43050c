//! The schemes that the paper compares: how a receiver acknowledges, and how the queue treats its
//! ACKs.

use midspan_policy::RoundTripSource;
use midspan_policy::ack_thinning::{AceSettings, MaximumPacketsPerAck};
use midspan_sim::tcp::{AckRule, Thinning};
use midspan_units::TimeSpan;

/// The paper's `max_packets_per_ack`.
pub(super) const MAXIMUM: u32 = 5;
/// The longest time that an ACK waits (RFC 1122). ATO is ppa × mean gap (§5.2).
const LONGEST: TimeSpan = TimeSpan::from_milliseconds(500);

/// A scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Delayed ACKs.
    Reno,
    /// One ACK for four packets.
    Fda,
    /// ACE thinning with this greatest number of packets per ACK, and this measurement of the round
    /// trip.
    Ace(u32, RoundTripSource),
    /// ACE thinning whose greatest ppa adapts (§4.4).
    AdaptiveAce(RoundTripSource),
    /// The sender announces its cwnd.
    Ecwa,
    /// The receiver predicts the sender's cwnd.
    Prediction,
    /// ACKs that the queue marks.
    Acc,
    /// Delayed ACKs that the modem filters.
    Filter,
    /// Like `Filter`; the missing ACKs are made again in front of the sender.
    FilterAndRegeneration,
}

impl Scheme {
    /// ACE thinning of §4, with ICMP.
    pub(super) const ICMP: Self = Self::Ace(MAXIMUM, RoundTripSource::IcmpEcho);
    /// ACE thinning of §4.3, with the handshake.
    pub(super) const SYN: Self = Self::Ace(MAXIMUM, RoundTripSource::Handshake);
    /// ACE thinning of §5, with timestamps.
    pub(super) const TIMESTAMPS: Self = Self::Ace(MAXIMUM, RoundTripSource::Timestamp);

    pub(super) fn name(self) -> String {
        match self {
            Self::Reno => "Reno".to_owned(),
            Self::Fda => "FDA(4)".to_owned(),
            Self::Ace(MAXIMUM, RoundTripSource::Handshake) => "ACE thinning by SYN".to_owned(),
            Self::Ace(MAXIMUM, _) => "ACE thinning".to_owned(),
            Self::Ace(maximum, _) => format!("ACE thinning, at most {maximum}"),
            Self::AdaptiveAce(_) => "ACE thinning, adaptive".to_owned(),
            Self::Ecwa => "ECWA".to_owned(),
            Self::Prediction => "window prediction".to_owned(),
            Self::Acc => "ACC".to_owned(),
            Self::Filter => "AF".to_owned(),
            Self::FilterAndRegeneration => "AF and AR".to_owned(),
        }
    }

    /// How the receiver acknowledges, for a sender that starts with `initial_window` segments.
    /// `timeout` is the ATO of all schemes except ACE thinning.
    pub(super) fn receiver(self, initial_window: u32, timeout: TimeSpan) -> AckRule {
        let ace = |max_packets_per_ack, round_trip| Thinning::Ace {
            settings: AceSettings {
                max_packets_per_ack,
                ack_timeout_limit: LONGEST,
                ..AceSettings::default()
            },
            round_trip,
        };
        AckRule::Thinned(match self {
            Self::Reno | Self::Filter | Self::FilterAndRegeneration => Thinning::FixedDelay {
                segments: 2,
                timeout,
            },
            Self::Fda => Thinning::FixedDelay {
                segments: 4,
                timeout,
            },
            Self::Ace(maximum, source) => ace(MaximumPacketsPerAck::Fixed(maximum), source),
            Self::AdaptiveAce(source) => ace(
                MaximumPacketsPerAck::Adaptive {
                    least: 2,
                    most: MAXIMUM,
                },
                source,
            ),
            Self::Ecwa => Thinning::ExplicitWindow {
                max_packets_per_ack: MAXIMUM,
                timeout,
            },
            Self::Prediction => Thinning::WindowPrediction {
                initial_window,
                max_packets_per_ack: MAXIMUM,
                timeout,
            },
            Self::Acc => Thinning::CongestionControl {
                max_packets_per_ack: MAXIMUM,
                timeout,
            },
        })
    }

    /// How the queue of the narrow link treats ACKs, as a value of a path file.
    pub(super) const fn ack_queue(self) -> &'static str {
        match self {
            Self::Filter | Self::FilterAndRegeneration => "filtered",
            Self::Acc => "marked",
            _ => "plain",
        }
    }

    /// The number of segments for each regenerated ACK.
    pub(super) fn regeneration(self) -> Option<u32> {
        (self == Self::FilterAndRegeneration).then_some(2)
    }
}
