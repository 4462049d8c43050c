//! Queries to the relay's threads for their sessions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::mpsc::{Sender, UnboundedSender};

use super::survey::Part;
use super::{Cost, SessionReport};

/// Queries that may wait for one thread.
const WAITING_LIMIT: usize = 8;

/// Most sessions in one answer: reading one takes its thread about 5 µs.
pub const ANSWER_LIMIT: usize = 1000;

/// The live sessions of a query: the first ones after a number, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Only sessions with a larger number than this.
    pub after: u64,
    /// Most sessions of the answer: 1 to 1000.
    pub limit: usize,
}

impl Question {
    /// The live session with this number, or otherwise the one with the next number.
    #[must_use]
    pub const fn one(id: u64) -> Self {
        Self {
            after: id.saturating_sub(1),
            limit: 1,
        }
    }

    /// The largest number of sessions in the answer.
    pub(crate) fn bound(self) -> usize {
        self.limit.clamp(1, ANSWER_LIMIT)
    }
}

/// Live sessions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The sessions, by number.
    pub sessions: Vec<SessionReport>,
    /// There may be more sessions, with larger numbers than the last of these.
    pub more: bool,
    /// All threads have answered.
    pub complete: bool,
    /// What the answer cost the threads.
    pub cost: AnswerCost,
}

/// The time that an answer took the relay's threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct AnswerCost {
    /// Slices between which data was moved.
    pub slices: u64,
    /// Time of all slices, all threads together.
    pub relay_seconds: f64,
    /// Time of the longest slice.
    pub longest_slice_seconds: f64,
}

impl From<Cost> for AnswerCost {
    fn from(cost: Cost) -> Self {
        Self {
            slices: cost.slices,
            relay_seconds: cost.time.as_secs_f64(),
            longest_slice_seconds: cost.longest.as_secs_f64(),
        }
    }
}

impl Answer {
    pub(super) fn new(
        question: Question,
        mut sessions: Vec<SessionReport>,
        cost: Cost,
        complete: bool,
    ) -> Self {
        sessions.sort_by_key(|session| session.id);
        let more = sessions.len() >= question.bound();
        sessions.truncate(question.bound());
        Self {
            sessions,
            more,
            complete,
            cost: cost.into(),
        }
    }
}

/// What a thread sends: its reports, and the time that they took.
pub type Listed = (Vec<SessionReport>, Cost);

/// A query, and the receiver of its answer.
#[derive(Debug)]
pub enum Inquiry {
    /// For some sessions.
    Sessions(Question, Sender<Listed>),
    /// For some figures of all sessions.
    Survey(UnboundedSender<Part>),
}

/// Queries that wait for one thread.
#[derive(Debug, Default)]
pub struct Mailbox {
    is_waiting: AtomicBool,
    waiting: Mutex<Vec<Inquiry>>,
}

impl Mailbox {
    /// Adds a query; returns `false` if too many wait already.
    pub fn put(&self, inquiry: Inquiry) -> bool {
        let mut waiting = self.lock();
        if waiting.len() >= WAITING_LIMIT {
            return false;
        }
        waiting.push(inquiry);
        self.is_waiting.store(true, Ordering::Release);
        true
    }

    /// Takes the waiting queries; costs one load if there are none.
    pub fn take(&self) -> Vec<Inquiry> {
        if !self.is_waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut waiting = self.lock();
        self.is_waiting.store(false, Ordering::Release);
        std::mem::take(&mut *waiting)
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn lock(&self) -> MutexGuard<'_, Vec<Inquiry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
