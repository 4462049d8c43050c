//! Relays of former programs: they have handed their sessions over, and drain the rest.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use super::inheritance::FormerRelay;
use super::relay_process::RelayProcess;
use crate::Error;
use crate::control::FromRelay;

/// The relays, each with the time at which it is ended.
#[derive(Default)]
pub(super) struct FormerRelays(Vec<(RelayProcess, Instant)>);

impl FormerRelays {
    /// The relays that this program has inherited.
    ///
    /// # Errors
    /// There is no such process.
    pub fn adopt(list: &[FormerRelay], connections: Vec<OwnedFd>) -> Result<Self, Error> {
        let now = Instant::now();
        let adopted = list.iter().zip(connections).map(|(former, connection)| {
            let relay = RelayProcess::adopt(former.id, connection, None)?;
            // A time that no clock has is over at once.
            Ok((relay, now.checked_add(former.left).unwrap_or(now)))
        });
        adopted.collect::<Result<_, _>>().map(Self)
    }

    /// The relay has handed its sessions over, and may take this long to end.
    pub fn add(&mut self, relay: RelayProcess, limit: Duration) {
        self.0.push((relay, Instant::now() + limit));
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// For the next program.
    pub fn list(&self, now: Instant) -> Vec<FormerRelay> {
        let former = |(relay, until): &(RelayProcess, Instant)| FormerRelay {
            id: relay.id(),
            left: until.saturating_duration_since(now),
        };
        self.0.iter().map(former).collect()
    }

    /// The connections to them, for the next program.
    pub fn connections(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(relay, _)| relay.control())
    }

    /// When to call [`handle`](Self::handle) at the latest.
    pub fn next(&self) -> Option<Instant> {
        self.0.iter().map(|(_, until)| *until).min()
    }

    /// Handles messages of relays, and relays that have ended or are late.
    pub fn handle(&mut self, now: Instant) {
        self.0.retain_mut(|(relay, until)| {
            let ended = match next_message(relay) {
                Some(Ok(Some(FromRelay::Stuck(_)))) => relay.kill().is_ok(),
                Some(Ok(Some(_))) | None if now < *until => false,
                Some(Ok(Some(_))) | None => {
                    warn!("the relay of a former program did not end in time and was ended");
                    relay.kill().is_ok()
                }
                Some(Ok(None) | Err(_)) => {
                    info!("the relay of a former program has ended");
                    true
                }
            };
            // Dropping it waits for its end.
            !ended
        });
    }
}

/// The next message, if there is one.
fn next_message(relay: &mut RelayProcess) -> Option<Result<Option<FromRelay>, Error>> {
    let control = relay.control();
    let mut descriptors = [PollFd::from_borrowed_fd(control, PollFlags::IN)];
    match poll(&mut descriptors, Some(&Timespec::default())) {
        Ok(ready) if ready > 0 => Some(relay.receive()),
        _ => None,
    }
}
