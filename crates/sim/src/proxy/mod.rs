//! How a split proxy joins two legs.
//!
//! A [`Relay`] takes the in-order data of the inbound leg's receiver and writes it to the outbound
//! leg's sender. If the relay is held back, the receiver's advertised window holds back the sender
//! of the inbound leg.
//!
//! - Buffers: a receive buffer and a send buffer, as sockets have, or one buffer that is granted to
//!   the session and keeps a copy until it is acknowledged (Bhole §II: PTS).
//! - Service: each segment takes a service time in a queue of its session (Bhole §II.A), before or
//!   after it is acknowledged locally.
//! - Forwarding: at once, or paced at the input of TCP (Shikama §3.2).

mod configuration;
mod relay;
#[cfg(test)]
mod tests;

pub use configuration::{Buffers, LocalAck, RelayConfiguration, Service, ServiceTime};
pub use relay::Relay;
