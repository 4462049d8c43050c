//! The recorded trace of a direction: its file is read, and sets what it has recorded.

use std::fmt::Write as _;
use std::sync::Arc;

use midspan_document::{Located, Source, Spanned};
use midspan_link::{Configuration, RecordedTrace, Trace};
use sha2::{Digest, Sha256};

use super::Check;
use crate::link_table::{DirectionKeys, Replay};

/// Largest file of a recorded trace, in bytes: 16 MiB.
const SIZE_LIMIT: usize = 16 << 20;

/// Sets what the trace determines in the configuration of its direction.
///
/// # Errors
/// The file cannot be read or is no recorded trace; or a key sets what the trace determines.
pub fn apply(
    check: &Check<'_>,
    keys: &DirectionKeys<'_>,
    configuration: &mut Configuration,
) -> Result<(), Located> {
    let Some(given) = keys.replay else {
        return Ok(());
    };
    let Replay { file, sha256 } = given.get_ref();
    let source = check
        .source
        .load_other(file, SIZE_LIMIT)
        .map_err(|error| check.error(given, error))?;
    let digest = digest(&source);
    if let Some(expected) = sha256
        && !expected.eq_ignore_ascii_case(&digest)
    {
        let message = format!(
            "{} has another content: its SHA-256 is {digest}",
            source.name()
        );
        return Err(check.error(given, message));
    }
    let recorded = RecordedTrace::parse(source.text()).map_err(|error| {
        let (line, column) = source.position(error.place.start);
        let name = source.name();
        check.error(given, format_args!("{name}:{line}:{column}: {error}"))
    })?;
    let opportunities = match recorded {
        RecordedTrace::Opportunities(opportunities) => {
            refuse(check, "rate", keys.rate)?;
            for given in keys
                .schedule
                .into_iter()
                .flat_map(|given| &given.get_ref().steps)
            {
                refuse(check, "rate", given.get_ref().rate.as_ref())?;
            }
            Some(Arc::new(opportunities))
        }
        RecordedTrace::Changes(schedule) => {
            refuse(check, "schedule", keys.schedule)?;
            // The first row has a value in every column.
            let first = schedule.steps.first().copied().unwrap_or_default();
            if let Some(rate) = first.rate {
                refuse(check, "rate", keys.rate)?;
                configuration.state.rate = Some(rate);
            }
            if let Some(delay) = first.delay {
                refuse(check, "delay", keys.delay)?;
                configuration.state.delay = delay;
            }
            if let Some(loss) = first.loss {
                refuse(check, "loss", keys.loss)?;
                configuration.state.loss = loss;
            }
            configuration.schedule = schedule;
            None
        }
    };
    configuration.trace = Some(Trace {
        file: file.as_str().into(),
        sha256: digest.into(),
        opportunities,
    });
    Ok(())
}

/// Refuses a key that would have no effect.
fn refuse<T>(check: &Check<'_>, key: &str, given: Option<&Spanned<T>>) -> Result<(), Located> {
    match given {
        None => Ok(()),
        Some(given) => {
            let message =
                format!("the recorded trace of `replay` sets the {key} of this direction");
            Err(check.error(given, message).with_help(format_args!(
                "leave out `{key}`, or write it for the other direction"
            )))
        }
    }
}

fn digest(source: &Source) -> String {
    let mut digest = String::with_capacity(64);
    for byte in Sha256::digest(source.text()) {
        // Writing to a string cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}
