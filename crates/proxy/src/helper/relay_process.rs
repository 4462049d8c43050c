//! The relay process as the helper uses it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_relay::access::Network;
use midspan_relay::kick::Target;
use midspan_relay::machine::Machine;
use midspan_relay::seeded_faults;
use midspan_relay::{OpenListener, RelayLimits};
use midspan_service::child::ChildProcess;
use midspan_service::message;
use midspan_service::user::User;
use midspan_units::TimeSpan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::debug;

use super::fragmenting::Fragmenting;
use super::state::{Kept, State};
use crate::Error;
use crate::configuration::Configuration;
use crate::control::{AdminMessage, FromRelay, GateAndSockets, KeptVerdicts, ToRelay};
use crate::health::HelperState;

/// The listeners of the relay.
pub(super) struct Listeners {
    /// The listeners; without sockets if the relay already has them.
    pub relay: Vec<OpenListener>,
    /// The gate if a listener is transparent; with raw sockets for a new gate.
    pub gate: Option<GateAndSockets>,
}

/// The parts of a relay apart from its listeners.
pub(super) struct Extras {
    /// The socket of the admin listener.
    pub admin: Option<OwnedFd>,
    /// The socket over which the relay gets connections of the control socket's clients.
    pub pages: Option<OwnedFd>,
    /// The connection to the relay of the former program, which hands its sessions over.
    pub predecessor: Option<OwnedFd>,
    /// The state directory.
    pub state: Option<State>,
    /// The device and sockets of the fragmenter, and the mark of its packets.
    pub fragmenter: Option<(u32, Fragmenting)>,
    /// The addresses of the machine.
    pub machine: Machine,
}

/// The relay process and the connection to it. The process is killed when this value is dropped.
pub(super) struct RelayProcess {
    process: ChildProcess,
    state: Option<State>,
    /// When files of known paths are looked for.
    paths_at: Instant,
}

/// Time between two looks for a file of known paths that another gateway has sent.
const PATHS_INTERVAL: Duration = Duration::from_secs(1);

impl RelayProcess {
    /// Starts this program again as the relay, and sends its settings and sockets. From here on
    /// only the relay has the listening sockets.
    pub fn start(
        configuration: &Configuration,
        arguments: &[String],
        user: Option<User>,
        listeners: Listeners,
        extras: Extras,
    ) -> Result<Self, Error> {
        let Extras {
            admin,
            pages,
            predecessor,
            state,
            fragmenter,
            machine,
        } = extras;
        let name = "the relay process";
        let process = ChildProcess::start(name, arguments, user, seeded_faults::pass_on)?;
        let relay = Self {
            process,
            state,
            paths_at: Instant::now(),
        };
        let verdicts = relay.state.as_ref().and_then(State::verdicts);
        let settings = ToRelay::Settings {
            relay: configuration.relay.clone(),
            log: configuration.log,
            watchdog_timeout: configuration.interception.watchdog_timeout,
            listeners: listeners.relay.len(),
            admin: configuration.admin.as_ref().map(|admin| AdminMessage {
                names: admin.names.clone(),
            }),
            has_pages: pages.is_some(),
            has_predecessor: predecessor.is_some(),
            fragmenter: fragmenter.as_ref().map(|(mark, _)| *mark),
            verdicts: match (&relay.state, &verdicts) {
                (None, _) => KeptVerdicts::Nowhere,
                (Some(_), None) => KeptVerdicts::New,
                (Some(_), Some(_)) => KeptVerdicts::InFile,
            },
        };
        let cutting = fragmenter.iter().flat_map(|(_, of)| &of.descriptors);
        let descriptors = admin
            .iter()
            .chain(&pages)
            .chain(&predecessor)
            .chain(&verdicts)
            .chain(cutting)
            .map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.collect();
        message::send(relay.control(), &settings, &descriptors)?;
        relay.send_listeners(listeners)?;
        relay.send_machine(&machine)?;
        Ok(relay)
    }

    /// The relay of the former program of this process.
    pub fn adopt(id: u32, connection: OwnedFd, state: Option<State>) -> Result<Self, Error> {
        Ok(Self {
            process: ChildProcess::adopt("the relay process", id, connection)?,
            state,
            paths_at: Instant::now(),
        })
    }

    /// Makes the relay send what is kept, which [`receive`](Self::receive) writes down.
    pub fn save(&self) -> Result<(), Error> {
        Ok(message::send(self.control(), &ToRelay::Save, &[])?)
    }

    fn send_listeners(&self, listeners: Listeners) -> Result<(), Error> {
        let send = |message: ToRelay, sockets: Vec<OwnedFd>| {
            let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            message::send(self.control(), &message, &sockets)
        };
        for open in listeners.relay {
            send(ToRelay::Listener(Box::new(open.listener)), open.sockets)?;
        }
        if let Some((settings, sockets)) = listeners.gate {
            send(ToRelay::Gate(settings), sockets)?;
        }
        Ok(())
    }

