//! Reads TOML files into typed values, with errors that contain the place and the remedy.
//!
//! A [`Source`] is a text, with the name that error messages show. [`read`] turns it into any
//! type that implements `Deserialize`. An error is [`Located`]: file, line, column, message and,
//! for a mistyped name, the nearest valid name. Checks after reading (a link that names an unknown
//! host) report errors in the same way, with the span that [`Spanned`] keeps for a value.
//! [`Override`] and [`Sweep`] replace values of a file.
//!
//! The types are structs with `#[serde(deny_unknown_fields)]` and enums of unit variants. Do not
//! use `flatten`, `untagged` and internally tagged enums: they lose the place of an error.

mod key;
mod located;
mod nearest;
pub mod overrides;
mod read;
mod source;
mod sweep;

pub use located::Located;
pub use nearest::nearest;
pub use overrides::Override;
pub use read::{Error, load, read};
pub use source::{LoadError, SIZE_LIMIT, Source};
pub use sweep::Sweep;
pub use toml::Spanned;
