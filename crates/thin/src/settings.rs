//! The settings of the agent.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use midspan_gateway::acknowledgement_queue::{AcknowledgementRules, LONGEST};
use midspan_policy::AckPolicy;
use midspan_policy::ack_thinning::{
    AceSettings, AceThinning, FixedDelay, MaximumPacketsPerAck, PacedAckFilter,
};
use midspan_units::{BitRate, TimeSpan};
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::Error;

/// Size of an ACK with timestamps over IPv4, for which the filter computes its interval.
const ACK_SIZE: u32 = 52;
/// A fixed delay above this is refused: it would be more than most windows hold.
const FIXED_LIMIT: u32 = 64;

/// The policy that thins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyChoice {
    /// ACE thinning, with this `max_packets_per_ack`; without a number 5, as in the paper, and more
    /// while the upstream limits the download.
    Ace(Option<u32>),
    /// ACE thinning whose `max_packets_per_ack` adapts between 2 and this (Tam §4.4).
    AceAdaptive(u32),
    /// FDA(n): an ACK for each n-th packet.
    FixedDelay(u32),
    /// ACK filtering, paced at the upstream's rate.
    Filter,
    /// Every ACK passes; for measuring the cost of the agent itself.
    Pass,
}

/// The text is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error(
    "\"{0}\" is no policy: write ace, ace:N, ace-adaptive, ace-adaptive:N, fda:N, filter or pass, with N from 1 to 64"
)]
pub struct PolicyError(String);

impl FromStr for PolicyChoice {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let wrong = || PolicyError(text.to_owned());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => {
                let number: u32 = number.parse().map_err(|_| wrong())?;
                let is_sound = (1..=FIXED_LIMIT).contains(&number);
                (name, Some(is_sound.then_some(number).ok_or_else(wrong)?))
            }
            None => (text, None),
        };
        match (name, number) {
            ("ace", number) => Ok(Self::Ace(number)),
            ("ace-adaptive", number) => Ok(Self::AceAdaptive(number.unwrap_or(5))),
            ("fda", Some(number)) => Ok(Self::FixedDelay(number)),
            ("filter", None) => Ok(Self::Filter),
            ("pass", None) => Ok(Self::Pass),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ace(None) => f.write_str("ace"),
            Self::Ace(Some(number)) => write!(f, "ace:{number}"),
            Self::AceAdaptive(number) => write!(f, "ace-adaptive:{number}"),
            Self::FixedDelay(number) => write!(f, "fda:{number}"),
            Self::Filter => f.write_str("filter"),
            Self::Pass => f.write_str("pass"),
        }
    }
}

/// The numbers of the packet queues from which an instance takes the first free one, so that a host with
/// several narrow upstreams needs no settings.
pub const QUEUES: RangeInclusive<u16> = 5317..=5380;

/// How ACKs are thinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The interface towards the narrow upstream.
    pub interface: String,
    /// The policy that thins.
    pub policy: PolicyChoice,
    /// The upstream's rate, if it is known; the filter needs it.
    pub upstream: Option<BitRate>,
    /// ACKs go before data in the interface's queue; needs the upstream's rate.
    pub ack_first: bool,
    /// Number of the packet queue; `None`: the first free one of [`QUEUES`].
    pub queue: Option<u16>,
    /// Most packets that the queue holds; half of them may wait for their time.
    pub queue_length: u32,
    /// Most flows that are known at a time; ACKs of others pass.
    pub flows: usize,
    /// No ACK waits longer.
    pub ack_timeout_limit: TimeSpan,
}

impl Settings {
    /// The settings for an interface; all others have their defaults.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            policy: PolicyChoice::Ace(None),
            upstream: None,
            ack_first: false,
            queue: None,
            queue_length: 1024,
            flows: 4096,
            ack_timeout_limit: TimeSpan::from_milliseconds(100),
        }
    }

    /// The rules that lead to the queue.
    pub(crate) fn rules(&self) -> Result<AcknowledgementRules, Error> {
        let queue = self.queue.unwrap_or(*QUEUES.start());
        let rules = AcknowledgementRules::new(&self.interface, queue, LONGEST)?;
        match (self.policy, self.ack_first, self.upstream) {
            (PolicyChoice::Filter, _, None) => Err(Error::NoUpstream("the policy `filter`")),
            (_, true, None) => Err(Error::NoUpstream("a queue in which ACKs go first")),
            (_, true, Some(_)) => Ok(rules.with_priority()),
            _ => Ok(rules),
        }
    }

    /// The policy of a new flow; `None` where every ACK passes.
    pub(crate) fn policy(&self) -> Option<Box<dyn AckPolicy + Send>> {
        let ace = |settings| {
            AceThinning::new(AceSettings {
                ack_timeout_limit: self.ack_timeout_limit,
                ..settings
            })
        };
        let at_most = |maximum| ace(AceSettings::of_hosts().at_most(maximum));
        Some(match (self.policy, self.upstream) {
            (PolicyChoice::Ace(None), _) => Box::new(ace(AceSettings::of_hosts())),
            (PolicyChoice::Ace(Some(number)), _) => {
                Box::new(at_most(MaximumPacketsPerAck::Fixed(number)))
            }
            (PolicyChoice::AceAdaptive(most), _) => {
                Box::new(at_most(MaximumPacketsPerAck::Adaptive { least: 2, most }))
            }
            (PolicyChoice::FixedDelay(number), _) => {
                Box::new(FixedDelay::new(number, self.ack_timeout_limit))
            }
            (PolicyChoice::Filter, Some(upstream)) => Box::new(PacedAckFilter::new(
                upstream,
                ACK_SIZE,
                self.ack_timeout_limit,
            )),
            (PolicyChoice::Filter, None) | (PolicyChoice::Pass, _) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for text in ["ace", "ace:5", "ace-adaptive:8", "fda:4", "filter", "pass"] {
            let policy: PolicyChoice = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        for text in ["", "fda", "fda:0", "fda:65", "ace:x", "filter:2", "reno"] {
            let error = text.parse::<PolicyChoice>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("\"{text}\" is no")));
        }
    }
}
