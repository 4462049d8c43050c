//! The policy of the policy crate that decides when a receiver acknowledges.

use midspan_policy::ack_thinning::{
    AceSettings, AceThinning, AckCongestionControl, ExplicitWindow, FixedDelay, WindowPrediction,
};
use midspan_policy::{AckEstimate, AckPolicy, AckSample, AckVerdict, RoundTrip, RoundTripSource};
use midspan_units::{Time, TimeSpan};

use crate::packet::Signals;

/// A policy for the ACKs of a receiver (Tam), with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinning {
    /// An ACK for a number of segments, or after a time (delayed ACK, FDA(n)).
    FixedDelay {
        /// Segments for each ACK; above zero.
        segments: u32,
        /// Longest wait.
        timeout: TimeSpan,
    },
    /// ACE thinning.
    Ace {
        /// The settings.
        settings: AceSettings,
        /// How the receiver measures its round trip. A flow's receiver sends no data, so its own
        /// data is no possible source.
        round_trip: RoundTripSource,
    },
    /// ECWA: the sender sends its cwnd in an option.
    ExplicitWindow {
        /// Largest number of packets for one ACK.
        max_packets_per_ack: u32,
        /// Longest wait.
        timeout: TimeSpan,
    },
    /// The receiver predicts the sender's cwnd.
    WindowPrediction {
        /// cwnd at the start, in segments.
        initial_window: u32,
        /// Largest number of packets for one ACK.
        max_packets_per_ack: u32,
        /// Longest wait.
        timeout: TimeSpan,
    },
    /// ACC: marked ACKs, echoed by the sender, make the receiver acknowledge less often.
    CongestionControl {
        /// Largest number of packets for one ACK.
        max_packets_per_ack: u32,
        /// Longest wait.
        timeout: TimeSpan,
    },
}

/// The running policy of a [`Thinning`].
#[derive(Debug, Clone)]
pub(super) enum Thinner {
    FixedDelay(FixedDelay),
    Ace(Box<AceThinning>),
    ExplicitWindow(ExplicitWindow),
    WindowPrediction(Box<WindowPrediction>),
    CongestionControl(Box<AckCongestionControl>),
}

impl Thinning {
    /// The policy, for a receiver that never advertises more than `window` segments.
    pub(super) fn start(self, window: u32) -> Thinner {
        match self {
            Self::FixedDelay { segments, timeout } => {
                Thinner::FixedDelay(FixedDelay::new(segments, timeout))
            }
            Self::Ace { settings, .. } => Thinner::Ace(Box::new(AceThinning::new(settings))),
            Self::ExplicitWindow {
                max_packets_per_ack,
                timeout,
            } => Thinner::ExplicitWindow(ExplicitWindow::new(max_packets_per_ack, timeout)),
            Self::WindowPrediction {
                initial_window,
                max_packets_per_ack,
                timeout,
            } => Thinner::WindowPrediction(Box::new(WindowPrediction::new(
                initial_window,
                window,
                max_packets_per_ack,
                timeout,
            ))),
            Self::CongestionControl {
                max_packets_per_ack,
                timeout,
            } => Thinner::CongestionControl(Box::new(AckCongestionControl::new(
                max_packets_per_ack,
                timeout,
            ))),
        }
    }

    /// How the receiver measures its round trip; by timestamps unless set otherwise.
    pub(super) const fn round_trip(self) -> RoundTripSource {
        match self {
            Self::Ace { round_trip, .. } => round_trip,
            _ => RoundTripSource::Timestamp,
        }
    }
}

impl Thinner {
    fn policy(&mut self) -> &mut dyn AckPolicy {
        match self {
            Self::FixedDelay(policy) => policy,
            Self::Ace(policy) => &mut **policy,
            Self::ExplicitWindow(policy) => policy,
            Self::WindowPrediction(policy) => &mut **policy,
            Self::CongestionControl(policy) => &mut **policy,
        }
    }

    pub(super) fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        self.policy().acknowledge(now, sample)
    }

    pub(super) fn handle_round_trip(&mut self, now: Time, round_trip: RoundTrip) {
        self.policy().handle_round_trip(now, round_trip);
    }

    /// The signals that accompany a data segment.
    pub(super) fn handle_signals(&mut self, signals: Signals) {
        match self {
            Self::ExplicitWindow(policy) => policy.handle_window(u32::from(signals.window)),
            Self::CongestionControl(policy) if signals.marked => policy.handle_mark(),
            _ => {}
        }
    }

    pub(super) fn estimate(&self) -> AckEstimate {
        match self {
            Self::FixedDelay(policy) => policy.estimate(),
            Self::Ace(policy) => policy.estimate(),
            Self::ExplicitWindow(policy) => policy.estimate(),
            Self::WindowPrediction(policy) => policy.estimate(),
            Self::CongestionControl(policy) => policy.estimate(),
        }
    }
}
