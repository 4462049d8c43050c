//! Supervises the relay, and handles signals, commands, routes and rules.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_gateway::initial_window::InitialWindows;
use midspan_gateway::interception::Accounting;
use midspan_units::TimeSpan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, info, warn};

use super::control_socket::{Commands, ControlPlace};
use super::drained::Drained;
use super::former_relays::FormerRelays;
use super::guard::{Guard, LOOK_PAUSE};
use super::listening::Open;
use super::measured::Measured;
use super::members::MembersWatch;
use super::memory::MemoryWatch;
use super::own_addresses::MachineWatch;
use super::raising::Raising;
use super::relay_process::RelayProcess;
use super::routes::RouteWatch;
use super::slots::Slots;
use super::state::KeptBypasses;
use super::upgrades::Upgrades;
use crate::Error;
use crate::configuration::Configuration;
use crate::control::FromRelay;
use crate::health::HelperState;
use crate::late::{LateThread, ThreadName};
use midspan_service::liveness::{Absence, Watch};
use midspan_service::logging::LogLevel;
use midspan_service::notify::Notifier;
use midspan_service::signals::Signals;

/// How long the relay may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The same while none are: longer than the time between two signs of life, so that an idle helper wakes for them only.
const LOOK_PAUSE_WITHOUT_RULES: Duration = Duration::from_millis(600);

/// How long the relay may take to carry out a reload.
const RELOAD_LIMIT: Duration = Duration::from_secs(5);

/// How long the helper waits for the relay's answer to a command. The helper does nothing else
/// meanwhile, so this is shorter than the time after which new connections pass a relay that does not
/// answer.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// How long the relay may take to end after the time of its sessions is over.
pub(super) const END_MARGIN: Duration = Duration::from_secs(5);

/// How long the relay may take to end after it has closed its connection.
const END_LIMIT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// A running proxy, as the helper supervises it.
pub(super) struct Supervisor {
    /// The configuration file.
    pub file: PathBuf,
    /// The log level, in place of the file's.
    pub log_level: Option<LogLevel>,
    /// The configuration in force.
    pub configuration: Configuration,
    pub relay: RelayProcess,
    pub signals: Signals,
    pub windows: Option<InitialWindows>,
    pub raising: Raising,
    pub guard: Option<Guard>,
    /// Signs of life of the relay.
    pub lives: u64,
    pub watch: Watch,
    /// Late threads of the relay, from its last message.
    pub late: Vec<LateThread>,
    /// The helper's state that was last sent to the relay.
    pub told: Option<HelperState>,
    pub slots: Slots,
    /// The addresses of the relay's listeners.
    pub open: Vec<Open>,
    /// Interfaces of transparent listeners, also of removed ones.
    pub interfaces: BTreeSet<String>,
    pub bypasses: Vec<IpNet>,
    /// Whether the last change of bypasses was answered with an error, because it is not in force yet.
    pub bypasses_late: bool,
    /// The file in which bypassed prefixes outlive this process.
    pub kept_bypasses: Option<KeptBypasses>,
    /// Why they are not kept.
    pub bypasses_not_kept: Option<String>,
    /// When routes were left alone last.
    pub left_alone_at: Option<Instant>,
    pub accounting: Accounting,
    pub control: Option<Commands>,
    /// Where the control socket is.
    pub control_place: Option<ControlPlace>,
    /// A duplicate of the admin listener's socket, for the next program.
    pub admin: Option<OwnedFd>,
    /// Arguments with which another program is tried.
    pub trial_arguments: Vec<String>,
    pub upgrades: Upgrades,
    /// The relays of former programs.
    pub former: FormerRelays,
    pub notifier: Notifier,
    pub ready_since: Instant,
    pub reloads: u64,
    /// Commands to the relay so far that it answers.
    pub orders: u64,
    pub reloads_failed: u64,
    pub reload_error: Option<String>,
    pub routes: RouteWatch,
    pub machine: MachineWatch,
    /// Parts of the configuration that this machine does not support.
    pub left_out: Vec<String>,
    pub memory: MemoryWatch,
    pub members: MembersWatch,
    pub measured: Measured,
    /// When the configuration in force was read, in seconds since 1970.
    pub configured_at: u64,
    /// When the proxy begins to drain, if it has announced its end.
    pub lame_duck_until: Option<Instant>,
    pub drain_until: Option<Instant>,
    /// Listeners that an operator drains.
    pub drained: Drained,
    /// The file's configuration, with the drained listeners.
    pub whole: Configuration,
}

