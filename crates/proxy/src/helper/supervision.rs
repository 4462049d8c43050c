//! Watching over the relay, the signals and the routes.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use midspan_linux::initial_window::InitialWindows;
use midspan_linux::interception::Interception;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, info, warn};

use super::guard::Guard;
use super::relay_process::RelayProcess;
use super::signals::Signals;
use crate::Error;
use crate::configuration::Configuration;
use crate::control::FromRelay;

/// How long the relay may take to listen.
const START_LIMIT: Duration = Duration::from_secs(30);

/// What the relay may take to end itself after its sessions had their time.
const END_MARGIN: Duration = Duration::from_secs(5);

/// What it may take once it has closed its connection.
const END_LIMIT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Route changes come in groups: one look at the tables serves a whole one.
const ROUTE_DELAY: Duration = Duration::from_millis(100);

/// The tables are looked at even if nothing has been heard of them.
const ROUTE_INTERVAL: Duration = Duration::from_secs(10);

/// What there is to wait for.
#[derive(Debug, Clone, Copy, Default)]
struct Events {
    signals: bool,
    control: bool,
    ended: bool,
    routes: bool,
    rules: bool,
}

fn wait(
    relay: &RelayProcess,
    signals: &Signals,
    windows: Option<&InitialWindows>,
    interception: Option<&Interception>,
    until: Option<Instant>,
) -> Result<Events, Error> {
    let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = match timeout.map(Timespec::try_from) {
        Some(Ok(timeout)) => Some(timeout),
        _ => None,
    };
    let (signals, control, end) = (signals.as_fd(), relay.control(), relay.end());
    let routes = windows.map(InitialWindows::changes);
    let mut descriptors = vec![
        PollFd::new(&signals, PollFlags::IN),
        PollFd::new(&control, PollFlags::IN),
        PollFd::new(&end, PollFlags::IN),
    ];
    if let Some(routes) = &routes {
        descriptors.push(PollFd::new(routes, PollFlags::IN));
    }
    let first_of_rules = descriptors.len();
    let rules = interception.map(Interception::changes);
    for changes in rules.iter().flatten() {
        descriptors.push(PollFd::new(changes, PollFlags::IN));
    }
    match poll(&mut descriptors, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(Error::system("wait for events")(error.into())),
    }
    let is_ready = |index: usize| {
        descriptors
            .get(index)
            .is_some_and(|descriptor| !descriptor.revents().is_empty())
    };
    Ok(Events {
        signals: is_ready(0),
        control: is_ready(1),
        ended: is_ready(2),
        routes: windows.is_some() && is_ready(3),
        rules: is_ready(first_of_rules) || is_ready(first_of_rules + 1),
    })
}

/// Returns when the relay accepts connections.
pub(super) fn wait_until_ready(relay: &mut RelayProcess, signals: &Signals) -> Result<(), Error> {
    let limit = Instant::now() + START_LIMIT;
    loop {
        let events = wait(relay, signals, None, None, Some(limit))?;
        if events.signals && signals.take() > 0 {
            return Err(Error::Interrupted);
        }
        if events.control && relay.receive()? == Some(FromRelay::Ready) {
            return Ok(());
        }
        if events.control || events.ended {
            return Err(Error::RelayNotStarted(relay.finish(END_LIMIT)?));
        }
        if Instant::now() >= limit {
            return Err(Error::RelaySilent);
        }
    }
}

/// Returns when the relay has ended: without an error only where it was told to.
pub(super) fn supervise(
    relay: &mut RelayProcess,
    signals: &Signals,
    mut windows: Option<InitialWindows>,
    interception: Option<Interception>,
    configuration: &Configuration,
) -> Result<(), Error> {
    let settings = &configuration.relay;
    let watchdog_timeout = configuration.interception.watchdog_timeout;
    let mut routes = RouteWatch::new();
    let mut guard = interception.map(|taken| Guard::new(taken, watchdog_timeout));
    let mut drain_until: Option<Instant> = None;
    loop {
        let next = [
            drain_until,
            windows.as_ref().map(|_| routes.next),
            guard.as_ref().map(Guard::next),
        ];
        let until = next.into_iter().flatten().min();
        let rules = guard.as_ref().map(Guard::interception);
        let events = wait(relay, signals, windows.as_ref(), rules, until)?;
        let now = Instant::now();
        if events.ended {
            return ended(relay, drain_until.is_some());
        }
        if events.control {
            match relay.receive()? {
                Some(FromRelay::Alive) => {
                    if let Some(guard) = &mut guard {
                        guard.handle_life(now);
                    }
                }
                Some(FromRelay::Ready) | None => return ended(relay, drain_until.is_some()),
            }
        }
        if let Some(guard) = &mut guard {
            guard.handle_rules(events.rules, now);
            if guard.is_still(now) {
                warn!("the relay gives no sign of life: ending it");
                relay.kill()?;
                return Err(Error::RelayStill(watchdog_timeout));
            }
        }
        if events.signals && signals.take() > 0 {
            if drain_until.is_some() {
                warn!("a second signal: ending all sessions now");
                relay.kill()?;
                return Ok(());
            }
            info!(
                drain_timeout = %settings.drain_timeout,
                "a signal: no new connections, waiting for the sessions to end"
            );
            if let Some(guard) = &mut guard {
                guard.stop_taking();
            }
            relay.drain()?;
            let limit = Duration::from(settings.drain_timeout) + END_MARGIN;
            drain_until = now.checked_add(limit);
        }
        if drain_until.is_some_and(|until| now >= until) {
            warn!("the relay did not end in time: ending it");
            relay.kill()?;
            return Ok(());
        }
        if let Some(windows) = &mut windows {
            routes.handle(windows, events.routes, now);
        }
    }
}

fn ended(relay: &mut RelayProcess, was_asked: bool) -> Result<(), Error> {
    let status = relay.finish(END_LIMIT)?;
    if was_asked && status.success() {
        info!("all sessions have ended");
        return Ok(());
    }
    Err(Error::RelayEnded(status))
}

/// When to look at the routing tables again.
struct RouteWatch {
    next: Instant,
    next_thorough: Instant,
    not_copied: usize,
}

impl RouteWatch {
    fn new() -> Self {
        let next = Instant::now() + ROUTE_INTERVAL;
        Self {
            next,
            next_thorough: next,
            not_copied: 0,
        }
    }

    fn handle(&mut self, windows: &mut InitialWindows, changed: bool, now: Instant) {
        if changed {
            // Read away now, so that waiting does not return at once until the look is due.
            windows.forget_changes();
            self.next = self.next.min(now + ROUTE_DELAY);
        }
        if now < self.next {
            return;
        }
        let thorough = now >= self.next_thorough;
        if thorough {
            self.next_thorough = now + ROUTE_INTERVAL;
        }
        self.next = self.next_thorough;
        match windows.refresh(thorough) {
            Ok(refreshed) => {
                if refreshed.added + refreshed.removed > 0 {
                    debug!(
                        added = refreshed.added,
                        removed = refreshed.removed,
                        "routes for initial windows follow the main table"
                    );
                }
                if refreshed.not_copied > self.not_copied {
                    warn!(
                        "{} routes cannot be copied; their destinations go without an initial \
                         window",
                        refreshed.not_copied
                    );
                }
                self.not_copied = refreshed.not_copied;
            }
            Err(error) => warn!("routes for initial windows may be out of date: {error}"),
        }
    }
}
