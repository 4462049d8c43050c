//! Which leg of a session a packet belongs to.

use std::net::SocketAddr;

use midspan_policy::Leg;
use midspan_relay::observation::{LegReport, SessionReport};
use midspan_wire::TcpPacket;

use super::CaptureError;

/// Both addresses of a leg, as its socket has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Midspan's. The server leg of a transparent session has the client's address here.
    pub local: SocketAddr,
    /// The client's or the server's.
    pub peer: SocketAddr,
}

/// Both legs of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Legs {
    /// The leg towards the client.
    pub client: Ends,
    /// The leg towards the server.
    pub server: Ends,
}

/// A segment's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// This machine sent it.
    pub is_outgoing: bool,
}

impl Ends {
    fn of(leg: &LegReport) -> Option<Self> {
        Some(Self {
            local: leg.local?,
            peer: leg.peer?,
        })
    }

    fn fits(self, segment: &Segment) -> bool {
        let ends = if segment.is_outgoing {
            (segment.source, segment.destination)
        } else {
            (segment.destination, segment.source)
        };
        ends == (self.local, self.peer)
    }

    /// As [`fits`](Self::fits), with another local address that the gateway's NAT has put there.
    fn fits_behind_nat(self, segment: &Segment) -> bool {
        let (local, peer) = if segment.is_outgoing {
            (segment.source, segment.destination)
        } else {
            (segment.destination, segment.source)
        };
        peer == self.peer && local.port() == self.local.port()
    }
}

impl Legs {
    /// From the relay's report of a session.
    ///
    /// # Errors
    /// A leg is not connected (any more).
    pub fn of(session: &SessionReport) -> Result<Self, CaptureError> {
        let ends = Ends::of(&session.client_leg).zip(Ends::of(&session.server_leg));
        let (client, server) = ends.ok_or(CaptureError::NotConnected(session.id))?;
        Ok(Self { client, server })
    }

    /// Whether both legs have the same addresses and ports.
    pub fn are_alike(&self) -> bool {
        self.client.local == self.server.peer && self.client.peer == self.server.local
    }

    /// The leg to which a segment belongs. If both legs have the same addresses and ports, the
    /// direction distinguishes them: the client's segments arrive on the client leg and leave on
    /// the server leg. Over `lo` each segment passes twice, leaving and arriving, and belongs to a
    /// leg once.
    pub fn leg_of(&self, segment: &Segment) -> Option<Leg> {
        if self.client.fits(segment) {
            Some(Leg::Client)
        } else if self.server.fits(segment)
            || (self.are_alike() && self.server.fits_behind_nat(segment))
        {
            Some(Leg::Server)
        } else {
            None
        }
    }
}

impl Segment {
    /// From a packet that begins with its IP header and may be cut behind the TCP header.
    pub fn read(packet: &[u8], is_outgoing: bool) -> Option<Self> {
        let packet = TcpPacket::read(packet)?;
        Some(Self {
            source: packet.source,
            destination: packet.destination,
            is_outgoing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(local: &str, peer: &str) -> Ends {
        Ends {
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
        }
    }

    fn segment(source: &str, destination: &str, is_outgoing: bool) -> Segment {
        Segment {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            is_outgoing,
        }
    }

    #[test]
    fn legs_with_the_same_addresses_are_told_apart_by_direction() {
        let (client, server) = ("10.1.0.2:5000", "10.3.0.2:80");
        let legs = Legs {
            client: ends(server, client),
            server: ends(client, server),
        };
        for (source, destination, is_outgoing, leg) in [
            (client, server, false, Some(Leg::Client)),
            (client, server, true, Some(Leg::Server)),
            (server, client, false, Some(Leg::Server)),
            (server, client, true, Some(Leg::Client)),
            // Behind masquerading.
            ("10.2.0.1:5000", server, true, Some(Leg::Server)),
            (server, "10.2.0.1:5000", false, Some(Leg::Server)),
            ("10.2.0.1:5001", server, true, None),
            ("10.1.0.3:5000", server, false, None),
        ] {
            let segment = segment(source, destination, is_outgoing);
            assert_eq!(legs.leg_of(&segment), leg, "{segment:?}");
        }
    }

    #[test]
    fn over_loopback_each_segment_counts_once() {
        let legs = Legs {
            client: ends("127.0.0.1:8080", "127.0.0.1:5000"),
            server: ends("127.0.0.1:6000", "127.0.0.1:80"),
        };
        for (source, destination, leg) in [
            ("127.0.0.1:5000", "127.0.0.1:8080", Leg::Client),
            ("127.0.0.1:8080", "127.0.0.1:5000", Leg::Client),
            ("127.0.0.1:6000", "127.0.0.1:80", Leg::Server),
            ("127.0.0.1:80", "127.0.0.1:6000", Leg::Server),
        ] {
            let found = [true, false]
                .map(|is_outgoing| legs.leg_of(&segment(source, destination, is_outgoing)));
            let found: Vec<Leg> = found.into_iter().flatten().collect();
            assert_eq!(found, [leg], "{source} → {destination}");
        }
    }
}
