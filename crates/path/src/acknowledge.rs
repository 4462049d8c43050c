//! How a simulated host acknowledges, and how a queue treats ACKs.

use midspan_link::QueueDiscipline;
use midspan_policy::ack_thinning::{AckFilter, AckFirst};
use serde::de::{self, Deserialize, Deserializer};

/// How a host acknowledges data in the simulator; a real kernel is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// Every second segment, or after 40 ms, as in Linux.
    #[default]
    Delayed,
    /// Every segment.
    Every,
    /// One ACK for this many segments, or after 200 ms.
    FixedDelay(u32),
    /// ACE thinning as in the paper, with at most this many packets per ACK; its round trip is
    /// measured with timestamps.
    Ace(u32),
    /// ACE thinning as in `midspan thin`, with at most this many packets per ACK; with `None`, as
    /// many as `midspan thin` allows by default.
    Thin(Option<u32>),
    /// ECWA: the sender sends its cwnd in an option; at most five packets per ACK.
    ExplicitWindow,
    /// The receiver predicts the sender's cwnd; at most five packets per ACK.
    WindowPrediction,
    /// ACC: controlled by the marks of a queue that marks ACKs; at most five packets per ACK.
    CongestionControl,
}

/// Packets per ACK that a file may set.
const PACKETS: std::ops::RangeInclusive<u32> = 1..=100;
/// Tam's `max_packets_per_ack`.
const MAXIMUM: u32 = 5;

impl<'de> Deserialize<'de> for Acknowledge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (name, argument) = match text.split_once('(') {
            Some((name, rest)) => {
                let number = rest.strip_suffix(')').and_then(|text| text.parse().ok());
                (name, Some(number.filter(|number| PACKETS.contains(number))))
            }
            None => (text.as_str(), None),
        };
        let found = match (name, argument) {
            ("delayed", None) => Some(Self::Delayed),
            ("every", None) => Some(Self::Every),
            ("fda", Some(Some(packets))) => Some(Self::FixedDelay(packets)),
            ("ace", None) => Some(Self::Ace(MAXIMUM)),
            ("ace", Some(Some(packets))) => Some(Self::Ace(packets)),
            ("thin", None) => Some(Self::Thin(None)),
            ("thin", Some(Some(packets))) => Some(Self::Thin(Some(packets))),
            ("ecwa", None) => Some(Self::ExplicitWindow),
            ("window-prediction", None) => Some(Self::WindowPrediction),
            ("acc", None) => Some(Self::CongestionControl),
            _ => None,
        };
        found.ok_or_else(|| {
            de::Error::custom(format_args!(
                "\"{text}\" is no way to acknowledge: write \"delayed\", \"every\", \"fda(4)\", \
                 \"ace\", \"ace(5)\", \"thin\", \"thin(5)\", \"ecwa\", \"window-prediction\" or \
                 \"acc\"; a number is 1 to 100"
            ))
        })
    }
}

/// How the queue of a link treats pure ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckQueueing {
    /// Like other packets: first in, first out.
    #[default]
    Plain,
    /// A newer ACK replaces an older one (AF).
    Filtered,
    /// ACKs are sent before data.
    First,
    /// ACKs that find two waiting packets are marked (ACC).
    Marked,
}

impl AckQueueing {
    /// The queue discipline. With `Marked`, ACKs that find two waiting packets are marked. With
    /// `First`, data still gets a quarter of the link: a packet of 1,500 bytes after each 4,500
    /// bytes of ACKs.
    #[must_use]
    pub fn discipline(self) -> QueueDiscipline {
        let mut discipline = QueueDiscipline::default();
        match self {
            Self::Plain => {}
            Self::Filtered => discipline.filter = Some(AckFilter::default()),
            Self::First => discipline.first = Some(AckFirst::new(3 * 1500)),
            Self::Marked => discipline.mark_from = Some(2),
        }
        discipline
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn both_ways_of_ace_thinning_are_read() {
        let read = |text: &str| {
            let text: StrDeserializer<'_, Error> = text.into_deserializer();
            Acknowledge::deserialize(text).ok()
        };
        assert_eq!(read("ace"), Some(Acknowledge::Ace(5)));
        assert_eq!(read("ace(3)"), Some(Acknowledge::Ace(3)));
        assert_eq!(read("thin"), Some(Acknowledge::Thin(None)));
        assert_eq!(read("thin(3)"), Some(Acknowledge::Thin(Some(3))));
        assert_eq!(read("thin(0)"), None);
    }
}
