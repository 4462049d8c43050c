//! `[profile.NAME]`: what is known of the access links of some clients.

use std::collections::BTreeMap;
use std::fmt;

use midspan_document::{Located, Source, Spanned};
use midspan_policy::oversized_segments::{Wish, size::LARGEST};
use midspan_policy::sending_ahead::{PAPER_WINDOW, SendAhead};
use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::explicit::Networks;
use super::file::within;
use crate::profile::AccessProfile;

/// Most profiles of one file.
pub const PROFILE_LIMIT: usize = 100;

/// Smallest oversized segment: larger than what Ethernet carries.
const SMALLEST: u32 = 1500;
const DEFAULT_HOLD: TimeSpan = TimeSpan::from_milliseconds(20);
const LONGEST_HOLD: TimeSpan = TimeSpan::from_milliseconds(200);
/// What 31 bits of a window can say (RFC 7323 §2.2).
const LARGEST_WINDOW: u64 = 1 << 30;

/// `[profile.NAME]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileTable {
    clients: Networks,
    #[serde(default)]
    downstream: Option<BitRate>,
    #[serde(default)]
    upstream: Option<BitRate>,
    #[serde(default)]
    oversized_segments: WishKey,
    #[serde(default)]
    send_ahead: SendAheadKey,
    #[serde(default)]
    hold_to_fill: Option<Spanned<TimeSpan>>,
}

#[derive(Debug, Default)]
struct WishKey(Wish);

#[derive(Debug, Default)]
struct SendAheadKey(SendAhead);

/// Reads a text by a function that says what is wrong with it.
struct Text<T>(&'static str, fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for WishKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "\"off\", \"auto\" or the data of a segment, as in \"4420 B\"";
        let read = |text: &str| match text {
            "off" => Ok(Self(Wish::Off)),
            "auto" => Ok(Self(Wish::Auto)),
            size => {
                let size: ByteSize = size
                    .parse()
                    .map_err(|error| format!("{error}, \"off\" or \"auto\""))?;
                u32::try_from(size.bytes())
                    .ok()
                    .filter(|size| (SMALLEST..=LARGEST).contains(size))
                    .map(|size| Self(Wish::Fixed(size)))
                    .ok_or_else(|| {
                        format!(
                            "an oversized segment has {SMALLEST} to {LARGEST} bytes, not {size}"
                        )
                    })
            }
        };
        deserializer.deserialize_str(Text(expected, read))
    }
}

impl<'de> Deserialize<'de> for SendAheadKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "\"off\", \"wso\" or a window, as in \"512 KiB\"";
        let read = |text: &str| match text {
            "off" => Ok(Self(SendAhead::Off)),
            "wso" => Ok(Self(SendAhead::Wso(PAPER_WINDOW))),
            size => {
                let size: ByteSize = size
                    .parse()
                    .map_err(|error| format!("{error}, \"off\" or \"wso\""))?;
                match size.bytes() {
                    65_536..=LARGEST_WINDOW => Ok(Self(SendAhead::Ahead(size))),
                    _ => Err(format!(
                        "a window to send ahead has 64 KiB to 1 GiB, not {size}"
                    )),
                }
            }
        };
        deserializer.deserialize_str(Text(expected, read))
    }
}

pub(super) fn profiles(
    source: &Source,
    tables: BTreeMap<String, Spanned<ProfileTable>>,
) -> Result<Vec<AccessProfile>, Located> {
    let too_many = tables.values().nth(PROFILE_LIMIT).map(Spanned::span);
    if let Some(place) = too_many {
        let message = format!("more than {PROFILE_LIMIT} profiles");
        return Err(Located::new(source, place, message));
    }
    let tables = tables.into_iter();
    tables
        .map(|(name, table)| table.into_inner().checked(source, name))
        .collect()
}

impl ProfileTable {
    fn checked(self, source: &Source, name: String) -> Result<AccessProfile, Located> {
        Ok(AccessProfile {
            name,
            clients: self.clients.0,
            downstream: self.downstream,
            upstream: self.upstream,
            oversized_segments: self.oversized_segments.0,
            send_ahead: self.send_ahead.0,
            hold_to_fill: within(
                source,
                "hold_to_fill",
                self.hold_to_fill,
                DEFAULT_HOLD,
                TimeSpan::ZERO..=LONGEST_HOLD,
            )?,
        })
    }
}
