//! Limits of the rates of one client prefix: of new connections, and of the bytes of its sessions.
//!
//! | module | content |
//! | --- | --- |
//! | `bucket` | a token bucket |
//! | `prefix` | the prefix of a client |
//! | `recent` | how often something has happened recently |
//! | `table` | the buckets of a bounded number of prefixes |
//!
//! A prefix may use in a moment what its rate allows in a second. The caller divides the prefixes among several
//! tables, each with a lock of its own, so that its threads rarely wait for each other.

mod bucket;
mod prefix;
mod recent;
mod table;

pub use bucket::BucketRate;
pub use prefix::{ClientPrefix, PrefixKey, PrefixLengths};
pub use table::{Grant, PrefixRates, PrefixTable};

use midspan_units::BitRate;
use serde::{Deserialize, Serialize};

/// Most prefixes in all tables together.
pub const MOST_PREFIXES: usize = 65_536;

/// Even at the lowest rate, a session can read this much at once.
const LEAST_BYTES: u64 = 16 << 10;

/// The limits of each client prefix; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRateLimits {
    /// New connections per second.
    pub connections: Option<u32>,
    /// The rate of the bytes of all sessions, in both directions together.
    pub bytes: Option<BitRate>,
    /// What counts as one client.
    pub prefixes: PrefixLengths,
}

impl ClientRateLimits {
    /// The bucket of new connections.
    #[must_use]
    pub fn connection_rate(&self) -> Option<BucketRate> {
        let of = |rate: u32| BucketRate::new(rate.into(), rate.into());
        self.connections.map(of)
    }

    /// The bucket of bytes.
    #[must_use]
    pub fn byte_rate(&self) -> Option<BucketRate> {
        let of = |rate: BitRate| {
            let bytes = rate.bytes_per_second();
            BucketRate::new(bytes, bytes.max(LEAST_BYTES))
        };
        self.bytes.map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_what_a_second_allows() {
        let limits = ClientRateLimits {
            connections: Some(20),
            bytes: Some("16 Mbit/s".parse().unwrap()),
            ..ClientRateLimits::default()
        };
        assert_eq!(limits.connection_rate(), Some(BucketRate::new(20, 20)));
        assert_eq!(
            limits.byte_rate(),
            Some(BucketRate::new(2_000_000, 2_000_000))
        );
        assert_eq!(ClientRateLimits::default().byte_rate(), None);
        let slow = ClientRateLimits {
            bytes: Some("64 kbit/s".parse().unwrap()),
            ..ClientRateLimits::default()
        };
        assert_eq!(slow.byte_rate().unwrap().burst(), LEAST_BYTES);
    }
}
