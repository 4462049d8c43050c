//! The event queue: what happens next.
//!
//! Everything that can have an event is a *place* with a number: links first, then receivers,
//! senders, proxies' relays and sources, each in the order of the scenario. A place has at most
//! one event ahead. Events are ordered by time, and at the same time by their place: first
//! packets arrive, then timers of receivers and of senders run out, then services end, then
//! sources start. No two events compare equal, so the order does not depend on when they were
//! scheduled.

mod schedule;
mod tournament;

pub(crate) use schedule::{Event, Schedule};
