//! Log lines on standard error, through [`midspan_log`], so that no thread waits for the reader of
//! the log.

use std::io::{self, IsTerminal};

use midspan_linux::capability;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing::{Level, error, warn};

/// `[log]`: what is logged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// The least important messages that are shown.
    pub level: LogLevel,
    /// How a message is written.
    pub format: LogFormat,
}

/// How important a message must be to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What ends Midspan or a listener.
    Error,
    /// What an operator should look at.
    Warn,
    /// Start, stop, and one line for each session at its end.
    #[default]
    Info,
    /// What each session does.
    Debug,
    /// Everything.
    Trace,
}

/// How a log line is written, to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Starts logging; a second call changes nothing.
///
/// # Errors
/// The writing thread cannot be started.
pub fn start(settings: LogSettings) -> io::Result<()> {
    midspan_log::start(|| {})?;
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
pub fn start_without_rights(settings: LogSettings) -> io::Result<()> {
    // If a privilege cannot be given up, it stays: the thread only writes.
    let give_up = || drop(capability::give_up_all_but(&[]));
    midspan_log::start(give_up)?;
    start(settings)
}

/// Writes panics to the log too.
pub fn report_panics() {
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
