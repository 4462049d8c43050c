//! What an operator specifies about a client's access link, and what Midspan does about it.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize, Serializer};

use crate::oversized_segments::{SegmentSizes, size::LARGEST};
use crate::sending_ahead::{PAPER_WINDOW, SendAhead};

/// Smallest oversized segment in bytes of data: more than Ethernet carries.
const SMALLEST: u32 = 1500;
/// Windows for sending ahead, in bytes: from the first one that needs a window scale up to the
/// largest possible one (RFC 7323 §2.2).
const WINDOWS: std::ops::RangeInclusive<u64> = 65_536..=1 << 30;

/// The access link of a client. What is left out is unknown, or not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, DeriveDeserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLink {
    /// Rate towards the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downstream: Option<BitRate>,
    /// Rate from the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<BitRate>,
    /// Whether oversized segments are sent, and of what size (Hasegawa §3).
    pub oversized_segments: SegmentSizes,
    /// How far beyond the advertised window data is sent.
    pub send_ahead: SendAhead,
    /// How long data may wait to fill an oversized segment; `None` for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_to_fill: Option<TimeSpan>,
}

impl FromStr for SegmentSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            size => {
                let size = size.parse::<ByteSize>();
                let size = size.map_err(|error| format!("{error}, \"off\" or \"auto\""))?;
                u32::try_from(size.bytes())
                    .ok()
                    .filter(|size| (SMALLEST..=LARGEST).contains(size))
                    .map(Self::Fixed)
                    .ok_or_else(|| {
                        format!(
                            "an oversized segment has {SMALLEST} to {LARGEST} bytes, not {size}"
                        )
                    })
            }
        }
    }
}

impl fmt::Display for SegmentSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Fixed(size) => write!(f, "{size} B"),
        }
    }
}

impl FromStr for SendAhead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "wso" => Ok(Self::Wso(PAPER_WINDOW)),
            size => {
                let size = size.parse::<ByteSize>();
                let size = size.map_err(|error| format!("{error}, \"off\" or \"wso\""))?;
                match WINDOWS.contains(&size.bytes()) {
                    true => Ok(Self::Ahead(size)),
                    false => Err(format!(
                        "a window to send ahead has 64 KiB to 1 GiB, not {size}"
                    )),
                }
            }
        }
    }
}

impl fmt::Display for SendAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Wso(_) => f.write_str("wso"),
            Self::Ahead(window) => write!(f, "{} B", window.bytes()),
        }
    }
}

/// Reads a value that is written as text.
struct Text<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for SegmentSizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "\"off\", \"auto\" or the data of a segment, as in \"4420 B\"";
        deserializer.deserialize_str(Text(expected, PhantomData))
    }
}

impl<'de> Deserialize<'de> for SendAhead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "\"off\", \"wso\" or a window, as in \"512 KiB\"";
        deserializer.deserialize_str(Text(expected, PhantomData))
    }
}

impl Serialize for SegmentSizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for SendAhead {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["off", "auto", "4420 B", "65495 B"] {
            assert_eq!(text.parse::<SegmentSizes>().unwrap().to_string(), text);
        }
        for text in ["off", "wso", "524280 B"] {
            assert_eq!(text.parse::<SendAhead>().unwrap().to_string(), text);
        }
        let megabytes = "2 MiB".parse::<SendAhead>();
        assert_eq!(
            megabytes,
            Ok(SendAhead::Ahead(ByteSize::from_bytes(2 << 20)))
        );
        for text in ["", "1400 B", "70 KB", "large", "-1 B"] {
            assert!(text.parse::<SegmentSizes>().is_err(), "{text}");
        }
        for text in ["", "64 B", "2 GiB", "tgw"] {
            assert!(text.parse::<SendAhead>().is_err(), "{text}");
        }
    }
}
