//! Files that an operator writes, and values for them.

use midspan_document::{Located, Override, Source, Sweep};
use midspan_link::RecordedTrace;
use midspan_path::{Path, built_in};
use miette::{GraphicalReportHandler, GraphicalTheme};

/// The text of a path file.
pub fn path_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match Path::read(&Source::new("fuzz.toml", text)) {
        Ok(path) => {
            for flow in &path.flows {
                assert!(!path.data_way(flow).is_empty());
            }
        }
        Err(error) => located(&error, text),
    }
}

/// Values for a built-in path, `KEY=VALUE`, one in a line, as after `--set` and `--sweep`.
pub fn overrides(input: &[u8]) {
    let (Ok(text), Some(built_in)) = (std::str::from_utf8(input), built_in().first()) else {
        return;
    };
    let mut source = built_in.source();
    for line in text.lines().take(MOST_OVERRIDES) {
        if let Err(error) = Sweep::parse("--sweep", line) {
            located(&error, line);
        }
        let result = Override::parse("--set", line).and_then(|value| {
            let (changed, _) = value.apply(&source, Path::read)?;
            source = changed;
            Ok(())
        });
        if let Err(error) = result {
            located(&error, line);
        }
        // With any values, set or refused, the path is still valid.
        assert!(Path::read(&source).is_ok(), "{line}");
    }
}

const MOST_OVERRIDES: usize = 4;

/// The text of a recorded trace.
pub fn recorded_trace(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match RecordedTrace::parse(text) {
        Ok(RecordedTrace::Opportunities(opportunities)) => {
            assert!(opportunities.mean_rate().bits_per_second() > 0);
        }
        Ok(RecordedTrace::Changes(schedule)) => {
            assert_eq!(schedule.check(), Ok(()));
            assert!(!schedule.steps.is_empty());
        }
        Err(error) => {
            // The place is in the text, and an error is short, however long the text is.
            assert!(text.get(error.place.clone()).is_some(), "{error:?}");
            assert!(error.problem.len() < 2048, "{error:?}");
        }
    }
}

/// The text of the proxy's configuration file.
pub fn configuration(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        midspan_proxy::fuzzing::configuration(text);
    }
}

/// An error has a place in the text, and can be printed.
fn located(error: &Located, text: &str) {
    let span = error.span();
    assert!(span.start <= span.end && span.end <= text.len());
    assert!(text.is_char_boundary(span.start) && text.is_char_boundary(span.end));
    assert!(!error.to_string().chars().any(char::is_control));
    // As on the command line.
    let mut shown = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::none());
    assert!(handler.render_report(&mut shown, error).is_ok());
    assert!(error.line() > 0 && error.column() > 0);
}
