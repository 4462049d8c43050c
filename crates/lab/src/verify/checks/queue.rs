//! The queue's limit, measured by a burst that ends before the first packet has left the link.

use std::time::Duration;

use midspan_path::Direction;
use midspan_units::TimeSpan;

use super::{Check, FULL, Measured, nothing};
use crate::validity::Reason;
use crate::verify::probe::Probe;
use crate::verify::two_hosts::TwoHosts;
use crate::{LabError, Validity};

/// The rate of the link. It is so low that even a busy machine sends the burst before the second
/// packet begins to leave.
const RATE: &str = "250 kbit/s";
/// Transmission time of a full packet at [`RATE`].
const TRANSMISSION: Duration = Duration::from_millis(48);

pub(super) fn check(check: &Check, limit: u64) -> Result<Measured, LabError> {
    let hosts = TwoHosts::build(&format!(
        "rate = \"{RATE}\"\ndelay = \"5 ms\"\nqueue = \"{limit} packets\""
    ))?;
    let probe = Probe {
        packets: 4 * limit,
        size: FULL,
        rate: None,
    };
    let drain = TRANSMISSION * u32::try_from(limit + 20).unwrap_or(u32::MAX);
    let seen = hosts.probe(Direction::Up, probe, drain)?;
    let (Some(first), Some(last)) = (seen.sent.first(), seen.sent.last()) else {
        return Err(nothing("no probe was sent"));
    };
    let burst = last.at.saturating_sub(first.at);
    let validity = judged(seen.validity, burst);
    // The packet in transmission does not wait in the queue.
    let waited = seen.received.len().saturating_sub(1) as u64;
    let value = waited as f64;
    let records = vec![check.judged(
        ("queue", "packets"),
        value,
        waited == limit,
        &format!(
            "exact; {} packets sent in {:.1} ms",
            seen.sent.len(),
            burst.as_secs_f64() * 1e3
        ),
        &validity,
    )];
    Ok(Measured { records, validity })
}

/// A burst of which packets left the queue while it was sent does not measure the queue's limit.
fn judged(validity: Validity, burst: Duration) -> Validity {
    if burst < TRANSMISSION {
        return validity;
    }
    validity.and_void(Reason::SlowBurst {
        took: burst.into(),
        transmission: TimeSpan::from(TRANSMISSION),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_which_packets_left_is_void() {
        let slow = judged(Validity::default(), TRANSMISSION);
        assert!(!slow.counts());
        assert_eq!(
            slow.to_string(),
            "void: the burst took 48.0 ms; a packet leaves the queue every 48.0 ms"
        );
        let fast = judged(Validity::default(), TRANSMISSION / 2);
        assert!(fast.is_valid());
    }
}
