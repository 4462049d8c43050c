//! Deliveries at the opportunities of a recorded trace, by a capture at the receiver.

use std::sync::Arc;
use std::time::Duration;

use midspan_link::{Opportunities, Trace, stream};
use midspan_path::Direction;
use midspan_records::statistics::quantile;
use midspan_units::BitRate;
use rand_pcg::rand_core::Rng;

use super::{Check, FULL, Measured, nothing};
use crate::LabError;
use crate::verify::probe::Probe;
use crate::verify::two_hosts::TwoHosts;

/// Permitted error of 99 % of the deliveries, in seconds.
const BOUND: f64 = 0.001;
/// Opportunities of the trace.
const OPPORTUNITIES: usize = 400;
/// Packets arrive far faster than the trace lets them leave, so that no opportunity is unused.
const ARRIVING: u64 = 100_000_000;

pub(super) fn check(
    check: &Check,
    direction: Direction,
    packets: u64,
) -> Result<Measured, LabError> {
    let times = times();
    let opportunities = Opportunities::new(times.clone()).map(Arc::new);
    let trace = Trace {
        file: "irregular".into(),
        sha256: "".into(),
        opportunities,
    };
    let hosts = TwoHosts::build_with("queue = \"1000 packets\"", |link| {
        link.up.trace = Some(trace.clone());
        link.down.trace = Some(trace);
    })?;
    let probe = Probe {
        packets,
        size: FULL,
        rate: BitRate::from_bits_per_second(ARRIVING),
    };
    let repetitions = packets / OPPORTUNITIES as u64 + 2;
    let wait = Duration::from_millis(repetitions * u64::from(length(&times)));
    let seen = hosts.probe(direction, probe, wait)?;
    let received: Vec<f64> = seen
        .received
        .iter()
        .map(|packet| packet.at.as_secs_f64())
        .collect();
    let sent = seen.sent.len();
    if received.len() != sent || sent as u64 != packets {
        let number = received.len();
        return Err(nothing(&format!(
            "{number} of {sent} packets arrived at the receiver, {packets} were to be sent"
        )));
    }
    let error = error(&times, &received).ok_or_else(|| nothing("no packet arrived"))?;
    let records = vec![check.judged(
        ("delivery error p99", "s"),
        error,
        error <= BOUND,
        &format!("at most {} ms, of {packets} packets", BOUND * 1e3),
        &seen.validity,
    )];
    Ok(Measured {
        records,
        validity: seen.validity,
    })
}

/// Irregular times, in ms: 1 to 8 ms apart, so that any part of the trace differs from all others.
fn times() -> Vec<u32> {
    let mut draws = stream(1, "verify/replay", Direction::Up);
    let mut time = 0;
    let mut next = || {
        let [gap, ..] = draws.next_u64().to_le_bytes();
        time += u32::from(gap % 8) + 1;
        time
    };
    (0..OPPORTUNITIES).map(|_| next()).collect()
}

fn length(times: &[u32]) -> u32 {
    times.last().copied().unwrap_or_default()
}

/// The error of 99 % of the deliveries, in seconds: of the differences between the times of the
/// deliveries, because the clock of the link is another one than that of the capture. The
/// opportunity of the first packet is the one that fits best.
fn error(times: &[u32], received: &[f64]) -> Option<f64> {
    let seconds = |index: usize| {
        let repetition = (index / times.len()) as f64;
        let milliseconds =
            repetition * f64::from(length(times)) + f64::from(times[index % times.len()]);
        milliseconds / 1e3
    };
    let error = |first: usize| {
        let differences: Vec<f64> = received
            .iter()
            .enumerate()
            .map(|(index, at)| at - seconds(first + index))
            .collect();
        let middle = quantile(&differences, 0.5)?;
        let errors: Vec<f64> = differences.iter().map(|one| (one - middle).abs()).collect();
        quantile(&errors, 0.99)
    };
    (0..times.len()).filter_map(error).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_best_place_in_the_trace() {
        let times = times();
        assert!(times.is_sorted() && times.len() == OPPORTUNITIES);
        let at = |index: usize| {
            let repetition = f64::from(length(&times)) * (index / OPPORTUNITIES) as f64;
            (repetition + f64::from(times[index % OPPORTUNITIES])) / 1e3
        };
        // From the 300th opportunity on, across the end of the trace, on a clock of its own. One
        // packet in fifty is 3 ms late.
        let late = |index: usize, every: usize| f64::from(u8::from(index % every == 7)) * 0.003;
        let received = |every: usize| -> Vec<f64> {
            (0..200)
                .map(|index| 5000.0 + at(300 + index) + late(index, every))
                .collect()
        };
        let found = error(&times, &received(50)).unwrap();
        assert!((found - 0.003).abs() < 1e-6, "{found}");
        let found = error(&times, &received(1000)).unwrap();
        assert!(found < 1e-6, "{found}");
        // A rate instead of the trace does not fit.
        let even: Vec<f64> = (0..200).map(|index| f64::from(index) * 0.0045).collect();
        assert!(error(&times, &even).unwrap() > 2.0 * BOUND);
        assert_eq!(error(&times, &[]), None);
    }
}
