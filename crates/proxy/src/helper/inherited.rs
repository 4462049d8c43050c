//! What this program has from the former program of this process (an upgrade).

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use midspan_linux::{execution, signals};
use midspan_relay::{HandoverError, handover_pair};
use midspan_service::message;
use midspan_units::TimeSpan;
use rustix::event::{PollFd, PollFlags};
use tracing::{info, warn};

use super::former_relays::FormerRelays;
use super::inheritance::Inheritance;
use super::relay_process::{Extras, RelayProcess};
use super::supervision::{END_MARGIN, wait};
use super::upgrades::Upgrades;
use crate::Error;
use crate::control::{FromRelay, ToRelay};

/// What this program has inherited.
pub(super) struct Inherited {
    /// The state.
    pub state: Inheritance,
    /// The former program.
    program: OwnedFd,
    /// The connection to the relay.
    pub relay: OwnedFd,
    /// The connections to relays of former programs.
    pub former: Vec<OwnedFd>,
    /// The control socket.
    pub control: Option<OwnedFd>,
    /// The socket of the admin listener.
    pub admin: Option<OwnedFd>,
    /// Whether the new relay has the sessions, so that the former program cannot continue.
    pub is_committed: bool,
}

impl Inherited {
    /// What this program has inherited; `None` if it is the first one of this process.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn take() -> Result<Option<Self>, Error> {
        let failed = Error::system("take over from the former program");
        let descriptors = execution::inherited();
        let result = descriptors.and_then(|descriptors| match descriptors.is_empty() {
            true => Ok(None),
            false => Self::of(descriptors).map(Some),
        });
        result.map_err(failed)
    }

    fn of(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let count = descriptors.len();
        let mut descriptors = descriptors.into_iter();
        let missing = || io::Error::new(ErrorKind::InvalidData, "a descriptor is missing");
        let mut next = || descriptors.next().ok_or_else(missing);
        let state = Inheritance::read(File::from(next()?))?;
        if state.descriptors() != count {
            return Err(missing());
        }
        Ok(Self {
            program: next()?,
            relay: next()?,
            former: (0..state.former.len())
                .map(|_| next())
                .collect::<io::Result<_>>()?,
            control: state.control.is_some().then(&mut next).transpose()?,
            admin: state.admin.is_some().then(&mut next).transpose()?,
            is_committed: false,
            state,
        })
    }

    /// Whether this program is the former one, which continues because the new one has failed.
    pub const fn is_return(&self) -> bool {
        self.state.failure.is_some()
    }

    /// Starts the relay of this program by `start`, as the successor of the former program's relay.
    ///
    /// # Errors
    /// Those of `start`, or the former relay has ended.
    pub fn start_successor(
        &self,
        extras: Extras,
        start: impl FnOnce(Extras) -> Result<RelayProcess, Error>,
    ) -> Result<RelayProcess, Error> {
        let pair = handover_pair();
        let (here, there) = pair.map_err(Error::system("connect the two relays"))?;
        message::send(&self.relay, &ToRelay::Greet, &[here.as_fd()])?;
        start(Extras {
            predecessor: Some(there),
            ..extras
        })
    }

    /// When the relay of this program is ready: the relays of former programs, which drain, and the result of the
    /// upgrade.
    ///
    /// # Errors
    /// There is no such process, or no descriptor is left.
    pub fn settle(&mut self, upgrade_timeout: TimeSpan) -> Result<(FormerRelays, Upgrades), Error> {
        let connections = std::mem::take(&mut self.former);
        let mut former = FormerRelays::adopt(&self.state.former, connections)?;
        if !self.is_return() {
            self.is_committed = true;
            let connection = self.relay.try_clone();
            let connection = connection.map_err(Error::system("duplicate a descriptor"))?;
            let mut relay = RelayProcess::adopt(self.state.relay, connection, None)?;
            // The relay of this program has the listeners, so a fault of the former one does not end the upgrade.
            match wait_until_handed_over(&mut relay) {
                Ok(sessions) => info!(
                    sessions,
                    "upgrade: the relay of this program has the sessions"
                ),
                Err(error) => warn!("upgrade: the former relay may still have sessions: {error}"),
            }
            former.add(relay, Duration::from(upgrade_timeout) + END_MARGIN);
        }
        Ok((former, Upgrades::of(&self.state)))
    }

    /// Executes the former program, which continues with its relay. Returns only if that is not possible.
    pub fn return_to_former(&mut self, reason: &Error) -> Error {
        let mut state = self.state.clone();
        state.failure = Some(reason.to_string());
        let program = self.program.as_fd();
        let former = self.former.iter().map(AsFd::as_fd);
        let sockets = [&self.control, &self.admin].map(|socket| socket.as_ref().map(AsFd::as_fd));
        let relay = self.relay.as_fd();
        let error = state.execute(program, (program, relay), former, sockets, || {
            match reason {
                // This program has taken the signal to end, and the former program is the one to act on it.
                Error::Interrupted => signals::end(),
                _ => Ok(()),
            }
        });
        Error::system("execute the former program again")(error)
    }
}

/// How long the former relay may take to report that it has handed its sessions over, when the new one has them.
const REPORT_LIMIT: Duration = Duration::from_secs(5);

/// Returns how many sessions the relay has handed over.
fn wait_until_handed_over(relay: &mut RelayProcess) -> Result<u64, Error> {
    let until = Instant::now() + REPORT_LIMIT;
    loop {
        let is_readable = {
            let control = relay.control();
            let mut descriptors = [PollFd::new(&control, PollFlags::IN)];
            wait(&mut descriptors, Some(until))?.contains(&true)
        };
        match is_readable.then(|| relay.receive()).transpose()? {
            Some(Some(FromRelay::HandedOver { sessions })) => return Ok(sessions),
            Some(Some(FromRelay::NotHandedOver { reason })) => {
                return Err(Error::Handover(HandoverError::Refused(reason)));
            }
            Some(None) => return Err(Error::Handover(HandoverError::Ended)),
            Some(Some(_)) | None if Instant::now() < until => {}
            Some(Some(_)) | None => return Err(Error::Handover(HandoverError::Late)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::inheritance::tests::inheritance;
    use super::*;

    #[test]
    fn too_few_or_too_many_descriptors_are_refused() {
        let of = |count: usize| {
            let state = OwnedFd::from(inheritance().write().unwrap());
            let others = (1..count).map(|_| File::open("/dev/null").unwrap().into());
            Inherited::of(std::iter::once(state).chain(others).collect())
        };
        assert!(of(6).is_ok());
        assert!(of(5).is_err() && of(7).is_err() && of(1).is_err());
    }
}
