//! One module for each command.

pub mod demo;
pub mod lab;
pub mod paths;
pub mod run;
pub mod verify;

/// `Ok(false)`: all was done, but a run was void or a bound missed.
pub type Outcome = miette::Result<bool>;
