//! `midspan lab verify`: the emulated links against clocks that are not their own.

mod checks;
pub mod probe;
mod two_hosts;

pub use checks::{Check, checks};

use midspan_records::Record;

use crate::LabError;

/// Makes all checks; calls `progress` with each check before it starts. `quick` shortens them for
/// tests.
pub fn verify(quick: bool, progress: &mut dyn FnMut(&Check)) -> Result<Vec<Record>, LabError> {
    let mut records = Vec::new();
    for check in checks(quick) {
        progress(&check);
        records.extend(check.run()?);
    }
    Ok(records)
}
