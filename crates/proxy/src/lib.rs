//! The proxy: `midspan run`.
//!
//! Two processes do the work. The privileged helper ([`run`]) reads the configuration, opens the listening
//! sockets, sets up routes and rules, starts the relay process, passes the sockets to it, and watches over
//! it. The relay process ([`relay_main`]) moves the data ([`midspan_relay`]). It gives up every capability
//! except `CAP_NET_ADMIN`, which a few socket options need, and then runs no program. If one of the two ends,
//! the other ends too. A third process without capabilities looks up names; the relay starts it first
//! (`resolver`).

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
pub mod registry;
mod relay_configuration;
mod relay_listeners;
mod relay_process;
mod relay_watch;
mod resolver;
pub mod summary;
mod takeover;

pub use cleanup::{Cleaned, cleanup};
pub use command::default_socket;
pub use error::Error;
pub use helper::{RunOptions, describe_rules, run, trial_main};
pub use midspan_service::logging::LogLevel;
pub use relay_process::relay_main;
pub use takeover::{Takeover, take_over};
