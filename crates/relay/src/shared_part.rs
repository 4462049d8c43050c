//! The part of a session that other threads can reach.
//!
//! A thread that panics or is stuck is replaced. Its register gives the clients of its sessions, resets their
//! sockets, and gives their places back, although the thread keeps its sessions. All of this is in one piece of memory.

use std::sync::Arc;

use crate::identity::Identity;
use crate::limits::Seat;
use crate::sockets::Sockets;

/// What a session shares with the register of its thread.
#[derive(Debug)]
pub struct SharedPart {
    /// Which session it is.
    pub identity: Identity,
    /// The sockets of both legs.
    pub sockets: Sockets,
    /// Its place, which is free again when the session ends.
    pub seat: Seat,
}

impl SharedPart {
    /// The part of a session that begins.
    pub fn new(identity: Identity, sockets: Sockets, seat: Seat) -> Arc<Self> {
        Arc::new(Self {
            identity,
            sockets,
            seat,
        })
    }
}
