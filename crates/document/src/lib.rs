//! Reading TOML files into typed values, with errors that say where and what to do.
//!
//! A [`Source`] is a text and the name that the user knows it by. [`read`] turns it into any type
//! that implements `Deserialize`; an error is [`Located`]: file, line, column, message and, where
//! a name was mistyped, the nearest name that exists. Checks that come after reading (a link that
//! names an unknown host) report in the same way, by the span that [`Spanned`] keeps of a value.
//!
//! Types to be read are structs with `#[serde(deny_unknown_fields)]` and enums of unit variants.
//! `flatten`, `untagged` and internally tagged enums lose the place of an error; do not use them.

mod key;
mod located;
mod nearest;
pub mod overrides;
mod read;
mod source;

pub use located::Located;
pub use nearest::nearest;
pub use overrides::Override;
pub use read::{Error, load, read};
pub use source::{LoadError, SIZE_LIMIT, Source};
pub use toml::Spanned;
