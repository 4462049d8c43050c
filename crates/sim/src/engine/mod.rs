//! The event queue: selects the next event.
//!
//! Everything that can have an event is a *place* with a number: first the directions of links, then
//! receivers, senders, relays of proxies, flows, sources of traffic without TCP, policies of relays, and the
//! reassembly of fragments. A place has at most one future event. Events are ordered by time, and events at
//! the same time by the number of their place. So packets arrive first, then timers of receivers and of
//! senders expire, then relays act, then flows and other traffic start or send, and then policies are called.
//! No two events compare equal, so the order does not depend on when they were scheduled.

mod schedule;
mod tournament;

pub(crate) use schedule::{Event, Schedule};
