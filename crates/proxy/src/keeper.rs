//! The relay's side of keeping verdicts about clients: the relay may not open files, so the helper
//! opens the file, and replaces it by the content that the relay sends in memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use midspan_relay::remembered::{FILE_LIMIT, Remembered};
use rustix::fs::{MemfdFlags, memfd_create};
use tracing::{debug, info, warn};

use midspan_service::message;

use crate::Error;
use crate::control::{FromRelay, KeptVerdicts};

/// After a crash, at most the verdicts of this time are lost.
const INTERVAL: Duration = Duration::from_secs(60);

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
    };
    (verdicts, keeper)
}

fn recall(verdicts: &Remembered, file: OwnedFd) {
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_LIMIT).unwrap_or(u64::MAX);
    if let Err(error) = File::from(file).take(limit).read_to_end(&mut bytes) {
        return warn!("what clients were found to take cannot be read: {error}");
    }
    let recalled = verdicts.recall(&bytes);
    info!(
        clients = recalled.clients,
        lines_ignored = recalled.ignored,
        "what clients were found to take is known from before"
    );
}

impl Keeper {
    /// Sends new verdicts, if this is due.
    pub fn send_new(&mut self, helper: &OwnedFd, verdicts: &Remembered) -> Result<(), Error> {
        if !self.is_kept || Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + INTERVAL;
        self.hand_over(helper, verdicts)
    }

    /// Sends new verdicts now.
    pub fn send_at_once(&mut self, helper: &OwnedFd, verdicts: &Remembered) -> Result<(), Error> {
        match self.is_kept {
            true => self.hand_over(helper, verdicts),
            false => Ok(()),
        }
    }

    /// Sends new verdicts at the end; the helper may have ended.
    pub fn send_last(&mut self, helper: &OwnedFd, verdicts: &Remembered) {
        if self.is_kept
            && let Err(error) = self.hand_over(helper, verdicts)
        {
            debug!("what clients were found to take is lost: {error}");
        }
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
    let mut file = File::from(memfd_create("midspan-verdicts", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}
