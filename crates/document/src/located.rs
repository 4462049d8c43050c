//! An error at a place in a text.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

use crate::{Source, nearest};

/// An error at a place in a [`Source`].
///
/// Its own text is `FILE:LINE:COLUMN: message (help)`. Miette's report handler also prints the
/// line, with a caret under the place.
#[derive(Debug, Clone)]
pub struct Located(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    source: NamedSource<Source>,
    span: Range<usize>,
    line: usize,
    column: usize,
    message: String,
    help: Option<String>,
}

impl Located {
    /// An error at `span` (in bytes) of `source`. A span beyond the text is shortened.
    #[must_use]
    pub fn new(source: &Source, span: Range<usize>, message: impl fmt::Display) -> Self {
        let text = source.text();
        let start = text.floor_char_boundary(span.start);
        let end = text.ceil_char_boundary(span.end).max(start);
        let (line, column) = source.position(start);
        Self(Box::new(Inner {
            source: NamedSource::new(source.name(), source.clone()),
            span: start..end,
            line,
            column,
            message: printable(&message.to_string()),
            help: None,
        }))
    }

    /// Adds the remedy.
    #[must_use]
    pub fn with_help(mut self, help: impl fmt::Display) -> Self {
        self.0.help = Some(printable(&help.to_string()));
        self
    }

    /// Suggests the candidate nearest to `name`; if none is near, lists the candidates if there are
    /// few.
    #[must_use]
    pub fn with_nearest<'a>(
        self,
        name: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let candidates: Vec<&str> = candidates.into_iter().collect();
        if let Some(near) = nearest(name, candidates.iter().copied()) {
            self.with_help(format_args!("did you mean `{near}`?"))
        } else if (1..=MOST_LISTED).contains(&candidates.len()) {
            self.with_help(format_args!("known: {}", candidates.join(", ")))
        } else {
            self
        }
    }

    /// The error message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The remedy, if there is one.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Line, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.0.line
    }

    /// Column in characters, counted from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.0.column
    }

    /// The place in bytes.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }
}

/// Longer lists of names do not help.
const MOST_LISTED: usize = 20;

/// Control characters in a name from the file must not reach the terminal.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            printable.extend(character.escape_debug());
        } else {
            printable.push(character);
        }
    }
    printable
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            source,
            line,
            column,
            message,
            help,
            ..
        } = &*self.0;
        write!(f, "{}:{line}:{column}: {message}", source.name())?;
        if let Some(help) = help {
            write!(f, " ({help})")?;
        }
        Ok(())
    }
}

impl Error for Located {}

impl Diagnostic for Located {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.0.source)
    }

    /// The help is printed at the caret: the message that miette prints above contains it already.
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = visible(self.0.source.inner().text(), self.span());
        let label = LabeledSpan::new(self.0.help.clone(), span.start, span.len());
        Some(Box::new(std::iter::once(label)))
    }
}

/// A non-empty span for the caret: at the end of a line, its last character.
fn visible(text: &str, span: Range<usize>) -> Range<usize> {
    let at_line_end = text[span.start..]
        .chars()
        .next()
        .is_none_or(|character| character == '\n');
    match text[..span.start].chars().next_back() {
        Some(last) if span.is_empty() && at_line_end && last != '\n' => {
            span.start - last.len_utf8()..span.end
        }
        _ => span,
    }
}

impl SourceCode for Source {
    fn read_span<'a>(
        &'a self,
        span: &miette::SourceSpan,
        context_lines_before: usize,
        context_lines_after: usize,
    ) -> Result<Box<dyn miette::SpanContents<'a> + 'a>, miette::MietteError> {
        self.text()
            .read_span(span, context_lines_before, context_lines_after)
    }
}
