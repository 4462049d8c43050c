//! The configuration file: read, refused, resolved.

mod configuration;
mod configuration_explicit;
mod configuration_overlay;
mod configuration_servers;
mod configuration_transparent;
