//! Fewer ACKs for a narrow upstream (Tam; RFC 3449 §5).
//!
//! | mechanism | file | where it runs |
//! | --- | --- | --- |
//! | delayed ACK and FDA(n) | `fixed_delay.rs` | receiver or middlebox |
//! | ACE thinning (Tam §3.2, §4.4) | `ace/` | receiver or middlebox |
//! | ACK filtering (AF) | `ack_filter.rs`, `ack_queue.rs` | the queue before the narrow link, or a middlebox before this queue |
//! | ECWA: the sender sends its cwnd (simulated only) | `explicit_window.rs` | receiver; the sender takes part |
//! | window prediction (simulated only) | `window_prediction.rs` | receiver |
//! | ACC (simulated only) | `ack_congestion_control.rs` | receiver; router and sender take part |
//! | ACK regeneration (simulated only) | `ack_regeneration.rs` | behind the narrow link |
//! | ACK-first queue | `ack_first.rs`, `ack_queue.rs` | the queue before the narrow link |
//!
//! Parts that several mechanisms need: [`packets_per_ack`], [`HeldAck`], [`ReceiverRoundTrip`],
//! [`AckTracker`], [`selection_growth`].

mod ace;
mod ack_congestion_control;
mod ack_filter;
mod ack_first;
mod ack_queue;
mod ack_regeneration;
mod explicit_window;
mod fixed_delay;
mod held_ack;
mod packets_per_ack;
mod receiver_round_trip;
mod reported;
mod sack_blocks;
mod selection;
mod tracker;
mod window_prediction;

pub use ace::{AceSettings, AceThinning, MaximumPacketsPerAck};
pub use ack_congestion_control::AckCongestionControl;
pub use ack_filter::{AckFilter, PacedAckFilter};
pub use ack_first::{AckFirst, Class};
pub use ack_queue::{AckQueue, QueuedPacket, Refused};
pub use ack_regeneration::{AckRegeneration, RegeneratedAck};
pub use explicit_window::ExplicitWindow;
pub use fixed_delay::FixedDelay;
pub use held_ack::HeldAck;
pub use packets_per_ack::{MIN_ACK_PER_WIN, packets_per_ack};
pub use receiver_round_trip::ReceiverRoundTrip;
pub use sack_blocks::SackBlocks;
pub use selection::selection_growth;
pub use tracker::{AckHeader, AckTracker};
pub use window_prediction::WindowPrediction;
