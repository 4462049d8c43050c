//! A session without its descriptors.
//!
//! Times are nanoseconds on the predecessor's clock, which the successor continues. A field that is zero, off or
//! absent is not written, and a field that is missing is read so.

use std::net::SocketAddr;

use midspan_policy::narrow_leg::KeptLeg;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{LONGEST_NAME, MOST_COPIED, MOST_PIPED};

/// The state of a session. Its descriptors are, in this order: the socket towards the client, the socket towards
/// the server, and the read end and the write end of the pipe towards the server, and of the pipe towards the
/// client, if there are pipes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// The index of its listener among those of its thread.
    pub listener: u32,
    /// The phase of its life.
    pub phase: PhaseState,
    /// What it has recorded about itself.
    pub record: RecordState,
    /// The direction to the server.
    pub to_server: TransferState,
    /// The direction to the client.
    pub to_client: TransferState,
    /// Whether the client leg and the server leg have failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: [bool; 2],
    /// Whether a FIN of the client and of the server has certainly arrived.
    #[serde(default, skip_serializing_if = "is_default")]
    pub end_seen: [bool; 2],
    /// When it last moved data.
    #[serde(default, skip_serializing_if = "is_default")]
    pub moved_at: u64,
    /// Whether it has a place among the sessions that limits count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_place: bool,
    /// The name by which the client requested the server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub destination: Option<String>,
    /// The state of a long leg towards the client.
    #[serde(default, skip_serializing_if = "is_default")]
    pub long_leg: Option<Box<LongLegState>>,
}

/// The state of a long leg towards a client without an access profile: it may send ahead, or has a bounded start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongLegState {
    /// The state of the policies.
    pub decides: KeptLeg,
    /// Bytes of an ACK without data.
    pub ack_size: u32,
    /// Whether it was counted as a leg that sends ahead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub was_ahead: bool,
}

/// The phase of a session's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PhaseState {
    /// The server has not answered yet.
    Connecting {
        /// When the attempt ends, if it has a limit.
        until: Option<u64>,
    },
    /// Both legs are connected.
    Relaying,
    /// One leg has failed, and the other one gets the data that arrived before.
    Settling {
        /// When the session is reset in any case.
        until: u64,
    },
}

/// What a session has recorded about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordState {
    /// Its number.
    pub id: u64,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// Whether the client was answered before the server had answered.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_early: bool,
    /// When the client's first segment arrived.
    #[serde(default, skip_serializing_if = "is_default")]
    pub began: u64,
    /// Nanoseconds until both legs were connected.
    #[serde(default, skip_serializing_if = "is_default")]
    pub setup: Option<u64>,
    /// Bytes handed to the kernel towards the client.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bytes_to_client: u64,
    /// Bytes handed to the kernel towards the server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bytes_to_server: u64,
    /// The initial window of the client leg in segments, if it was chosen, and whether by earlier sessions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Option<(u16, bool)>,
    /// The name of its first failure.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failure: Option<String>,
    /// For each leg, the counters of its socket that were added to the statistics; the client leg first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub read: [ReadingState; 2],
    /// For each leg, the most bytes that were read for it in one turn.
    #[serde(default, skip_serializing_if = "is_default")]
    pub largest_forward_data: [u32; 2],
    /// For each leg, the most bytes that its socket got in one turn.
    #[serde(default, skip_serializing_if = "is_default")]
    pub largest_burst: [u32; 2],
}

/// Counters of a socket at its last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadingState {
    /// Retransmitted segments.
    #[serde(skip_serializing_if = "is_default")]
    pub retransmitted_segments: u32,
    /// Retransmitted bytes, the lower half of the number.
    #[serde(skip_serializing_if = "is_default")]
    pub retransmitted_bytes: u32,
    /// Retransmission time-outs.
    #[serde(skip_serializing_if = "is_default")]
    pub timeouts: u16,
    /// Time with data in flight, in the unit of the statistics.
    #[serde(skip_serializing_if = "is_default")]
    pub busy: u32,
    /// Part of this time in which the peer's window was the limit.
    #[serde(skip_serializing_if = "is_default")]
    pub receive_window_limited: u32,
    /// Part of this time in which the send buffer was the limit.
    #[serde(skip_serializing_if = "is_default")]
    pub send_buffer_limited: u32,
}

/// One direction of data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferState {
    /// What is known of its two ends.
    #[serde(skip_serializing_if = "is_default")]
    pub direction: DirectionState,
    /// The data that was read and not yet written.
    #[serde(skip_serializing_if = "is_default")]
    pub held: HeldState,
    /// It reads only little at once, because memory is short.
    #[serde(skip_serializing_if = "is_default")]
    pub is_bounded: bool,
    /// Its outbound leg has keep-alive.
    #[serde(skip_serializing_if = "is_default")]
    pub is_kept_alive: bool,
    /// A splice may have swallowed an error of its outbound leg.
    #[serde(skip_serializing_if = "is_default")]
    pub has_spliced: bool,
    /// The limits of its writing.
    #[serde(skip_serializing_if = "is_default")]
    pub throttle: ThrottleState,
}

