//! What soak tests share: sessions whose every byte is compared, faults in an order that a seed decides, and what a relay
//! uses.
#![allow(clippy::unwrap_used)]

pub mod order;
pub mod resources;
pub mod traffic;

/// Whether the tests run at their full length.
pub fn is_full() -> bool {
    std::env::var("MIDSPAN_SOAK").is_ok_and(|value| value == "full")
}
