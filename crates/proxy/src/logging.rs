//! Log lines on standard error, through [`midspan_log`], so that no thread waits for the reader of
//! the log.

use std::io::IsTerminal;

use midspan_linux::capability;
use tracing::level_filters::LevelFilter;
use tracing::{Level, error, warn};

use crate::Error;
use crate::configuration::{LogFormat, LogLevel, LogSettings};

/// Starts logging; a second call changes nothing.
///
/// # Errors
/// The writing thread cannot be started.
pub(crate) fn start(settings: LogSettings) -> Result<(), Error> {
    midspan_log::start(|| {}).map_err(Error::system("start the thread of the log"))?;
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(midspan_log::line)
        // Lines that cannot be written are counted; an error message about them could not be
        // written either.
        .log_internal_errors(false)
        .with_target(false);
    // An error means that the caller has a subscriber of its own, which is used instead.
    let started = match settings.format {
        LogFormat::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        midspan_log::set_notice(|missing| midspan_log::capture(|| tell_missing(missing)));
    }
    Ok(())
}

/// Like [`start`], in a process whose first thread has privileges that the log does not need.
///
/// # Errors
/// As [`start`].
pub(crate) fn start_without_rights(settings: LogSettings) -> Result<(), Error> {
    // If a privilege cannot be given up, it stays: the thread only writes.
    let give_up = || drop(capability::give_up_all_but(&[]));
    midspan_log::start(give_up).map_err(Error::system("start the thread of the log"))?;
    start(settings)
}

/// Writes panics to the log too.
pub(crate) fn report_panics() {
    midspan_log::report_panics(|text| {
        if tracing::dispatcher::has_been_set() {
            error!("{text}");
        } else {
            midspan_log::say(text);
        }
    });
}

fn tell_missing(lines: u64) {
    let text = format!("{lines} lines of the log were lost");
    if tracing::enabled!(Level::WARN) {
        warn!(lines, "{text}");
    } else {
        error!(lines, "{text}");
    }
}
