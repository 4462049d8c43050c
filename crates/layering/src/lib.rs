//! Finds sibling modules that use each other in a circle.
//!
//! The children of one parent module shall have an order in which each uses only those before it.
//! A module uses a sibling if anything in it, or in a module below it, names anything in the
//! sibling or below it: in a `use` declaration, an expression, a type, a pattern, an attribute or
//! the arguments of a macro. An item that a module on the way re-exports counts for the module
//! that defines it and for the one that re-exports it. What is compiled for tests only
//! (`#[cfg(test)]`) does not count. Parent and child may use each other.
//!
//! Source text alone is read, so what a name in it does not show is not seen: methods called on a
//! value, and code that macros make.

#![warn(missing_docs)]

pub mod allowed;
pub mod circles;
mod collect;
mod error;
pub mod load;
mod report;
mod resolve;
pub mod targets;
pub mod tree;

pub use error::Error;
pub use report::{FoundCircle, Report, check};
