//! `midspan demo`: a download over a satellite path, without and with Midspan.

use std::time::Duration;

use midspan_lab::{Case, CaseKind};
use midspan_path::Path;

use super::{Outcome, lab};
use crate::lab_arguments::DemoOptions;
use crate::printing;

/// Downloads over the built-in GEO path, end to end and through Midspan.
pub fn demo(options: &DemoOptions) -> Outcome {
    let midspan = if options.forward {
        CaseKind::MidspanForward
    } else {
        CaseKind::Midspan
    };
    let kinds = [CaseKind::Direct, midspan];
    printing::note("A satellite path of network namespaces, a real web server, real downloads.");
    for kind in kinds {
        printing::note(format_args!("  {}", kind.description()));
    }
    let path = Path::load("geo")?;
    let cases = Case::of_kinds(&kinds, &path, Duration::from_secs(120));
    lab::measure(
        &path,
        &cases,
        options.repetitions,
        "Downloads over a GEO satellite path, end to end and through Midspan",
        None,
        Some(&options.html),
        options.output.json,
    )
}
