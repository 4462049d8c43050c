//! `[profile.NAME]`: what is known of the access links of some clients.

use std::collections::BTreeMap;

use midspan_document::{Located, Source, Spanned};
use midspan_policy::oversized_segments::SegmentSizes;
use midspan_policy::sending_ahead::SendAhead;
use midspan_relay::profile::AccessProfile;
use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::Deserialize;

use super::explicit::Networks;
use super::values::within;

/// Most profiles of one file.
pub const PROFILE_LIMIT: usize = 100;

const DEFAULT_HOLD: TimeSpan = TimeSpan::from_milliseconds(20);
const LONGEST_HOLD: TimeSpan = TimeSpan::from_milliseconds(200);

const SMALLEST_FRAGMENT: ByteSize = ByteSize::from_bytes(576);
const LARGEST_FRAGMENT: ByteSize = ByteSize::from_bytes(9000);

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
    oversized_segments: SegmentSizes,
    #[serde(default)]
    send_ahead: SendAhead,
    #[serde(default)]
    timestamps: Option<Spanned<bool>>,
    #[serde(default)]
    fragment_size: Option<Spanned<ByteSize>>,
    #[serde(default)]
    hold_to_fill: Option<Spanned<TimeSpan>>,
}

/// The profiles; `is_transparent`: there is a listener that can take timestamps out.
pub(super) fn profiles(
    source: &Source,
    tables: BTreeMap<String, Spanned<ProfileTable>>,
    is_transparent: bool,
) -> Result<Vec<AccessProfile>, Located> {
    let too_many = tables.values().nth(PROFILE_LIMIT).map(Spanned::span);
    if let Some(place) = too_many {
        let message = format!("more than {PROFILE_LIMIT} profiles");
        return Err(Located::new(source, place, message));
    }
    let mut keys = tables
        .values()
        .filter_map(|table| table.get_ref().timestamps.as_ref());
    if let Some(key) = keys.find(|key| !is_transparent && !*key.get_ref()) {
        let message = "timestamps can be left out of transparent listeners' connections only";
        return Err(Located::new(source, key.span(), message)
            .with_help("the option is removed from the client's SYN before the listener gets it"));
    }
    let tables = tables.into_iter();
    tables
        .map(|(name, table)| table.into_inner().checked(source, name))
        .collect()
}

impl ProfileTable {
    fn checked(self, source: &Source, name: String) -> Result<AccessProfile, Located> {
        let fragment_size = match self.fragment_size {
            None => None,
            given => {
                let size = within(
                    source,
                    "fragment_size",
                    given,
                    SMALLEST_FRAGMENT,
                    SMALLEST_FRAGMENT..=LARGEST_FRAGMENT,
                )?;
                u32::try_from(size.bytes()).ok()
            }
        };
        Ok(AccessProfile {
            name,
            fragment_size,
            clients: self.clients.0,
            downstream: self.downstream,
            upstream: self.upstream,
            oversized_segments: self.oversized_segments,
            send_ahead: self.send_ahead,
            timestamps: self.timestamps.is_none_or(Spanned::into_inner),
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
