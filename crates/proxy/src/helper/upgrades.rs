//! The upgrades of this process: the one that has begun, and the result of the last one.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use tracing::error;

use super::inheritance::Inheritance;
use super::program_trial::Trial;
use crate::command::{UpgradeState, UpgradeStatus};
use crate::late::ThreadName;

/// Upgrades of this process.
#[derive(Default)]
pub(super) struct Upgrades {
    /// The new program, while it is tried.
    pub trial: Option<Trial>,
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

    /// When the trial is to be ended.
    pub fn next(&self) -> Option<Instant> {
        self.trial.as_ref().map(Trial::until)
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
