//! The program as a user runs it, without a network of its own; the files of the repository.

mod check;
mod command_line;
#[path = "../common/mod.rs"]
mod common;
mod install;
mod links;
mod plan;
mod printing;
mod sim;
mod snapshots;
