//! Texts for people.

use crate::{Error, Settings};

/// The rules that a run would set, as `nft` shows them.
///
/// # Errors
/// The text cannot be the name of an interface.
pub fn describe_rules(settings: &Settings) -> Result<String, Error> {
    Ok(settings.rules()?.to_string())
}
