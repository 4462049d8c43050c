//! A run in the lab.

use midspan_lab::{Case, FlowResult, Purpose};
use midspan_path::Path;
use midspan_units::number;

use crate::{Failure, Run};

/// Runs the path's flow once.
pub fn run(path: &Path, repetition: u32, seconds: u32) -> Result<Run, Failure> {
    let flow = path.flows.first().ok_or("a path without a flow")?;
    let first = path
        .data_way(flow)
        .first()
        .copied()
        .ok_or("a path without links")?;
    let case = [Case::direct("direct", path.clone(), f64::from(seconds))];
    let repetitions = repetition..repetition + 1;
    let made = midspan_lab::run(&case, repetitions, Purpose::Measurement, &mut |_| ())?;
    let measured = made.first().ok_or("a run without a measurement")?;
    let Some(FlowResult::Bulk {
        goodput,
        round_trip,
    }) = measured.flows.first().map(|one| &one.result)
    else {
        return Err("a bulk transfer without a result".into());
    };
    let validity = &measured.validity;
    Ok(Run {
        goodput: *goodput,
        segments: number(
            measured
                .direction(first.link, first.direction)
                .data_segments,
        ),
        again: number(measured.retransmissions),
        round_trip: round_trip.map(midspan_units::TimeSpan::as_seconds),
        void: (!validity.is_valid()).then(|| validity.to_string()),
    })
}
