//! Limits of a session's buffers, which follow from the memory budget.

use std::os::fd::OwnedFd;

use midspan_linux::tcp::{self, SocketMemory};
use midspan_policy::memory_share::{Bounding, DirectionMemory, STARTING, pieces};
use midspan_policy::{Buffer, Leg, SessionSettings};
use midspan_units::ByteSize;

use super::Session;
use crate::system;

/// The configured buffers of both legs.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    client: LegBuffers,
    server: LegBuffers,
}

#[derive(Debug, Clone, Copy)]
struct LegBuffers {
    receive: Buffer,
    send: Buffer,
}

impl From<&SessionSettings> for Buffers {
    fn from(settings: &SessionSettings) -> Self {
        let [client, server] = [&settings.client, &settings.server].map(|leg| LegBuffers {
            receive: leg.receive_buffer,
            send: leg.send_buffer,
        });
        Self { client, server }
    }
}

impl Buffers {
    const fn of(&self, leg: Leg) -> &LegBuffers {
        match leg {
            Leg::Client => &self.client,
            Leg::Server => &self.server,
        }
    }
}

impl Session {
    /// For each direction, the memory that it uses and may use; the direction to the server first.
    pub fn memory(&self) -> [DirectionMemory; 2] {
        let [client, server] = [Leg::Client, Leg::Server].map(|leg| self.part.sockets.memory(leg));
        let of = |inbound: SocketMemory, outbound: SocketMemory, from| {
            let transfer = self.transfer(from);
            let held = u64::from(transfer.direction.held());
            DirectionMemory {
                receive_limit: inbound.receive_limit.bytes(),
                send_limit: outbound.send_limit.bytes(),
                held: inbound.receive.bytes() + outbound.send.bytes() + held,
                is_bounded: transfer.is_bounded,
                is_active: self.upkeep.is_active(from),
            }
        };
        [
            of(client, server, Leg::Client),
            of(server, client, Leg::Server),
        ]
    }

    /// Whether the buffers of the direction from this leg are bounded.
    pub const fn is_bounded(&self, from: Leg) -> bool {
        self.transfer(from).is_bounded
    }

    /// What the directions read at once follows from their measured buffers, if these are bounded.
    pub fn set_pieces(&mut self, [to_server, to_client]: &[DirectionMemory; 2]) {
        self.to_server.pieces = pieces(to_server.receive_limit);
        self.to_client.pieces = pieces(to_client.receive_limit);
    }

    /// Sets the buffers of the direction from this leg. If the kernel refuses a size, the buffer
    /// stays as it is and is measured so.
    pub fn bound(&mut self, from: Leg, bounding: Bounding, configured: &Buffers) {
        let (inbound, outbound) = (from, from.other());
        let lock = |session: &Self, leg: Leg| {
            let buffers = configured.of(leg);
            let receive = session.transfer(leg).is_bounded || is_fixed(buffers.receive);
            let send = session.transfer(leg.other()).is_bounded || is_fixed(buffers.send);
            tcp::lock_queue_limits(session.part.sockets.of(leg), receive, send)
        };
        match bounding {
            Bounding::Keep => {}
            Bounding::Limit(each) => {
                let receive = within(each, configured.of(inbound).receive);
                let send = within(each, configured.of(outbound).send);
                let _ = tcp::limit_receive_queue(self.part.sockets.of(inbound), receive);
                let _ = tcp::limit_send_queue(self.part.sockets.of(outbound), send);
                self.transfer_mut(from).is_bounded = true;
            }
            Bounding::Freeze => {
                self.transfer_mut(from).is_bounded = true;
                let _ = lock(self, inbound);
                let _ = lock(self, outbound);
            }
            Bounding::Free => {
                let receive = configured.of(inbound).receive;
                restore(
                    receive,
                    self.part.sockets.of(inbound),
                    |socket| {
                        system::memory(socket).map_or(0, |memory| memory.receive_limit.bytes())
                    },
                    tcp::limit_receive_queue,
                    tcp::set_receive_buffer,
                );
                let send = configured.of(outbound).send;
                restore(
                    send,
                    self.part.sockets.of(outbound),
                    |socket| system::memory(socket).map_or(0, |memory| memory.send_limit.bytes()),
                    tcp::limit_send_queue,
                    tcp::set_send_buffer,
                );
                self.transfer_mut(from).is_bounded = false;
                if lock(self, inbound)
                    .and_then(|()| lock(self, outbound))
                    .is_err()
                {
                    // Before Linux 5.14, a size that was set cannot be returned to the kernel.
                    self.transfer_mut(from).is_bounded = true;
                }
            }
        }
    }
}

const fn is_fixed(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::Fixed(_))
}

/// At most the configured size; the kernel doubles it.
fn within(each: u64, configured: Buffer) -> ByteSize {
    ByteSize::from_bytes(match configured {
        Buffer::Auto | Buffer::Adaptive => each,
        Buffer::Fixed(size) => each.min(size.bytes().saturating_mul(2)),
    })
}

/// Restores the configured size, or returns the buffer to the kernel's own control, beginning at
/// the kernel's default.
fn restore<'a>(
    configured: Buffer,
    socket: &'a OwnedFd,
    limit: impl Fn(&'a OwnedFd) -> u64,
    set_limit: impl Fn(&'a OwnedFd, ByteSize) -> std::io::Result<()>,
    set: impl Fn(&'a OwnedFd, ByteSize) -> std::io::Result<()>,
) {
    let _ = match configured {
        Buffer::Fixed(size) => set(socket, size),
        _ if limit(socket) < STARTING => set_limit(socket, ByteSize::from_bytes(STARTING)),
        _ => Ok(()),
    };
}
