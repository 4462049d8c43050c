//! The loss, measured by numbered packets, twice with the same seed.

use std::collections::BTreeSet;
use std::time::Duration;

use midspan_path::Direction;
use midspan_units::BitRate;

use super::{Check, Measured};
use crate::verify::probe::{self, Probe};
use crate::verify::two_hosts::{Seen, TwoHosts};
use crate::{LabError, Validity};

const LOSS: f64 = 0.01;
/// 99.9 % of draws are within this many standard deviations.
const DEVIATIONS: f64 = 3.29;

pub(super) fn check(
    check: &Check,
    direction: Direction,
    packets: u64,
) -> Result<Measured, LabError> {
    let hosts = TwoHosts::build("delay = \"5 ms\"\nloss = \"1 %\"")?;
    let probe = Probe {
        packets,
        size: 100,
        rate: BitRate::from_bits_per_second(8_000_000),
    };
    let run = || -> Result<(BTreeSet<u64>, Validity), LabError> {
        hosts.reset(1)?;
        let seen = hosts.probe(direction, probe, Duration::from_millis(100))?;
        Ok((lost(&seen), seen.validity))
    };
    let (first, validity) = run()?;
    let (again, validity_again) = run()?;
    let (share, n) = (first.len() as f64 / packets as f64, packets as f64);
    let bound = DEVIATIONS * (LOSS * (1.0 - LOSS) / n).sqrt();
    let same = first == again && !first.is_empty();
    let records = vec![
        check.judged(
            ("loss", "share"),
            share,
            (share - LOSS).abs() <= bound,
            &format!(
                "within {:.2} % of 1 %, as 99.9 % of binomial draws of {packets} packets are",
                bound * 100.0
            ),
            &validity,
        ),
        check.judged(
            ("losses repeated with the same seed", "share"),
            f64::from(u8::from(same)),
            same,
            "the same packets lost in two runs",
            &validity_again,
        ),
    ];
    Ok(Measured {
        records,
        validity: if validity.is_valid() {
            validity_again
        } else {
            validity
        },
    })
}

fn lost(seen: &Seen) -> BTreeSet<u64> {
    let numbers = |captured: &[crate::capture::Captured]| -> BTreeSet<u64> {
        captured
            .iter()
            .filter_map(|packet| probe::number(&packet.bytes))
            .collect()
    };
    &numbers(&seen.sent) - &numbers(&seen.received)
}
