//! The upgrades of this process: the one that has begun, and the result of the last one.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use tracing::error;

use super::inheritance::Inheritance;
use super::program_trial::Trial;
use crate::command::{UpgradeState, UpgradeStatus};
use crate::late::ThreadName;

/// A program that can take over.
pub(super) struct Tried {
    /// The program.
    pub program: File,
    /// Until when the command is answered.
    pub answered: Instant,
    /// Until when it waits for the end of work on the rules.
    pub until: Instant,
}

/// Upgrades of this process.
#[derive(Default)]
pub(super) struct Upgrades {
    /// The new program, while it is tried.
    pub trial: Option<Trial>,
    /// The new program, when its trial has ended well.
    pub tried: Option<Tried>,
    /// The last upgrade.
    pub last: Option<UpgradeStatus>,
    /// A new relay of this program is to take over, because this thread was stuck.
    pub due: Option<ThreadName>,
    /// The upgrade is for this thread: if it fails, the relay ends.
    pub renews: Option<ThreadName>,
}

impl Upgrades {
    /// After an upgrade, or after one that failed in the new program.
    pub fn of(inheritance: &Inheritance) -> Self {
        let error = inheritance.failure.clone();
        Self {
            trial: None,
            tried: None,
            due: None,
            renews: None,
            last: Some(UpgradeStatus {
                number: inheritance.upgrade,
                state: match error {
                    None => UpgradeState::Done,
                    Some(_) => UpgradeState::Failed,
                },
                program: inheritance.program.display().to_string(),
                former_version: inheritance.version.clone(),
                error,
            }),
        }
    }

    /// Readable when the trial has ended.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.trial.as_ref().map(Trial::end)
    }

    /// Whether an upgrade has begun.
    pub const fn are_under_way(&self) -> bool {
        self.trial.is_some() || self.tried.is_some()
    }

    /// When the trial is to be ended, or the upgrade.
    pub fn next(&self) -> Option<Instant> {
        let tried = self.tried.as_ref().map(|tried| tried.until);
        self.trial.as_ref().map(Trial::until).or(tried)
    }

    /// The number of the last upgrade.
    pub fn number(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.number)
    }

    /// The former program continues.
    pub fn fail(&mut self, reason: &str) {
        error!("no upgrade, the present program continues: {reason}");
        if let Some(last) = &mut self.last {
            last.state = UpgradeState::Failed;
            last.error = Some(reason.to_owned());
        }
    }
}
