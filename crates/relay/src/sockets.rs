//! The two sockets of a session, and what the kernel returns about them.

use std::os::fd::{AsFd, OwnedFd};

use midspan_linux::tcp::{self, SocketMemory};
use midspan_policy::{Leg, LegSample};
use midspan_units::TimeSpan;
use rustix::io::Errno;

use crate::leg_socket::LegSocket;
use crate::sample::sample;
use crate::system;

/// The sockets of both legs.
#[derive(Debug)]
pub struct Sockets {
    /// The socket towards the client.
    pub client: LegSocket,
    /// The socket towards the server.
    pub server: LegSocket,
}

impl Sockets {
    /// The socket of a leg.
    pub fn of(&self, leg: Leg) -> &OwnedFd {
        match leg {
            Leg::Client => &self.client,
            Leg::Server => &self.server,
        }
    }

    /// The same with its encryption, if it has any.
    pub fn leg(&self, leg: Leg) -> &LegSocket {
        match leg {
            Leg::Client => &self.client,
            Leg::Server => &self.server,
        }
    }

    /// Both legs, the client's first.
    pub fn legs(&self) -> [&LegSocket; 2] {
        [&self.client, &self.server]
    }

    /// The error of a leg, if it has one; the kernel returns it once.
    pub fn take_error(&self, leg: Leg) -> Option<Errno> {
        system::socket_error(self.of(leg)).ok()?.err()
    }

    /// Whether data of a leg waits to be read.
    pub fn has_data(&self, leg: Leg) -> bool {
        system::peek(self.of(leg).as_fd()).is_ok_and(|count| count > 0)
    }

    /// Whether the peer of a leg has acknowledged all data.
    pub fn is_acknowledged(&self, leg: Leg) -> bool {
        // If the socket cannot be queried, it has failed, and no ACK will follow.
        system::unacknowledged_bytes(self.of(leg)).map_or(true, |bytes| bytes == 0)
    }

    /// Bytes that the peers of both legs have not acknowledged.
    pub fn undelivered(&self) -> u64 {
        let of = |socket| system::unacknowledged_bytes(socket).unwrap_or(0);
        of(&self.client) + of(&self.server)
    }

    /// The buffers of a leg, and the memory that they use; nothing if the socket cannot be queried.
    pub fn memory(&self, leg: Leg) -> SocketMemory {
        system::memory(self.of(leg)).unwrap_or_default()
    }

    /// Makes the close of both sockets a FIN instead of a reset.
    pub fn close_in_order(&self) {
        for socket in [&self.client, &self.server] {
            // If this fails, the close is a reset, which loses data but does not look like a
            // complete transfer.
            let _ = system::set_reset_on_close(socket, false);
        }
    }

    /// A reading of a leg.
    ///
    /// # Errors
    /// Those of reading `TCP_INFO`.
    pub fn sample(&self, leg: Leg) -> std::io::Result<LegSample> {
        sample(self.of(leg))
    }

    /// The kernel's round-trip time of a leg, which it first measures in the handshake.
    pub fn round_trip_time(&self, leg: Leg) -> Option<TimeSpan> {
        self.sample(leg).ok()?.round_trip_time
    }

    /// The congestion control of a leg.
    pub fn congestion_control(&self, leg: Leg) -> Option<String> {
        tcp::congestion_control(self.of(leg)).ok()
    }
}
