//! Reads a text into a typed value.

use std::path::Path;

use miette::{Diagnostic, LabeledSpan, SourceCode};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::{LoadError, Located, SIZE_LIMIT, Source};

/// Why a file could not be used.
#[derive(Debug, Error)]
pub enum Error {
    /// It could not be read as text.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its text has an error at one place.
    #[error(transparent)]
    Located(#[from] Located),
}

impl Diagnostic for Error {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        match self {
            Self::Load(_) => None,
            Self::Located(error) => error.source_code(),
        }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match self {
            Self::Load(_) => None,
            Self::Located(error) => error.labels(),
        }
    }
}

/// Reads a TOML file into a value.
///
/// # Errors
/// See [`LoadError`] and [`read`].
pub fn load<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, Error> {
    Ok(read(&Source::load(path)?)?)
}

/// Reads a TOML text into a value.
///
/// # Errors
/// The text is longer than [`SIZE_LIMIT`], is not TOML, or does not fit the type.
pub fn read<T: DeserializeOwned>(source: &Source) -> Result<T, Located> {
    if source.text().len() > SIZE_LIMIT {
        return Err(Located::new(source, 0..0, "the text is larger than 1 MiB"));
    }
    toml::from_str(source.text()).map_err(|error| locate(source, &error))
}

fn locate(source: &Source, error: &toml::de::Error) -> Located {
    let span = error.span().unwrap_or(0..0);
    let message = error.message();
    if let Some(unknown) = UnknownName::parse(message) {
        return Located::new(source, span, unknown.message())
            .with_nearest(unknown.name, unknown.known.iter().copied());
    }
    let located = Located::new(source, span, in_words_of_toml(message));
    let place = &source.text()[located.span()];
    match header(place) {
        Some((name, 1)) if message.starts_with("invalid type: map, expected a sequence") => {
            located.with_help(format_args!("write `[[{name}]]`: there may be several"))
        }
        // Serde reads a struct from an array too, and fails at the first element.
        Some((name, 2)) if message.starts_with("invalid type: map") => {
            located.with_help(format_args!("write `[{name}]`: there is only one"))
        }
        _ => located,
    }
}

/// The name in a table header, and its number of brackets.
fn header(text: &str) -> Option<(&str, usize)> {
    let name = text.trim_matches(['[', ']']);
    let brackets = text.bytes().take_while(|byte| *byte == b'[').count();
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    (plain && !name.is_empty() && text.len() == name.len() + 2 * brackets)
        .then_some((name, brackets))
}

/// Serde uses Rust's names of types; this replaces them with TOML's.
fn in_words_of_toml(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("missing key {rest}");
    }
    let Some((found, expected)) = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return message.to_owned();
    };
    let found = match found {
        "map" => "a table",
        "sequence" => "an array",
        other => other
            .trim_end_matches(" as i128")
            .trim_end_matches(" as u128"),
    };
    let expected = match expected {
        "a sequence" => "an array",
        "a map" => "a table",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "a boolean" => "true or false",
        "a string" => "text in quotes",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    format!("expected {expected}, found {found}")
}

/// The parts of serde's message about an unknown field or variant.
struct UnknownName<'a> {
    kind: &'a str,
    name: &'a str,
    known: Vec<&'a str>,
}

impl<'a> UnknownName<'a> {
    /// Parses "unknown field `dealy`, expected one of `delay`, `rate`" and similar messages: the
    /// wording is that of `serde::de::Error::unknown_field` and `unknown_variant`.
    fn parse(message: &'a str) -> Option<Self> {
        let rest = message.strip_prefix("unknown ")?;
        let (kind, rest) = rest.split_once(" `")?;
        // The name comes from the user and may contain anything; the list comes from the code and
        // contains no comma followed by "expected".
        let (name, list) = rest.rsplit_once("`, expected ")?;
        let known = list.split('`').skip(1).step_by(2).collect();
        Some(Self { kind, name, known })
    }

    fn message(&self) -> String {
        let kind = match self.kind {
            "field" => "key",
            "variant" => "value",
            other => other,
        };
        format!("unknown {kind} `{}`", self.name)
    }
}