/// The events to wait for.
#[derive(Debug, Clone, Copy, Default)]
struct Events {
    end: bool,
    reload: bool,
    relay: bool,
    relay_ended: bool,
    machine: bool,
    routes: bool,
    rules: bool,
    trial_ended: bool,
}

/// Waits for the first of these descriptors, at most until `until`; returns which are ready.
pub(super) fn wait(
    descriptors: &mut [PollFd<'_>],
    until: Option<Instant>,
) -> Result<Vec<bool>, Error> {
    let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = match timeout.map(Timespec::try_from) {
        Some(Ok(timeout)) => Some(timeout),
        _ => None,
    };
    match poll(descriptors, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(Error::system("wait for events")(error.into())),
    }
    let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
    Ok(descriptors.iter().map(is_ready).collect())
}

/// Returns when the relay accepts connections.
pub(super) fn wait_until_ready(relay: &mut RelayProcess, signals: &Signals) -> Result<(), Error> {
    let limit = Instant::now() + START_LIMIT;
    loop {
        let ready = {
            let (end, control, ended) = (signals.end(), relay.control(), relay.end());
            let mut descriptors =
                [&end, &control, &ended].map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
            wait(&mut descriptors, Some(limit))?
        };
        let [end, control, ended] = ready[..] else {
            continue;
        };
        if end && signals.take_end() {
            return Err(Error::Interrupted);
        }
        if control && relay.receive()? == Some(FromRelay::Ready) {
            return Ok(());
        }
        if control || ended {
            return Err(Error::RelayNotStarted(relay.finish(END_LIMIT)?));
        }
        if Instant::now() >= limit {
            return Err(Error::RelaySilent);
        }
    }
}

impl Supervisor {
    /// Returns when the relay has ended; without an error only after a command to end.
    pub fn supervise(mut self) -> Result<(), Error> {
        loop {
            let events = self.wait()?;
            let now = Instant::now();
            if events.relay_ended {
                return self.ended();
            }
            if events.relay {
                match self.relay.receive()? {
                    Some(FromRelay::Alive { gate_moves, late }) => {
                        self.handle_life(gate_moves, late);
                    }
                    Some(FromRelay::Verdicts | FromRelay::Paths) => {}
                    Some(FromRelay::LeaveAlone(routes)) => self.leave_alone(&routes, now),
                    // No function waits for these answers any more.
                    Some(FromRelay::Kicked { .. } | FromRelay::Forgotten { .. }) => {}
                    Some(FromRelay::Stuck(thread)) => return self.end_for(thread),
                    Some(FromRelay::Renew(thread)) => self.upgrades.due = Some(thread),
                    // The new program has ended; the relay's sessions stayed.
                    Some(FromRelay::NotHandedOver { reason }) => {
                        debug!("the sessions were not handed over: {reason}");
                    }
                    Some(_) | None => return self.ended(),
                }
            }
            // The relay's messages so far have been handled.
            self.watch.look(now, self.lives);
            self.watch.set_pause(match self.guard {
                Some(_) => LOOK_PAUSE,
                None => LOOK_PAUSE_WITHOUT_RULES,
            });
            if let Some(guard) = &mut self.guard {
                guard.handle_time(now);
            }
            // A draining relay ends by itself, or at the end of its time.
            if self.watch.must_end() && !self.is_draining() {
                self.end_relay()?;
                warn!("the relay gave no sign of life and was ended");
                return Err(Error::RelayStill(self.watchdog_timeout()));
            }
            // The next program works on the rules.
            if let Some(guard) = &mut self.guard
                && self.upgrades.tried.is_none()
            {
                guard.handle_rules(events.rules, now)?;
            }
            if events.end && self.signals.take_end() {
                if self.is_draining() {
                    self.relay.kill()?;
                    warn!("a second signal: all sessions were ended");
                    return Ok(());
                }
                match self.is_lame_duck() {
                    true => self.drain(now)?,
                    false => self.begin_end(now)?,
                }
            }
            if self.is_lame_duck() && self.lame_duck_until.is_some_and(|until| now >= until) {
                self.drain(now)?;
            }
            // A relay that drains accepts nothing, and answers no change of its listeners.
            if !self.is_draining() {
                // The error has been logged.
                let _ = self.end_announcements(now);
            }
            if self.drain_until.is_some_and(|until| now >= until) {
                self.relay.kill()?;
                warn!("the relay did not end in time and was ended");
                return Ok(());
            }
            if let Some(windows) = &mut self.windows {
                self.routes.handle(windows, events.routes, now);
            }
            let (configuration, relay) = (&self.configuration, &self.relay);
            if (self.machine).handle(configuration, relay, events.machine, now)
                && let Some(guard) = &mut self.guard
            {
                guard.look_soon();
            }
            self.notifier.handle_time(now, self.watch.still());
            self.look_at_memory(now)?;
            if let Some(control) = &mut self.control {
                control.remove_former(now);
            }
            if events.reload && self.signals.take_reload() {
                if self.is_draining() || self.is_lame_duck() {
                    warn!("no reload: the proxy is about to end");
                } else {
                    // The error has been logged.
                    let _ = self.reload_and_say();
                }
            }
            self.follow_members(now);
            if !self.is_draining() {
                self.relay.hand_over_paths(now);
            }
            self.former.handle(now);
            self.serve_commands();
            self.send_to_relay();
            self.begin_renewal()?;
            self.handle_upgrade(events.trial_ended, now)?;
        }
    }

    const fn watchdog_timeout(&self) -> TimeSpan {
        self.configuration.interception.watchdog_timeout
    }

    /// Ends the relay. From now on connections pass untouched, even if the end takes long.
    fn end_relay(&mut self) -> Result<(), Error> {
        if let Some(guard) = &mut self.guard {
            guard.stop_taking();
        }
        self.relay.kill().map(|_| ())
    }

    /// A thread of the relay is stuck: ends the relay.
    pub(super) fn end_for(&mut self, thread: ThreadName) -> Result<(), Error> {
        self.end_relay()?;
        Err(Error::ThreadStuck {
            thread: thread.to_string(),
            limit: self.watchdog_timeout(),
        })
    }

    /// Whether the proxy is about to end.
    pub const fn is_draining(&self) -> bool {
        self.drain_until.is_some()
    }

    fn wait(&self) -> Result<Events, Error> {
        let next = [
            Some(self.watch.next()),
            self.drain_until,
            self.lame_duck_until.filter(|_| self.is_lame_duck()),
            self.drained.next().filter(|_| !self.is_draining()),
            self.windows.as_ref().map(|_| self.routes.next()),
            self.guard.as_ref().map(Guard::next),
            self.notifier.next(),
            Some(self.machine.next()),
            Some(self.memory.next()),
            Some(self.members.next()),
            self.former.next(),
            self.upgrades.next(),
        ];
        let until = next.into_iter().flatten().min();
        let (end, reload) = (self.signals.end(), self.signals.reload());
        let (relay, relay_end) = (self.relay.control(), self.relay.end());
        let windows = self.windows.as_ref();
        let routes = windows.and_then(|windows| self.routes.changes(windows));
        let waits_for_routes = routes.is_some();
        let rules = self.guard.as_ref().map(Guard::changes).unwrap_or_default();
        let count_of_rules = rules.len();
        let commands = self.control.as_ref().map(Commands::descriptor);
        let machine = self.machine.changes();
        let trial = self.upgrades.descriptor();
        let is_trying = trial.is_some();
        let sources: Vec<_> = [end, reload, relay, relay_end, machine]
            .into_iter()
            .chain(routes)
            .chain(rules)
            .chain(trial)
            .chain(commands)
            .chain(self.former.connections())
            .collect();
        let mut descriptors: Vec<PollFd<'_>> = sources
            .iter()
            .map(|descriptor| PollFd::new(descriptor, PollFlags::IN))
            .collect();
        let ready = wait(&mut descriptors, until)?;
        let mut ready = ready.into_iter();
        let mut take = |count: usize| ready.by_ref().take(count).fold(false, |any, is| any | is);
        Ok(Events {
            end: take(1),
            reload: take(1),
            relay: take(1),
            relay_ended: take(1),
            machine: take(1),
            routes: take(usize::from(waits_for_routes)),
            rules: take(count_of_rules),
            trial_ended: take(usize::from(is_trying)),
        })
    }

    fn serve_commands(&mut self) {
        // Taken out meanwhile, because commands may change all other parts.
        if let Some(mut control) = self.control.take() {
            control.serve(|request| self.answer(request));
            self.control = Some(control);
        }
    }

    /// Sends new limits to the relay if the machine permits more or less memory than before.
    fn look_at_memory(&mut self, now: Instant) -> Result<(), Error> {
        let relay = &mut self.configuration.relay;
        if let Some(limits) = self.memory.look(relay, now)
            && self.drain_until.is_none()
        {
            relay.limits = limits;
            self.relay.change_limits(limits)?;
        }
        Ok(())
    }

    fn handle_life(&mut self, gate_moves: bool, late: Vec<LateThread>) {
        self.lives = self.lives.wrapping_add(1);
        self.late = late;
        if let Some(guard) = &mut self.guard
            && gate_moves
        {
            guard.handle_life();
        }
    }

    /// Sends the helper's state to the relay, if it has changed.
    pub fn send_to_relay(&mut self) {
        // The relay shows it on the admin listener and to clients of the control socket.
        if self.configuration.admin.is_none() && self.control.is_none() {
            return;
        }
        let numbers = &self.configuration.interception.numbers;
        let numbers = self.guard.as_ref().map(|_| numbers);
        self.measured.look(numbers, Instant::now());
        let state = self.state();
        if self.told.as_ref() != Some(&state) && self.relay.tell(state.clone()) {
            self.told = Some(state);
        }
    }

    pub(super) fn drain(&mut self, now: Instant) -> Result<(), Error> {
        let drain_timeout = self.configuration.relay.drain_timeout;
        if let Some(guard) = &mut self.guard {
            guard.stop_taking();
        }
        self.relay.drain()?;
        info!(
            %drain_timeout,
            "a signal: no new connections, waiting for the sessions to end"
        );
        let limit = Duration::from(drain_timeout) + END_MARGIN;
        self.drain_until = now.checked_add(limit);
        let status = "waiting for the sessions to end";
        self.notifier.stopping(status, self.drain_until);
        Ok(())
    }

    fn ended(&mut self) -> Result<(), Error> {
        let status = self.relay.finish(END_LIMIT)?;
        if self.is_draining() && status.success() {
            self.wait_for_former()?;
            info!("all sessions have ended");
            return Ok(());
        }
        Err(Error::RelayEnded(status))
    }

    /// Relays of former programs drain as well, and their sessions have the same time. A second signal to end ends the
    /// waiting, and with it their sessions.
    fn wait_for_former(&mut self) -> Result<(), Error> {
        while self.former.count() > 0
            && let Some(until) = self.drain_until
            && Instant::now() < until
        {
            let until = self.former.next().map_or(until, |next| next.min(until));
            {
                let end = [self.signals.end()];
                let mut descriptors: Vec<_> = (end.into_iter().chain(self.former.connections()))
                    .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                    .collect();
                wait(&mut descriptors, Some(until))?;
            }
            if self.signals.take_end() {
                warn!("a second signal: all sessions were ended");
                break;
            }
            self.former.handle(Instant::now());
        }
        Ok(())
    }

    /// The relay's answer to a command; `None` if this takes too long. Other messages are handled
    /// meanwhile. `answer` returns the answer if a message is the expected one.
    ///
    /// # Errors
    /// The relay has ended, which the caller's next event shows.
    pub fn wait_for<T>(
        &mut self,
        answer: impl Fn(&FromRelay) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let limit = Instant::now() + ANSWER_LIMIT;
        loop {
            let is_readable = {
                let control = self.relay.control();
                let mut descriptors = [PollFd::new(&control, PollFlags::IN)];
                wait(&mut descriptors, Some(limit))?.contains(&true)
            };
            let now = Instant::now();
            if !is_readable {
                if now >= limit {
                    return Ok(None);
                }
                continue;
            }
            let message = self.relay.receive()?;
            if let Some(answer) = message.as_ref().and_then(&answer) {
                return Ok(Some(answer));
            }
            match message {
                Some(FromRelay::Alive { gate_moves, late }) => {
                    self.handle_life(gate_moves, late);
                }
                Some(FromRelay::LeaveAlone(routes)) => self.leave_alone(&routes, now),
                Some(FromRelay::Renew(thread)) => self.upgrades.due = Some(thread),
                Some(
                    FromRelay::Verdicts
                    | FromRelay::Paths
                    | FromRelay::NotHandedOver { .. }
                    | FromRelay::Kicked { .. }
                    | FromRelay::Forgotten { .. },
                ) => {}
                Some(FromRelay::Stuck(thread)) => {
                    return Err(self.end_for(thread).err().unwrap_or(Error::ThreadEnded));
                }
                Some(_) | None => return Err(Error::RelayEnded(self.relay.kill()?)),
            }
        }
    }

    /// Whether the relay has carried out a reload.
    ///
    /// # Errors
    /// The relay has ended, or does not answer; then it is ended, which the caller's next event
    /// shows.
    pub fn wait_for_reload(&mut self) -> Result<bool, Error> {
        let now = Instant::now();
        let mut watch = Watch::of_beating(now, LOOK_PAUSE, RELOAD_LIMIT, Absence::Restarts);
        loop {
            let ready = {
                let (control, end) = (self.relay.control(), self.relay.end());
                let mut descriptors =
                    [&control, &end].map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
                wait(&mut descriptors, Some(watch.next()))?
            };
            // The awaited answer counts as a turn.
            watch.look(Instant::now(), 0);
            if ready.first() == Some(&true) {
                match self.relay.receive()? {
                    Some(FromRelay::Alive { gate_moves, late }) => {
                        self.handle_life(gate_moves, late);
                    }
                    Some(FromRelay::Stuck(thread)) => {
                        return Err(self.end_for(thread).err().unwrap_or(Error::ThreadEnded));
                    }
                    Some(FromRelay::Renew(thread)) => self.upgrades.due = Some(thread),
                    Some(FromRelay::Verdicts | FromRelay::Paths) => {}
                    Some(FromRelay::Reloaded) => return Ok(true),
                    Some(FromRelay::NotReloaded) => return Ok(false),
                    // The relay will report these routes again.
                    Some(FromRelay::LeaveAlone(_)) => {}
                    Some(
                        FromRelay::Kicked { .. }
                        | FromRelay::Forgotten { .. }
                        | FromRelay::NotHandedOver { .. },
                    ) => {}
                    Some(FromRelay::Ready | FromRelay::HandedOver { .. }) | None => {
                        return Err(Error::RelayEnded(self.relay.kill()?));
                    }
                }
            } else if ready.get(1) == Some(&true) {
                return Err(Error::RelayEnded(self.relay.kill()?));
            }
            if watch.must_end() {
                // It is unknown which listeners the relay has.
                self.end_relay()?;
                return Err(Error::RelayStill(RELOAD_LIMIT.into()));
            }
        }
    }
}
