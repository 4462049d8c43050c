//! One module for each command.

pub mod bugreport;
pub mod capture;
pub mod check;
pub mod cleanup;
pub mod control;
pub mod explain;
pub mod init;
pub mod learned;
pub mod overlay;
pub mod run;
pub mod takeover;
pub mod thin;
pub mod top;
pub mod upgrade;

// The commands of the package midspan-lab, and what they have in common.
#[cfg(feature = "lab")]
pub mod choices;
#[cfg(feature = "lab")]
pub mod compare;
#[cfg(feature = "lab")]
pub mod conformance;
#[cfg(feature = "lab")]
pub mod demo;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "lab")]
pub mod manual;
#[cfg(feature = "lab")]
pub mod merge;
#[cfg(feature = "lab")]
pub mod paths;
#[cfg(feature = "lab")]
pub mod plan;
#[cfg(feature = "lab")]
pub mod real_paths;
#[cfg(feature = "lab")]
pub mod reproduce;
#[cfg(feature = "lab")]
pub mod sim;
#[cfg(feature = "lab")]
pub mod verify;

/// `Ok(false)`: the command is complete, but a run was void, a bound was missed, or a requirement is
/// missing.
pub type Outcome = miette::Result<bool>;
