//! `relay.state_directory`: what is kept across restarts.

use std::path::PathBuf;

use midspan_document::{Located, Source, Spanned};

/// Where what was found out is kept across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StateDirectory {
    /// In the service manager's (`$STATE_DIRECTORY`), if it gives one.
    #[default]
    Default,
    /// In this directory.
    At(PathBuf),
    /// Nowhere.
    None,
}

pub(super) fn state_directory(
    source: &Source,
    key: Option<Spanned<String>>,
) -> Result<StateDirectory, Located> {
    let Some(key) = key else {
        return Ok(StateDirectory::Default);
    };
    match key.get_ref().as_str() {
        "none" => Ok(StateDirectory::None),
        path if path.starts_with('/') && !path.contains('\0') => {
            Ok(StateDirectory::At(key.into_inner().into()))
        }
        _ => Err(Located::new(
            source,
            key.span(),
            "a state directory is a path from / on, or \"none\"",
        )),
    }
}
