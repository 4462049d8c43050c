//! Reads a path by name or from a file.

use std::path::Path as FilePath;

use midspan_document::{LoadError, Located, Override, Source, nearest, overrides};
use miette::{Diagnostic, LabeledSpan, SourceCode};
use thiserror::Error;

use crate::{Path, built_in, resolve};

/// Why a path could not be read.
#[derive(Debug, Error)]
pub enum Error {
    /// The file could not be read as text.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its text has an error at one place.
    #[error(transparent)]
    Located(#[from] Located),
    /// It is neither a built-in path nor a file.
    #[error(
        "no built-in path and no file is called \"{name}\"{}; built in are {known}",
        .near.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default()
    )]
    Unknown {
        /// The name or file that the user gave.
        name: String,
        /// The built-in path nearest to it.
        near: Option<&'static str>,
        /// The built-in paths.
        known: String,
    },
}

impl Diagnostic for Error {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        match self {
            Self::Located(error) => error.source_code(),
            Self::Load(_) | Self::Unknown { .. } => None,
        }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match self {
            Self::Located(error) => error.labels(),
            Self::Load(_) | Self::Unknown { .. } => None,
        }
    }
}

impl Path {
    /// Reads a path file's text.
    ///
    /// # Errors
    /// The text is not a path file, or breaks one of the rules of `docs/path-file.md`.
    pub fn read(source: &Source) -> Result<Self, Located> {
        let file = midspan_document::read(source)?;
        resolve::resolve(source, stem(source.name()), &file)
    }

    /// Reads the built-in path of this name, or otherwise a file. To read a file with the name of a
    /// built-in path, write "./" before it.
    ///
    /// # Errors
    /// There is neither a path nor a file; the file cannot be read; or the errors of
    /// [`Path::read`].
    pub fn load(name_or_file: &str) -> Result<Self, Error> {
        Self::load_with(name_or_file, &[])
    }

    /// Like [`Path::load`], with `overrides` of its values.
    ///
    /// # Errors
    /// Those of [`Path::load`]; or an override has a wrong key, or a value that breaks a rule.
    pub fn load_with(name_or_file: &str, overrides: &[Override]) -> Result<Self, Error> {
        let source = source(name_or_file)?;
        Ok(overrides::read_with(&source, overrides, Self::read)?)
    }
}

/// The text of the built-in path of this name, or otherwise of a file.
///
/// # Errors
/// There is neither a path nor a file, or the file cannot be read.
pub fn source(name_or_file: &str) -> Result<Source, Error> {
    if let Some(found) = built_in().iter().find(|path| path.name == name_or_file) {
        return Ok(found.source());
    }
    let looks_like_a_file = name_or_file.ends_with(".toml") || name_or_file.contains('/');
    if looks_like_a_file || FilePath::new(name_or_file).exists() {
        return Ok(Source::load(name_or_file)?);
    }
    let names: Vec<&'static str> = built_in().iter().map(|path| path.name).collect();
    Err(Error::Unknown {
        name: name_or_file.escape_debug().to_string(),
        near: nearest(name_or_file, names.iter().copied()),
        known: names.join(", "),
    })
}

/// A file's name without directories and ".toml".
fn stem(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.strip_suffix(".toml").unwrap_or(file)
}
