//! The sources of data: flows over TCP, and traffic that only uses capacity.

use midspan_units::{BitRate, ByteSize, TimeSpan};

use super::{FlowId, NodeId};
use crate::random::Distribution;

/// The data that a flow sends.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Source {
    /// As much as possible, without end.
    #[default]
    Bulk,
    /// This many bytes.
    Fixed(ByteSize),
    /// One file after another over the same connection, without end. Each begins some time after
    /// the last byte of the previous one has arrived.
    OnOff {
        /// Size of the files, in bytes.
        size: Distribution,
        /// The pause between two files, in seconds.
        pause: Distribution,
    },
    /// The data of a [`Dialogue`].
    Dialogue,
}

/// Traffic without TCP that uses capacity of the links on its path: for example cross traffic that
/// congests a link for a time, or other users' uploads.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Its name; also selects its random numbers.
    pub name: String,
    /// The node where it starts.
    pub from: NodeId,
    /// The node where it ends.
    pub to: NodeId,
    /// Size of its packets, in bytes, headers included.
    pub packet_size: u32,
    /// Rate of each source while it sends.
    pub rate: BitRate,
    /// Number of sources.
    pub sources: u32,
    /// When each source sends.
    pub pattern: Pattern,
    /// When the traffic begins.
    pub start: TimeSpan,
    /// When the traffic ends; `None` for never.
    pub end: Option<TimeSpan>,
}

/// When a source of traffic sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// Always.
    Constant,
    /// On and off in turns, first off. Aggregated Pareto on/off sources are self-similar.
    OnOff {
        /// How long it sends, in seconds.
        on: Distribution,
        /// How long it is silent, in seconds.
        off: Distribution,
    },
}

/// Requests and responses between a client and a server: over one connection a conversation, over
/// several a web page, whose objects each connection requests one after another.
///
/// A connection is a pair of flows, both with [`Source::Dialogue`]: one carries the requests, the
/// other the responses. The flow of the responses begins to send when the first request has
/// arrived, so it should not have a handshake of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialogue {
    /// For each connection, the flow of its requests and the flow of its responses.
    pub connections: Vec<[FlowId; 2]>,
    /// Number of requests over all connections together.
    pub count: u32,
    /// Size of each request.
    pub request: ByteSize,
    /// Size of each response.
    pub answer: ByteSize,
}
