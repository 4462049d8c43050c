//! The queue's limit, measured by a burst that ends before the first packet has left the link.

use std::time::Duration;

use midspan_path::Direction;

use super::{Check, FULL, Measured, nothing};
use crate::LabError;
use crate::verify::probe::Probe;
use crate::verify::two_hosts::TwoHosts;

/// Transmission time of a full packet at 1 Mbit/s.
const TRANSMISSION: Duration = Duration::from_millis(12);

pub(super) fn check(check: &Check, limit: u64) -> Result<Measured, LabError> {
    let hosts = TwoHosts::build(&format!(
        "rate = \"1 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"{limit} packets\""
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
    // The packet in transmission does not wait in the queue.
    let waited = seen.received.len().saturating_sub(1) as u64;
    let value = waited as f64;
    let records = vec![check.judged(
        ("queue", "packets"),
        value,
        waited == limit && burst < TRANSMISSION,
        &format!(
            "exact; {} packets sent in {:.1} ms",
            seen.sent.len(),
            burst.as_secs_f64() * 1e3
        ),
        &seen.validity,
    )];
    Ok(Measured {
        records,
        validity: seen.validity,
    })
}
