//! The event queue: selects the next event.
//!
//! Everything that can have an event is a *place* with a number: links first, then receivers,
//! senders, relays of proxies, and sources, each in the order of the scenario. A place has at most
//! one future event. Events are ordered by time, and events at the same time by their place: first
//! packets arrive, then timers of receivers and of senders expire, then services end, then sources
//! start. No two events compare equal, so the order does not depend on when they were scheduled.

mod schedule;
mod tournament;

pub(crate) use schedule::{Event, Schedule};
