//! `midspan demo`: what Midspan does for a download over a satellite.

use std::time::Duration;

use midspan_lab::{Case, Plan};
use midspan_path::Path;

use super::{Outcome, lab};
use crate::arguments::DemoOptions;

/// Downloads over the built-in GEO path, end to end and through Midspan.
pub fn demo(options: &DemoOptions) -> Outcome {
    let plan = Plan {
        path: Path::load("geo")?,
        cases: vec![Case::Direct, Case::Midspan],
        repetitions: options.repetitions,
        limit: Duration::from_secs(120),
    };
    lab::measure(
        &plan,
        "Downloads over a GEO satellite path, end to end and through Midspan",
        None,
        Some(&options.html),
        options.output.json,
    )
}
