//! Finds sibling modules that use each other in a circle.
//!
//! The children of one parent module must have an order in which each child uses only children before
//! it. A module uses a sibling if any code in the module, or in a module below it, names an item of
//! the sibling or of a module below the sibling: in a `use` declaration, an expression, a type, a
//! pattern, an attribute or the arguments of a macro. A re-exported item counts as an item of the
//! module that defines it and of each module that re-exports it. Code that is compiled for tests only
//! (`#[cfg(test)]`) does not count. Parent and child may use each other.
//!
//! The check reads source text only. It does not find uses without a name in the text: methods that
//! are called on a value, and code that macros generate. It also leaves out modules inside functions.

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
