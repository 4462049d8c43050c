//! What is sent: by flows over TCP, and by traffic that only takes room.

use midspan_units::{BitRate, ByteSize, TimeSpan};

use super::{FlowId, NodeId};

/// What a flow sends.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Source {
    /// As much as possible, without end.
    #[default]
    Bulk,
    /// So much.
    Fixed(ByteSize),
    /// One file after another over the same connection, each some time after the last byte of
    /// the one before has arrived; without end.
    OnOff {
        /// Size of the files, in bytes.
        size: Distribution,
        /// The pause between two, in seconds.
        pause: Distribution,
    },
    /// What a [`Dialogue`] asks for.
    Dialogue,
}

/// How something random is distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Constant(f64),
    /// Exponential, with this mean.
    Exponential {
        /// The mean.
        mean: f64,
    },
    /// Pareto: with a shape below 2 its variance is infinite, and many sources whose on and off
    /// times are so distributed are self-similar together (Willinger et al. 1997).
    Pareto {
        /// The mean.
        mean: f64,
        /// The shape, above 1.
        shape: f64,
    },
}

/// Traffic without TCP that takes room on the links it passes: cross traffic that congests a
/// link for a time, other users' uploads.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// What it is called; gives its random numbers.
    pub name: String,
    /// Where it comes from.
    pub from: NodeId,
    /// Where it goes to.
    pub to: NodeId,
    /// Size of its packets, in bytes, headers included.
    pub packet_size: u32,
    /// Rate of each source while it sends.
    pub rate: BitRate,
    /// How many sources it comes from.
    pub sources: u32,
    /// When each source sends.
    pub pattern: Pattern,
    /// When it begins.
    pub start: TimeSpan,
    /// When it ends; `None` for never.
    pub end: Option<TimeSpan>,
}

/// When a source of traffic sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// Always.
    Constant,
    /// In turns, first off. Aggregated Pareto on/off sources are self-similar.
    OnOff {
        /// How long it sends, in seconds.
        on: Distribution,
        /// How long it is silent, in seconds.
        off: Distribution,
    },
}

/// Requests and answers between a client and a server: over one connection a conversation, over
/// several a web page, whose objects each connection asks for one after another.
///
/// A connection is a pair of flows, both with [`Source::Dialogue`]: one carries the requests, the
/// other the answers. The flow of the answers sends when the first request has arrived, so it
/// should have no handshake of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialogue {
    /// Of each connection, the flow of its requests and that of its answers.
    pub connections: Vec<[FlowId; 2]>,
    /// Requests over all connections together.
    pub count: u32,
    /// Size of each request.
    pub request: ByteSize,
    /// Size of each answer.
    pub answer: ByteSize,
}
