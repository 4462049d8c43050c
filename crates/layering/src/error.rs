//! What can keep the check from giving an answer.

use std::path::PathBuf;

/// Why the modules could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A source file or the list of allowed arrows cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A source file is not valid Rust.
    #[error("{}:{line}: not valid Rust: {source}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser found.
        source: syn::Error,
    },
    /// A `mod` declaration has no file.
    #[error("{}:{line}: no file for module `{module}`; looked for {}", file.display(), looked_for.display())]
    MissingModule {
        /// The file with the declaration.
        file: PathBuf,
        /// The declaration's line, from 1.
        line: usize,
        /// The module's name.
        module: String,
        /// The last place where its file was looked for.
        looked_for: PathBuf,
    },
    /// A line of the list of allowed arrows has another form.
    #[error("{}:{line}: `{text}` is not of the form `package: parent::from -> parent::to`", file.display())]
    Allowed {
        /// The list.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The line's text.
        text: String,
    },
    /// `cargo metadata` did not answer as expected.
    #[error("cargo metadata: {0}")]
    Cargo(String),
}
