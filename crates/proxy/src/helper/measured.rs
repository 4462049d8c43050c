//! What the helper measures for the metrics: its own process, and packets that pass untouched.

use std::time::{Duration, Instant};

use midspan_gateway::interception::{InterceptionNumbers, Quic};
use midspan_gateway::takeover;
use midspan_linux::process_use::ProcessFiles;

use crate::health::OwnUse;

/// How often the values are read; with each change, the relay gets a message.
const INTERVAL: Duration = Duration::from_secs(1);

/// The values, as they were last read.
pub(super) struct Measured {
    files: Option<ProcessFiles>,
    next: Instant,
    pub process: Option<OwnUse>,
    pub quic: Option<Quic>,
    pub takeover_resets: u64,
}

impl Measured {
    /// Nothing is read yet.
    pub fn new() -> Self {
        Self {
            files: ProcessFiles::open().ok(),
            next: Instant::now(),
            process: None,
            quic: None,
            takeover_resets: 0,
        }
    }

    /// Reads the values if they are old. `numbers` are those of the rules of transparent
    /// listeners, if there are any.
    pub fn look(&mut self, numbers: Option<&InterceptionNumbers>, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        self.process = self.files.as_ref().and_then(OwnUse::of);
        // While another program has removed the counters, the last values remain.
        let resets = numbers.and_then(|numbers| takeover::resets(numbers).ok());
        self.takeover_resets = resets.unwrap_or(self.takeover_resets);
        self.quic = numbers.and_then(|numbers| Quic::read(numbers).ok().or(self.quic));
    }
}