/// The ends of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectionState {
    /// The end at which data arrives.
    #[serde(skip_serializing_if = "is_default")]
    pub inbound: InboundState,
    /// The end at which data leaves.
    #[serde(skip_serializing_if = "is_default")]
    pub outbound: OutboundState,
    /// Reads have returned many bytes, so it splices.
    #[serde(skip_serializing_if = "is_default")]
    pub bulk: bool,
    /// It reads until an end or an error appears.
    #[serde(skip_serializing_if = "is_default")]
    pub thorough: bool,
    /// Urgent data has arrived.
    #[serde(skip_serializing_if = "is_default")]
    pub urgent: bool,
    /// An end that is read from now on is no FIN.
    #[serde(skip_serializing_if = "is_default")]
    pub no_end: bool,
}

/// The end at which data of a direction arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum InboundState {
    /// More data may arrive.
    #[default]
    Open,
    /// The FIN has been read.
    Ended,
    /// It has failed, and all data was read.
    Broken,
}

/// The end at which data of a direction leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OutboundState {
    /// Data may be written.
    #[default]
    Open,
    /// The FIN has been passed on.
    Finished,
    /// It has failed.
    Broken,
}

/// The data that a direction has read and not yet written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HeldState {
    /// There is none.
    #[default]
    Nothing,
    /// This many bytes in memory. They are in the batch's file in memory.
    Copied(u32),
    /// This many bytes in a pipe.
    Piped(u32),
}

/// The limits of a direction's writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThrottleState {
    /// Pacing at the input of TCP.
    #[serde(skip_serializing_if = "is_default")]
    pub pacing: Option<PacingState>,
    /// Most bytes in flight, by the policy.
    #[serde(skip_serializing_if = "is_default")]
    pub cap: Option<u64>,
    /// Nanoseconds between two checks of the data in flight.
    #[serde(skip_serializing_if = "is_default")]
    pub look: u64,
}

/// Pacing at the input of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacingState {
    /// Bits per second.
    pub rate: u64,
    /// Bytes of data of a segment.
    pub segment_size: u32,
    /// Bytes of its headers.
    pub header_size: u32,
}

/// Why a session cannot be in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Wrong {
    /// It holds nothing, or too much, where it is to hold data.
    #[error("holds {0} bytes")]
    Held(u32),
    /// It holds data for a leg that takes no more.
    #[error("holds data for a leg that takes no more")]
    HeldForNothing,
    /// The name of the server is too long.
    #[error("has a name of {0} bytes")]
    Name(usize),
    /// A long leg cannot be in this state.
    #[error("has a long leg in a state that is not possible")]
    LongLeg,
    /// Pacing at no rate.
    #[error("is paced at a rate of zero")]
    Rate,
}

impl SessionState {
    /// Number of descriptors that come with the session.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        2 + self.to_server.held.descriptors() + self.to_client.held.descriptors()
    }

    /// Bytes of the session in the batch's file in memory; those towards the server come first.
    #[must_use]
    pub const fn copied(&self) -> u64 {
        self.to_server.held.copied() as u64 + self.to_client.held.copied() as u64
    }

    /// Whether a session can be in this state.
    ///
    /// # Errors
    /// The first part of the state that is impossible.
    pub fn check(&self) -> Result<(), Wrong> {
        self.to_server.check()?;
        self.to_client.check()?;
        let long_leg = self.long_leg.as_ref();
        if long_leg.is_some_and(|leg| !leg.decides.is_possible()) {
            return Err(Wrong::LongLeg);
        }
        let names = [&self.destination, &self.record.failure];
        match names.into_iter().flatten().map(String::len).max() {
            Some(length) if length > LONGEST_NAME => Err(Wrong::Name(length)),
            _ => Ok(()),
        }
    }
}

impl TransferState {
    fn check(&self) -> Result<(), Wrong> {
        let (count, most) = match self.held {
            HeldState::Nothing => (1, 1),
            HeldState::Copied(count) => (count, MOST_COPIED),
            HeldState::Piped(count) => (count, MOST_PIPED),
        };
        if !(1..=most).contains(&count) {
            return Err(Wrong::Held(count));
        }
        if self.held != HeldState::Nothing && self.direction.outbound != OutboundState::Open {
            return Err(Wrong::HeldForNothing);
        }
        match self.throttle.pacing {
            Some(PacingState { rate: 0, .. }) => Err(Wrong::Rate),
            _ => Ok(()),
        }
    }
}

impl HeldState {
    /// Number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Copied(count) | Self::Piped(count) => count,
        }
    }

    /// Number of bytes in memory.
    #[must_use]
    pub const fn copied(self) -> u32 {
        match self {
            Self::Copied(count) => count,
            Self::Nothing | Self::Piped(_) => 0,
        }
    }

    /// Number of its descriptors.
    #[must_use]
    pub const fn descriptors(self) -> usize {
        match self {
            Self::Piped(_) => 2,
            Self::Nothing | Self::Copied(_) => 0,
        }
    }
}

/// Whether a value need not be written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
