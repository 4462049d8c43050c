//! As many sessions in one message as fit.

use crate::message::SESSIONS;
use crate::{FormatError, LARGEST_MESSAGE, MOST_DESCRIPTORS, SessionState};

/// The end of a batch.
const END: &[u8] = b"]}}";

/// Writes a [`Batch`](crate::Batch) session by session.
#[derive(Debug)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    sessions: u64,
    descriptors: usize,
    copied: u64,
}

impl BatchWriter {
    /// A batch without sessions, for the thread with this number.
    #[must_use]
    pub fn new(thread: u32) -> Self {
        let mut bytes = Vec::with_capacity(LARGEST_MESSAGE);
        bytes.extend_from_slice(SESSIONS);
        bytes.extend_from_slice(format!("\"thread\":{thread},\"sessions\":[").as_bytes());
        Self {
            bytes,
            sessions: 0,
            descriptors: 0,
            copied: 0,
        }
    }

    /// Adds a session; returns whether there was room for it. An empty batch has room for any possible session.
    ///
    /// # Errors
    /// The session is not possible.
    pub fn push(&mut self, session: &SessionState) -> Result<bool, FormatError> {
        let id = session.record.id;
        (session.check()).map_err(|wrong| FormatError::Session { id, wrong })?;
        // The file in memory is one more.
        let descriptors = self.descriptors + session.descriptors();
        let text = serde_json::to_vec(session)?;
        let length = self.bytes.len() + 1 + text.len() + END.len();
        if descriptors + 1 > MOST_DESCRIPTORS || length > LARGEST_MESSAGE {
            return Ok(false);
        }
        if self.sessions > 0 {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(&text);
        self.sessions += 1;
        self.descriptors = descriptors;
        self.copied += session.copied();
        Ok(true)
    }

    /// Number of sessions so far.
    #[must_use]
    pub const fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Bytes of these sessions for the file in memory.
    #[must_use]
    pub const fn copied(&self) -> u64 {
        self.copied
    }

    /// The message.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(END);
        self.bytes
    }
}
