//! The relay's side of keeping verdicts about clients, and what is known of paths: the relay may not open files, so the
//! helper opens the files, and replaces them by the content that the relay sends in memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use midspan_relay::remembered::{FILE_LIMIT, Remembered};
use midspan_relay::{Clock, Relay, SharedKnowledge, known_paths};
use rustix::fs::{MemfdFlags, memfd_create};
use tracing::{debug, info, warn};

use midspan_service::message;

use crate::Error;
use crate::control::{FromRelay, KeptVerdicts};

/// After a crash, at most the verdicts of this time are lost.
const INTERVAL: Duration = Duration::from_secs(60);
/// What is known of paths is longer, and halved every ten minutes in any case.
const PATHS_INTERVAL: Duration = Duration::from_secs(120);

/// Where verdicts are kept, and the file of an earlier run.
pub(crate) struct Saved {
    pub place: KeptVerdicts,
    pub file: Option<OwnedFd>,
}

/// Sends new verdicts from time to time.
pub(crate) struct Keeper {
    is_kept: bool,
    /// The revision that was sent last.
    revision: u64,
    next: Instant,
    next_paths: Instant,
    /// Whether the file of paths may have any.
    has_paths: bool,
}

/// The verdicts at the start, and the keeper for new ones.
pub(crate) fn start(saved: Saved) -> (Remembered, Keeper) {
    let verdicts = Remembered::default();
    if saved.place == KeptVerdicts::InFile
        && let Some(file) = saved.file
    {
        recall(&verdicts, file);
    }
    let keeper = Keeper {
        is_kept: saved.place != KeptVerdicts::Nowhere,
        revision: verdicts.revision(),
        next: Instant::now() + INTERVAL,
        next_paths: Instant::now() + PATHS_INTERVAL,
        has_paths: false,
    };
    (verdicts, keeper)
}

/// Takes a file of known paths, of an earlier run or of another gateway.
pub(crate) fn recall_paths(file: OwnedFd, relay: &Relay) {
    let bytes = match content(file) {
        Ok(bytes) => bytes,
        Err(error) => return warn!("a file of known paths cannot be read: {error}"),
    };
    let (knowledge, clock) = relay.learned();
    let recalled = known_paths::recall(&knowledge, clock.now(), &bytes);
    info!(
        peers = recalled.clients,
        lines_ignored = recalled.ignored,
        "paths are known from before, or from another gateway"
    );
}

fn content(file: OwnedFd) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_LIMIT).unwrap_or(u64::MAX);
    File::from(file).take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn recall(verdicts: &Remembered, file: OwnedFd) {
    let bytes = match content(file) {
        Ok(bytes) => bytes,
        Err(error) => return warn!("what clients were found to take cannot be read: {error}"),
    };
    let recalled = verdicts.recall(&bytes);
    info!(
        clients = recalled.clients,
        lines_ignored = recalled.ignored,
        "what clients were found to take is known from before"
    );
}

impl Keeper {
    /// Sends new verdicts and the known paths, if this is due.
    pub fn send_new(&mut self, helper: &OwnedFd, relay: &Relay) -> Result<(), Error> {
        let now = Instant::now();
        if !self.is_kept {
            return Ok(());
        }
        if now >= self.next_paths {
            self.next_paths = now + PATHS_INTERVAL;
            self.hand_over_paths(helper, &relay.learned())?;
        }
        if now < self.next {
            return Ok(());
        }
        self.next = now + INTERVAL;
        self.hand_over(helper, relay.verdicts())
    }

    /// Sends new verdicts and the known paths now, because some were forgotten.
    pub fn send_at_once(&mut self, helper: &OwnedFd, relay: &Relay) -> Result<(), Error> {
        if !self.is_kept {
            return Ok(());
        }
        self.hand_over(helper, relay.verdicts())?;
        // The file of an earlier run may have paths that this run has not yet read.
        self.has_paths = true;
        self.hand_over_paths(helper, &relay.learned())
    }

    /// Sends new verdicts and the known paths at the end; the helper may have ended.
    pub fn send_last(
        &mut self,
        helper: &OwnedFd,
        verdicts: &Remembered,
        learned: &(SharedKnowledge, Clock),
    ) {
        if !self.is_kept {
            return;
        }
        if let Err(error) = self.hand_over(helper, verdicts) {
            debug!("what clients were found to take is lost: {error}");
        }
        if let Err(error) = self.hand_over_paths(helper, learned) {
            debug!("what is known of paths is lost: {error}");
        }
    }

    fn hand_over_paths(
        &mut self,
        helper: &OwnedFd,
        (knowledge, clock): &(SharedKnowledge, Clock),
    ) -> Result<(), Error> {
        let (text, count) = known_paths::text(knowledge, clock.now());
        if count == 0 && !self.has_paths {
            return Ok(());
        }
        match in_memory(text.as_bytes()) {
            Ok(file) => {
                message::send(helper, &FromRelay::Paths, &[file.as_fd()])?;
                self.has_paths = count > 0;
            }
            // Tried again later.
            Err(error) => debug!("no memory for what is known of paths: {error}"),
        }
        Ok(())
    }

    fn hand_over(&mut self, helper: &OwnedFd, verdicts: &Remembered) -> Result<(), Error> {
        let revision = verdicts.revision();
        if revision == self.revision {
            return Ok(());
        }
        match in_memory(verdicts.text().as_bytes()) {
            Ok(file) => {
                message::send(helper, &FromRelay::Verdicts, &[file.as_fd()])?;
                self.revision = revision;
            }
            // Tried again later.
            Err(error) => debug!("no memory for what clients were found to take: {error}"),
        }
        Ok(())
    }
}

fn in_memory(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("midspan-state", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}
