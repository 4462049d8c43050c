//! The relay's side of keeping what clients were found to take: the relay may open no file, so the
//! helper opens it, and puts in its place what the relay hands over in memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use midspan_relay::remembered::{FILE_LIMIT, Remembered};
use rustix::fs::{MemfdFlags, memfd_create};
use tracing::{debug, info, warn};

use crate::control::{self, ControlError, FromRelay, KeptVerdicts};

/// How much of what was found out a crash may cost.
const INTERVAL: Duration = Duration::from_secs(60);

/// Where verdicts are kept, and the file of an earlier run.
pub(crate) struct Saved {
    pub place: KeptVerdicts,
    pub file: Option<OwnedFd>,
}

/// Hands what is new over from time to time.
pub(crate) struct Keeper {
    is_kept: bool,
    /// What has been handed over.
    revision: u64,
    next: Instant,
}

/// What is known at the start, and who keeps it.
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
    /// Hands over what is new, if it is time.
    pub fn say(&mut self, helper: &OwnedFd, verdicts: &Remembered) -> Result<(), ControlError> {
        if !self.is_kept || Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + INTERVAL;
        self.hand_over(helper, verdicts)
    }

    /// The same at the end; there may be no helper any more.
    pub fn say_last(&mut self, helper: &OwnedFd, verdicts: &Remembered) {
        if self.is_kept
            && let Err(error) = self.hand_over(helper, verdicts)
        {
            debug!("what clients were found to take is lost: {error}");
        }
    }

    fn hand_over(&mut self, helper: &OwnedFd, verdicts: &Remembered) -> Result<(), ControlError> {
        let revision = verdicts.revision();
        if revision == self.revision {
            return Ok(());
        }
        match in_memory(verdicts.text().as_bytes()) {
            Ok(file) => {
                control::send(helper, &FromRelay::Verdicts, &[file.as_fd()])?;
                self.revision = revision;
            }
            // Later, perhaps.
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
