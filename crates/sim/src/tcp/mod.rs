//! TCP as two sans-IO state machines: a [`Sender`] of data and its [`Receiver`].
//!
//! Before you change anything here, read RFC 9293 (TCP), RFC 5681 (congestion control) and RFC 6298
//! (retransmission timer); for one variant, also the RFC that its file names.
//!
//! | kind | calls |
//! | --- | --- |
//! | input | `handle_*`: a segment arrived, the application wrote or read, a deadline came |
//! | output | `poll_transmit` until `None`: segments to be sent; `poll_timeout`: the next deadline and why |
//! | getters | state, counters |
//!
//! The caller passes the time in, which never goes back. After every input it takes out all
//! outputs. Units are bytes and nanoseconds; sequence numbers have 64 bits and never wrap.

mod configuration;
mod ranges;
mod receiver;
mod sender;
mod thinning;
mod timers;

pub use configuration::{
    AckRule, ByteCounting, ReceiverConfiguration, SenderConfiguration, Thinning, Variant,
    WindowGrowth,
};
pub use receiver::{Receiver, ReceiverCounters};
pub use sender::{Sender, SenderCounters};
pub use timers::Timer;
