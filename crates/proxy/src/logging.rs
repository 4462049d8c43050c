//! Log lines on standard error.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

use crate::configuration::{LogFormat, LogLevel, LogSettings};

/// Starts logging; a second call changes nothing.
pub(crate) fn start(settings: LogSettings) {
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    // An error means that the caller has a subscriber of its own, which then is the one to use.
    let _ = match settings.format {
        LogFormat::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
}
