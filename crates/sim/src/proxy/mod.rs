//! How a split proxy joins two legs.
//!
//! A [`Relay`] takes what the inbound leg's receiver has in order and writes it to the outbound
//! leg's sender. What holds it back, the receiver's advertised window passes on to the sender of
//! the inbound leg.
//!
//! - Buffers: a receive buffer and a send buffer, as sockets have, or one buffer that is granted
//!   to the session, in which a copy stays until it is acknowledged (Bhole §II: PTS).
//! - Service: each segment takes a service time in a queue of its session (Bhole §II.A), before
//!   or after it is acknowledged locally.
//! - Forwarding: at once, or paced at the input of TCP (Shikama §3.2).

mod configuration;
mod relay;
#[cfg(test)]
mod tests;

pub use configuration::{Buffers, LocalAck, RelayConfiguration, Service, ServiceTime};
pub use relay::Relay;
