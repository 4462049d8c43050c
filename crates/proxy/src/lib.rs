//! The proxy: `midspan run`.
//!
//! Two processes. The privileged helper ([`run`]) reads the configuration, opens the listening
//! sockets, sets up routes and rules, starts the relay process, hands it the sockets, and watches
//! over it. The relay process ([`relay_main`]) gives up every capability but `CAP_NET_ADMIN`,
//! which a few socket options need, never runs a program, and moves the data ([`midspan_relay`]).
//! Either ends when the other does.

pub mod admin;
pub mod capture;
pub mod check;
mod cleanup;
pub mod client;
pub mod command;
pub mod configuration;
mod control;
mod error;
mod fragmenting;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod gate;
mod health;
mod helper;
mod keeper;
mod late;
pub mod learned;
mod machine_memory;
pub mod overlay;
mod relay_listeners;
mod relay_process;
mod relay_watch;
mod resolver;
pub mod summary;

pub use cleanup::{Cleaned, cleanup};
pub use command::default_socket;
pub use error::Error;
pub use helper::{RunOptions, describe_rules, run};
pub use midspan_service::logging::LogLevel;
pub use relay_process::relay_main;
