//! The rate, measured by sending a fifth more than the link carries.

use std::time::Duration;

use midspan_path::Direction;
use midspan_units::BitRate;

use super::{Check, FULL, Measured, nothing};
use crate::LabError;
use crate::verify::probe::Probe;
use crate::verify::two_hosts::TwoHosts;

const BOUND: f64 = 0.01;

pub(super) fn check(
    check: &Check,
    megabits: u64,
    direction: Direction,
    seconds: u64,
) -> Result<Measured, LabError> {
    let hosts = TwoHosts::build(&format!(
        "rate = \"{megabits} Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"1000 packets\""
    ))?;
    let offered = megabits * 1_200_000;
    let probe = Probe {
        packets: offered * seconds / (FULL as u64 * 8),
        size: FULL,
        rate: BitRate::from_bits_per_second(offered),
    };
    let seen = hosts.probe(direction, probe, Duration::from_millis(50))?;
    // The first packet found an idle link, so only the packets after it count.
    let (Some(first), Some(last)) = (seen.received.first(), seen.received.last()) else {
        return Err(nothing("the link delivered no probe"));
    };
    let following = seen.received.iter().skip(1);
    let bytes: usize = following.map(|packet| packet.length).sum();
    let span = last.at.saturating_sub(first.at).as_secs_f64();
    let (rate, nominal) = (bytes as f64 * 8.0 / span, megabits as f64 * 1e6);
    let error = (rate / nominal - 1.0).abs();
    let records = vec![check.judged(
        ("rate error", "share"),
        error,
        error <= BOUND,
        "at most 1 %, by the capture at the receiver",
        &seen.validity,
    )];
    Ok(Measured {
        records,
        validity: seen.validity,
    })
}
