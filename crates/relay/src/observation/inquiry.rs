//! Questions to the relay's threads about their sessions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::mpsc::Sender;

use super::SessionReport;

/// Questions that may wait for one thread.
const WAITING_LIMIT: usize = 8;

/// Most sessions in one answer: reading one takes its thread about 3 µs.
pub const ANSWER_LIMIT: usize = 1000;

/// Which live sessions are asked for: the first ones after a number, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Sessions with a larger number than this.
    pub after: u64,
    /// At most so many: 1 to 1000.
    pub limit: usize,
}

impl Question {
    /// The session with this number, if it lives; else the next one that does.
    #[must_use]
    pub const fn one(id: u64) -> Self {
        Self {
            after: id.saturating_sub(1),
            limit: 1,
        }
    }

    /// The number of sessions that may be told of.
    pub(crate) fn bound(self) -> usize {
        self.limit.clamp(1, ANSWER_LIMIT)
    }
}

/// Live sessions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// By number.
    pub sessions: Vec<SessionReport>,
    /// There may be more sessions, with larger numbers than the last of these.
    pub more: bool,
    /// All threads have answered.
    pub complete: bool,
}

impl Answer {
    pub(super) fn new(
        question: Question,
        mut sessions: Vec<SessionReport>,
        complete: bool,
    ) -> Self {
        sessions.sort_by_key(|session| session.id);
        let more = sessions.len() >= question.bound();
        sessions.truncate(question.bound());
        Self {
            sessions,
            more,
            complete,
        }
    }
}

/// A question, and where the answer goes.
#[derive(Debug)]
pub struct Inquiry {
    pub question: Question,
    pub reply: Sender<Vec<SessionReport>>,
}

/// What waits to be answered by one thread.
#[derive(Debug, Default)]
pub struct Mailbox {
    is_waiting: AtomicBool,
    waiting: Mutex<Vec<Inquiry>>,
}

impl Mailbox {
    /// Puts a question; `false` where too many wait already.
    pub fn put(&self, question: Question, reply: Sender<Vec<SessionReport>>) -> bool {
        let mut waiting = self.lock();
        if waiting.len() >= WAITING_LIMIT {
            return false;
        }
        waiting.push(Inquiry { question, reply });
        self.is_waiting.store(true, Ordering::Release);
        true
    }

    /// Takes what waits; costs one load where nothing does.
    pub fn take(&self) -> Vec<Inquiry> {
        if !self.is_waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut waiting = self.lock();
        self.is_waiting.store(false, Ordering::Release);
        std::mem::take(&mut *waiting)
    }

    /// Nothing here panics while it holds the lock, so the content is whole in any case.
    fn lock(&self) -> MutexGuard<'_, Vec<Inquiry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
