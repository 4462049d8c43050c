//! `midspan demo`: a download over a satellite path, without and with Midspan.

use std::time::Duration;

use midspan_lab::{Case, Plan};
use midspan_path::Path;

use super::{Outcome, lab};
use crate::lab_arguments::DemoOptions;
use crate::printing;

/// Downloads over the built-in GEO path, end to end and through Midspan.
pub fn demo(options: &DemoOptions) -> Outcome {
    let midspan = if options.forward {
        Case::MidspanForward
    } else {
        Case::Midspan
    };
    let cases = vec![Case::Direct, midspan];
    printing::note("A satellite path of network namespaces, a real web server, real downloads.");
    for case in &cases {
        printing::note(format_args!("  {}", case.description()));
    }
    let plan = Plan {
        path: Path::load("geo")?,
        cases,
        repetitions: options.repetitions,
        limit: Duration::from_secs(120),
        thin: None,
        discarded: None,
    };
    lab::measure(
        &plan,
        "Downloads over a GEO satellite path, end to end and through Midspan",
        None,
        Some(&options.html),
        options.output.json,
    )
}