    /// Changes the listeners; the relay answers [`FromRelay::Reloaded`] or
    /// [`FromRelay::NotReloaded`].
    pub fn reload(&self, new: &Configuration, listeners: Listeners) -> Result<(), Error> {
        let message = ToRelay::Reload {
            drain_timeout: new.relay.drain_timeout,
            upgrade_timeout: new.relay.upgrade_timeout,
            watchdog_timeout: new.interception.watchdog_timeout,
            limits: new.relay.limits,
            listeners: listeners.relay.len(),
        };
        message::send(self.control(), &message, &[])?;
        self.send_listeners(listeners)
    }

    /// Resets sessions; the relay answers with [`FromRelay::Kicked`] and the number.
    pub fn kick(&self, number: u64, target: Target) -> Result<(), Error> {
        let message = ToRelay::Kick { number, target };
        Ok(message::send(self.control(), &message, &[])?)
    }

    /// Makes the relay forget what it has learned about hosts with this prefix, or about all; the relay
    /// answers with [`FromRelay::Forgotten`] and the number.
    pub fn forget(&self, number: u64, prefix: Option<IpNet>) -> Result<(), Error> {
        let prefix = prefix.map(Network::from);
        let message = ToRelay::Forget { number, prefix };
        Ok(message::send(self.control(), &message, &[])?)
    }

    /// Whether verdicts about clients could not be written when they were last to be kept.
    pub fn is_state_failing(&self) -> bool {
        self.state.as_ref().is_some_and(State::is_failing)
    }

    /// Sends this machine's addresses.
    pub fn send_machine(&self, machine: &Machine) -> Result<(), Error> {
        let list = machine
            .to_memory()
            .map_err(Error::system("write down the machine's addresses"))?;
        Ok(message::send(
            self.control(),
            &ToRelay::Machine,
            &[list.as_fd()],
        )?)
    }

    /// Changes the limits.
    pub fn change_limits(&self, limits: RelayLimits) -> Result<(), Error> {
        Ok(message::send(
            self.control(),
            &ToRelay::Limits(limits),
            &[],
        )?)
    }

    /// Sends the helper's state, if the socket has room; returns whether it had.
    pub fn tell(&self, state: HelperState) -> bool {
        // If the relay has ended, it needs no state.
        message::try_send(self.control(), &ToRelay::State(state)).unwrap_or(true)
    }

    /// Closes the listening sockets at these addresses; connections that are being opened have
    /// `after`.
    pub fn retire(&self, addresses: Vec<SocketAddr>, after: TimeSpan) -> Result<(), Error> {
        let message = ToRelay::Retire { addresses, after };
        Ok(message::send(self.control(), &message, &[])?)
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Readable when there is a message of the relay, or the relay has ended.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.process.connection()
    }

    /// Readable when the process has ended.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.process.end()
    }

    /// The next message of the relay; `None` if it has ended. Verdicts to be kept are written at
    /// once.
    pub fn receive(&mut self) -> Result<Option<FromRelay>, Error> {
        let Some((message, descriptors)) = message::receive::<FromRelay>(self.control())? else {
            return Ok(None);
        };
        let kept = match message {
            FromRelay::Verdicts => Some(Kept::Verdicts),
            FromRelay::Paths => Some(Kept::Paths),
            _ => None,
        };
        if let Some(kept) = kept
            && let Some(state) = &mut self.state
            && let Some(content) = descriptors.into_iter().next()
        {
            state.keep(kept, content);
        }
        Ok(Some(message))
    }

    /// Sends the relay what is known of paths: from the file of an earlier run at first, and later from each file that
    /// another gateway's operator has put into the state directory. Such a file is removed.
    pub fn hand_over_paths(&mut self, now: Instant) {
        if now < self.paths_at {
            return;
        }
        let Some(state) = &mut self.state else {
            return;
        };
        self.paths_at = now + PATHS_INTERVAL;
        for file in state.new_paths() {
            let sent = message::send(self.process.connection(), &ToRelay::Paths, &[file.as_fd()]);
            // A relay that has ended is noticed elsewhere.
            if let Err(error) = sent {
                debug!("known paths are not handed over: {error}");
            }
        }
    }

    /// Handles the last messages of a relay that has ended.
    fn take_last_words(&mut self) {
        let now = Timespec::default();
        loop {
            let mut descriptors = [PollFd::from_borrowed_fd(self.control(), PollFlags::IN)];
            match poll(&mut descriptors, Some(&now)) {
                Ok(ready) if ready > 0 => {}
                _ => return,
            }
            if !matches!(self.receive(), Ok(Some(_))) {
                return;
            }
        }
    }

    /// Makes the relay accept no more, and end with its last session.
    pub fn drain(&self) -> Result<(), Error> {
        Ok(message::send(self.control(), &ToRelay::Drain, &[])?)
    }

    /// Waits for the end, which is about to follow; kills the process after `limit`.
    pub fn finish(&mut self, limit: Timespec) -> Result<ExitStatus, Error> {
        let status = self.process.finish(limit);
        self.take_last_words();
        Ok(status?)
    }

    /// Kills the process and with it all its sessions: their peers get a reset.
    pub fn kill(&mut self) -> Result<ExitStatus, Error> {
        Ok(self.process.kill()?)
    }
}
