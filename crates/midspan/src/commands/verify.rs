//! `midspan lab verify`: measures the emulated links with independent clocks.

use midspan_lab::verify;
use midspan_linux::namespace;
use midspan_records::Records;
use midspan_report::{pivot, stdout_width};
use miette::IntoDiagnostic;

use super::Outcome;
use crate::lab_arguments::VerifyOptions;
use crate::printing;
use crate::progress::Bar;

/// Runs all checks.
pub fn verify(options: &VerifyOptions) -> Outcome {
    namespace::isolate().into_diagnostic()?;
    let bar = Bar::new(verify::checks(options.quick).len() as u64);
    let list = verify::verify(options.quick, &mut |check| bar.next(&check.to_string()));
    bar.finish();
    let records = Records {
        records: list.into_diagnostic()?,
    };
    if options.output.json {
        printing::line(records.to_json());
    } else {
        // One row per measured quantity: every check measures another quantity.
        let mut rows = records.records.clone();
        for record in &mut rows {
            record.case = format!("{}: {}", record.case, record.quantity);
            "measured".clone_into(&mut record.quantity);
        }
        printing::text(pivot("The lab's links", &rows).to_text(stdout_width()));
    }
    Ok(records.all_ok())
}
