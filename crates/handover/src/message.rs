//! The messages of predecessor and successor, and the versions of the format.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{LARGEST_MESSAGE, MOST_DESCRIPTORS, SessionState, Wrong};

/// The versions that this program writes and reads, in ascending order.
///
/// A new optional field is no new version. A change that an older program would misunderstand is one: the old
/// version then stays in this list as long as this program can write and read it.
pub const WRITTEN: &[u32] = &[2];

/// Most versions in one list, and the longest reason in bytes.
const MOST_VERSIONS: usize = 32;
const LONGEST_REASON: usize = 512;

/// The newest version of this program that is among these.
#[must_use]
pub fn newest_common(others: &[u32]) -> Option<u32> {
    let known = WRITTEN.iter().filter(|version| others.contains(version));
    known.max().copied()
}

/// The beginning of a message with sessions.
pub(crate) const SESSIONS: &[u8] = b"{\"Sessions\":{";

/// A message of the relay that has the sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromPredecessor {
    /// The first message.
    Hello {
        /// The versions in which it can write what follows.
        versions: Vec<u32>,
        /// Its clock, in nanoseconds.
        now: u64,
    },
    /// A listener of the sessions that follow.
    Listener {
        /// The number of the thread.
        thread: u32,
        /// The index by which sessions of this thread name the listener.
        index: u32,
        /// The settings as JSON, in the form that the relay itself defines.
        settings: String,
    },
    /// The listening sockets at an address. They come with this message.
    Sockets {
        /// The address.
        address: SocketAddr,
    },
    /// All listeners and their sockets were sent: the successor has to answer whether it can take over.
    Check,
    /// The listeners belong to the successor from now on, and the sessions follow.
    Go {
        /// The number of threads that hand sessions over.
        threads: u32,
        /// The successor's own sessions get larger numbers than this one.
        largest_id: u64,
    },
    /// The predecessor keeps its listeners and sessions.
    Stay,
    /// Sessions, which belong to the successor as soon as it has [taken](FromSuccessor::Taken) them. Descriptors come
    /// with this message: a file in memory with the data that the sessions hold in memory, if they hold any, and then
    /// those of each session.
    Sessions(Batch),
    /// A thread has sent all its sessions, and has an answer to each message.
    End {
        /// The number of its sessions that belong to the successor.
        sessions: u64,
    },
}

/// A message of the relay that gets the sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSuccessor {
    /// It is ready for listeners.
    Welcome {
        /// The version in which they and the sessions are to be written.
        version: u32,
    },
    /// It cannot take over.
    Refused {
        /// The reason, for the log.
        reason: String,
    },
    /// It has checked the listeners, and can take over.
    Ready,
    /// It handles the last sessions of a thread from now on.
    Taken {
        /// The number of the predecessor's thread.
        thread: u32,
    },
    /// It does not handle the last sessions of a thread.
    NotTaken {
        /// The number of the predecessor's thread.
        thread: u32,
        /// The reason, for the log.
        reason: String,
    },
    /// All threads have ended.
    Done,
}

/// Sessions of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The number of the thread.
    pub thread: u32,
    /// The sessions.
    pub sessions: Vec<SessionState>,
}

impl Batch {
    /// Bytes in the file in memory.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.sessions.iter().map(SessionState::copied).sum()
    }

    /// Number of descriptors that come with the message.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        let of_sessions = self.sessions.iter().map(SessionState::descriptors);
        usize::from(self.copied() > 0) + of_sessions.sum::<usize>()
    }

    /// The number of the thread in a message with sessions, even if no session of it can be read.
    #[must_use]
    pub fn thread_in(message: &[u8]) -> Option<u32> {
        #[derive(Deserialize)]
        struct Message {
            #[serde(rename = "Sessions")]
            sessions: Sender,
        }
        #[derive(Deserialize)]
        struct Sender {
            thread: u32,
        }
        let message: Message = decode(message).ok()?;
        Some(message.sessions.thread)
    }

    fn check(&self) -> Result<(), FormatError> {
        for session in &self.sessions {
            let wrong = |wrong| FormatError::Session {
                id: session.record.id,
                wrong,
            };
            session.check().map_err(wrong)?;
        }
        match self.descriptors() {
            count if count > MOST_DESCRIPTORS => Err(FormatError::Descriptors(count)),
            _ => Ok(()),
        }
    }
}

/// A message cannot be written or read.
#[derive(Debug, Error)]
pub enum FormatError {
    /// It is too long.
    #[error("a message of {0} bytes is too long: at most {LARGEST_MESSAGE}")]
    Long(usize),
    /// It would come with too many descriptors.
    #[error("a message with {0} descriptors: at most {MOST_DESCRIPTORS}")]
    Descriptors(usize),
    /// It is no message of this exchange.
    #[error("a message that cannot be read or written: {0}")]
    Text(#[from] serde_json::Error),
    /// A session is in a state that no session can be in.
    #[error("session {id} {wrong}")]
    Session {
        /// Its number.
        id: u64,
        /// Its state.
        wrong: Wrong,
    },
    /// A list or text in it is too long.
    #[error("a message with a list or text that is too long")]
    List,
}

impl FromPredecessor {
    /// Whether these bytes are the beginning of a message with sessions, as [`BatchWriter`](crate::BatchWriter)
    /// writes it.
    #[must_use]
    pub fn has_sessions(bytes: &[u8]) -> bool {
        bytes.starts_with(SESSIONS)
    }

    /// The message as bytes.
    ///
    /// # Errors
    /// It is too long, or not possible.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        encode(self)
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// There is none, or not a possible one.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let message: Self = decode(bytes)?;
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), FormatError> {
        match self {
            Self::Sessions(batch) => batch.check(),
            Self::Hello { versions, .. } if versions.len() > MOST_VERSIONS => {
                Err(FormatError::List)
            }
            _ => Ok(()),
        }
    }
}

impl FromSuccessor {
    /// A refusal, with as much of the reason as fits.
    #[must_use]
    pub fn refused(reason: &impl ToString) -> Self {
        let reason = cut(reason);
        Self::Refused { reason }
    }

    /// The last sessions of a thread are not taken, with as much of the reason as fits.
    #[must_use]
    pub fn not_taken(thread: u32, reason: &impl ToString) -> Self {
        let reason = cut(reason);
        Self::NotTaken { thread, reason }
    }

    /// The message as bytes.
    ///
    /// # Errors
    /// It is too long.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        encode(self)
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// There is none, or not a possible one.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let message: Self = decode(bytes)?;
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), FormatError> {
        match self {
            Self::Refused { reason } | Self::NotTaken { reason, .. }
                if reason.len() > LONGEST_REASON =>
            {
                Err(FormatError::List)
            }
            _ => Ok(()),
        }
    }
}

fn cut(reason: &impl ToString) -> String {
    let mut reason = reason.to_string();
    reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
    reason
}

fn encode(message: &impl Serialize) -> Result<Vec<u8>, FormatError> {
    let bytes = serde_json::to_vec(message)?;
    match bytes.len() {
        length if length > LARGEST_MESSAGE => Err(FormatError::Long(length)),
        _ => Ok(bytes),
    }
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, FormatError> {
    if bytes.len() > LARGEST_MESSAGE {
        return Err(FormatError::Long(bytes.len()));
    }
    Ok(serde_json::from_slice(bytes)?)
}
