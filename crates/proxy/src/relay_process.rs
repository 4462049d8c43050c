//! The main function of the relay process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_linux::allocator;
use midspan_linux::capability::{self, Capability};
use midspan_linux::process_use::ProcessFiles;
use midspan_linux::sandbox::{self, Landlock};
use midspan_linux::tcp;
use midspan_policy::congestion::BBR;
use midspan_policy::hosts::Hosts;
use midspan_policy::{Offered, server_windows};
use midspan_relay::access::Network;
use midspan_relay::kick::{Kick, Target};
use midspan_relay::remembered::Remembered;
use midspan_relay::{self as relay, Predecessor, Relay, Successor};
use midspan_service::{child, logging, message};
use midspan_units::{Time, TimeSpan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use crate::Error;
use crate::admin::NarrowObserver;
use crate::admin::host::HostCounters;
use crate::configuration::RelaySettings;
use crate::control::{FromRelay, ROUTES_AT_ONCE, ToRelay};
use crate::fragmenting::{self, FragmentCounters, FragmentSizes};
use crate::gate::Gate;
use crate::health::Health;
use crate::keeper;
use crate::late::ThreadName;
use crate::learned::{self, ForgottenCounts};
use crate::overlay;
use crate::relay_configuration::{learn_machine, receive_configuration, receive_listeners};
use crate::relay_listeners::{HANDOVER_LIMIT, RunningListeners, log_gate};
use crate::relay_watch::ThreadWatch;
use crate::resolver;

/// How often live sessions are read for the metrics, if there is an admin listener.
const SAMPLING_INTERVAL: TimeSpan = TimeSpan::from_seconds(1);

/// How long the greeting of the relay that hands over its sessions may take.
const MEETING_LIMIT: Duration = Duration::from_secs(10);

/// How often the relay reports routes that splitting does not help. The helper changes the rules
/// for each report.
const FOUND_INTERVAL: Duration = Duration::from_secs(2);

/// The same while it drains, and while sessions are being reset.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// How long there must be no session before draining is over: connections that had arrived when
/// draining began may become sessions meanwhile.
const QUIET_TIME: Duration = Duration::from_millis(200);

/// The relay process, called by the program that [`run`](crate::run) starts. Its standard input is
/// the connection to the helper.
///
/// # Errors
/// Why the relay cannot run. After a command to end, it returns without an error.
pub fn relay_main() -> Result<(), Error> {
    logging::report_panics();
    let result = serve();
    midspan_log::finish();
    result
}

fn serve() -> Result<(), Error> {
    allocator::join_pieces_at_once();
    child::ignore_signals().map_err(Error::system("set up signals"))?;
    let helper = child::parent().map_err(|_| Error::OutOfTurn)?;
    if resolver::is_wanted() {
        child::become_user()?;
        return resolver::main(helper);
    }
    // Before the privileges for this are given up.
    let resolver = resolver::start().map_err(Error::system("start the resolver process"))?;
    child::become_user()?;
    // Also before anything is read.
    capability::give_up_all_but(&[Capability::CAP_NET_ADMIN])?;
    // Before the sandbox, which opens no file.
    let offered = offered();
    let host = HostCounters::open().ok();
    let process = ProcessFiles::open().ok();
    // Before there is a second thread, so that the sandbox applies to all threads.
    let landlock = sandbox::enter()?;
    let Some(received) = receive_configuration(&helper)? else {
        return Ok(());
    };
    if landlock == Landlock::Absent {
        info!("this kernel offers no Landlock: files are kept from the relay by seccomp alone");
    }
    let mut settings = received.settings;
    let threads = settings.threads as u64;
    let health = Health::default();
    let limit = received.watchdog_timeout;
    let is_observed = received.admin.has_listener();
    let (verdicts, mut keeper) = keeper::start(received.verdicts);
    let predecessor = received
        .predecessor
        .map(|socket| Predecessor::meet(socket, MEETING_LIMIT));
    let predecessor = predecessor.transpose()?;
    let relay = relay::Settings {
        // The sessions' times are those of the predecessor's clock.
        begins_at: predecessor.as_ref().map_or(Time::ZERO, Predecessor::now),
        ..relay_settings(&settings, is_observed, offered, verdicts)
    };
    let fragments = FragmentCounters::default();
    let fragment_sizes = FragmentSizes::default();
    fragment_sizes.set(&received.listeners);
    if let Some((mark, descriptors)) = received.cutting {
        fragmenting::start(mark, descriptors, &fragment_sizes, &fragments)
            .map_err(Error::system("start the fragmenter"))?;
    }
    let mut coming = None;
    let mut listeners = match &predecessor {
        None => RunningListeners::start(&relay, received.listeners, received.gate)?,
        Some(predecessor) => {
            let (listeners, gate) = (received.listeners, received.gate);
            let (listeners, sessions) =
                RunningListeners::take_over(&relay, predecessor, listeners, gate)?;
            coming = Some(sessions);
            listeners
        }
    };
    drop(predecessor);
    listeners.relay.set_resolver(resolver)?;
    if let Some(sessions) = coming {
        listeners.take_sessions(sessions);
    }
    let gate = listeners.gate.as_ref().map(Gate::observer);
    let narrow = NarrowObserver {
        verdicts: listeners.relay.verdicts().clone(),
        fragments,
    };
    let observer = listeners.relay.observer();
    let mut has_exchanges = false;
    start_exchanges(&listeners.relay, &mut has_exchanges)?;
    let pages = (received.admin).start(observer, gate, narrow, host, process, health.clone())?;
    message::send(&helper, &FromRelay::Ready, &[])?;
    let mut watch = ThreadWatch::new(settings.threads, limit, health.clone());
    let mut found_at = Instant::now();
    let mut kicks = Kicks::default();
    let mut successor: Option<Successor> = None;
    loop {
        let interval = match kicks.are_under_way() {
            true => DRAIN_INTERVAL,
            false => watch.interval(),
        };
        let (is_message, is_successor_ready) = wait(
            &helper,
            successor.as_ref().map(Successor::descriptor),
            interval,
        )?;
        if let Some(ready) = successor.take_if(|_| is_successor_ready) {
            listeners.end_openings();
            match listeners.relay.hand_over(&ready, HANDOVER_LIMIT) {
                Ok(sessions) => {
                    info!(sessions, "handed over to the relay of the next program");
                    let RunningListeners { relay, .. } = listeners;
                    if let Some(pages) = pages {
                        pages.stop();
                    }
                    message::send(&helper, &FromRelay::HandedOver { sessions }, &[])?;
                    // The proxy does not drain: requests that are being answered must not get this as the state.
                    // A stuck thread may keep a processor busy as long as this process exists.
                    let limit = match watch.has_replaced() {
                        true => ("drain_timeout", settings.drain_timeout),
                        false => ("upgrade_timeout", settings.upgrade_timeout),
                    };
                    return drain(relay, &helper, limit, None, (watch, &health));
                }
                Err(error) => {
                    warn!("the sessions stay in this relay: {error}");
                    let reason = error.to_string();
                    listeners.open_gate();
                    message::send(&helper, &FromRelay::NotHandedOver { reason }, &[])?;
                }
            }
        }
        if is_message {
            match message::receive(&helper)? {
                Some((ToRelay::Drain, _)) => {
                    let verdicts = listeners.relay.verdicts().clone();
                    let learned = listeners.relay.learned();
                    let RunningListeners { relay, gate, .. } = listeners;
                    health.set_draining();
                    let watch = (watch, &health);
                    let limit = ("drain_timeout", settings.drain_timeout);
                    drain(relay, &helper, limit, gate, watch)?;
                    keeper.send_last(&helper, &verdicts, &learned);
                    return Ok(());
                }
                Some((
                    ToRelay::Reload {
                        drain_timeout,
                        upgrade_timeout,
                        watchdog_timeout,
                        limits,
                        listeners: count,
                    },
                    _,
                )) => {
                    let Some((messages, gate)) = receive_listeners(&helper, count)? else {
                        return Ok(());
                    };
                    fragment_sizes.set(&messages);
                    let answer = match listeners.reload(messages, gate) {
                        Ok(()) => {
                            settings.drain_timeout = drain_timeout;
                            settings.upgrade_timeout = upgrade_timeout;
                            watch.set_limit(watchdog_timeout);
                            listeners.relay.change_limits(&limits);
                            health.set_drained_clients(listeners.drained_clients());
                            start_exchanges(&listeners.relay, &mut has_exchanges)?;
                            FromRelay::Reloaded
                        }
                        Err(error) => {
                            tracing::error!("the old listeners stay in force: {error}");
                            FromRelay::NotReloaded
                        }
                    };
                    message::send(&helper, &answer, &[])?;
                }
                Some((ToRelay::Kick { number, target }, _)) => {
                    let gate = listeners.gate.as_ref();
                    kicks.begin(&listeners.relay, gate, number, target);
                }
                Some((ToRelay::Forget { number, prefix }, _)) => {
                    let forgotten = forget(&listeners.relay, prefix)?;
                    // The files are without what was forgotten before the operator has the answer.
                    keeper.send_at_once(&helper, &listeners.relay)?;
                    message::send(&helper, &FromRelay::Forgotten { number, forgotten }, &[])?;
                }
                Some((ToRelay::Save, _)) => keeper.send_at_once(&helper, &listeners.relay)?,
                Some((ToRelay::Greet, sockets)) => {
                    let socket = sockets.into_iter().next().ok_or(Error::OutOfTurn)?;
                    successor = Some(listeners.relay.greet_successor(socket)?);
                }
                Some((ToRelay::Limits(limits), _)) => listeners.relay.change_limits(&limits),
                Some((ToRelay::Retire { addresses, after }, _)) => {
                    listeners.retire(&addresses, after);
                    health.set_drained_clients(listeners.drained_clients());
                }
                Some((ToRelay::Machine, list)) => learn_machine(list)?,
                Some((ToRelay::Paths, files)) => {
                    let file = files.into_iter().next().ok_or(Error::OutOfTurn)?;
                    keeper::recall_paths(file, &listeners.relay);
                }
                Some((ToRelay::State(state), _)) => {
                    listeners.relay.overlay().set_ending(state.is_ending);
                    health.set_helper(state);
                }
                Some(_) => return Err(Error::OutOfTurn),
                // The helper has ended, so no process updates the routes any more.
                None => return Ok(()),
            }
        }
        kicks.answer(&helper)?;
        log_refused_calls();
        if listeners.relay.statistics().threads_running < threads {
            return Err(Error::ThreadEnded);
        }
        if listeners
            .gate
            .as_ref()
            .is_some_and(|gate| !gate.is_running())
        {
            return Err(Error::ThreadEnded);
        }
        let look = watch.look(&listeners.relay, listeners.gate.as_ref());
        // A helper that does not read already has enough messages.
        message::try_send(&helper, &look.message)?;
        if let Some(thread) = look.stuck {
            if !watch.replace(thread, |number| listeners.replace_thread(number)) {
                // Ending the threads would mean waiting for the stuck one.
                std::mem::forget(listeners);
                return Err(end_for(thread, watch.limit(), &helper));
            }
            kicks.forget_thread(thread);
        }
        watch.request_renewal(&helper)?;
        keeper.send_new(&helper, &listeners.relay)?;
        if listeners.gate.is_some() && found_at.elapsed() >= FOUND_INTERVAL {
            found_at = Instant::now();
            let (knowledge, _) = listeners.relay.learned();
            let routes = knowledge.take_found(ROUTES_AT_ONCE);
            if !routes.is_empty() {
                message::send(&helper, &FromRelay::LeaveAlone(routes), &[])?;
            }
        }
    }
}

/// Starts the thread for exchanges with other nodes of an overlay, and for warm connections, once there are any.
fn start_exchanges(relay: &Relay, is_started: &mut bool) -> Result<(), Error> {
    let (shared, (_, clock)) = (relay.overlay(), relay.learned());
    let members = shared.members();
    let has_work = members.is_some_and(|members| members.choice.exchange || members.warm);
    if *is_started || !has_work {
        return Ok(());
    }
    *is_started = true;
    overlay::start(shared, relay.limits(), clock, relay.observer())
        .map_err(Error::system("start the thread of the overlay"))
}

/// Forgets what was learned about hosts with this prefix, or about all.
fn forget(relay: &Relay, prefix: Option<Network>) -> Result<ForgottenCounts, Error> {
    let hosts = match prefix {
        None => Hosts::ALL,
        Some(Network { address, length }) => {
            let prefix = IpNet::new(address, length).map_err(|_| Error::OutOfTurn)?;
            Hosts::with_prefix(prefix)
        }
    };
    let (knowledge, _) = relay.learned();
    Ok(learned::forget(&hosts, &knowledge, relay.verdicts()))
}

/// How long to wait for the threads before the relay continues with other work.
const KICK_WAIT: Duration = Duration::from_millis(50);

/// Commands to reset sessions that are being carried out.
#[derive(Default)]
struct Kicks(Vec<(u64, Kick)>);

impl Kicks {
    fn begin(&mut self, relay: &Relay, gate: Option<&Gate>, number: u64, target: Target) {
        // The gate first: the threads recognise connections that the gate releases meanwhile.
        let held = gate.map_or(0, |gate| gate.kick(target));
        self.0.push((number, relay.kick(target, held)));
    }

    /// A thread has been replaced, so it does not answer.
    fn forget_thread(&mut self, thread: ThreadName) {
        for (_, kick) in &mut self.0 {
            kick.forget_thread(thread.0);
        }
    }

    const fn are_under_way(&self) -> bool {
        !self.0.is_empty()
    }

    /// Sends the results to the helper.
    fn answer(&mut self, helper: &OwnedFd) -> Result<(), Error> {
        let mut done = Vec::new();
        self.0.retain_mut(|(number, kick)| {
            let kicked = kick.result(KICK_WAIT);
            done.extend(kicked.map(|kicked| (*number, kicked)));
            kicked.is_none()
        });
        for (number, kicked) in done {
            message::send(helper, &FromRelay::Kicked { number, kicked }, &[])?;
        }
        Ok(())
    }
}

/// Logs refused system calls, because a call may be missing on the sandbox's list.
fn log_refused_calls() {
    while let Some(call) = sandbox::next_refused_call() {
        warn!("the sandbox has refused {call}, which is a fault: please report it");
    }
}

/// Reports a stuck thread to the helper.
fn end_for(thread: ThreadName, limit: TimeSpan, helper: &OwnedFd) -> Error {
    // The helper kills this process as soon as it has the message. The log has the reason first.
    midspan_log::finish();
    // A helper that does not read notices the relay's end.
    let _ = message::try_send(helper, &FromRelay::Stuck(thread));
    Error::ThreadStuck {
        thread: thread.to_string(),
        limit,
    }
}

/// The features of this machine for policies.
fn offered() -> Offered {
    let names = tcp::available_congestion_controls().unwrap_or_default();
    Offered {
        bbr: names.iter().any(|name| name == BBR),
        // Where this cannot be found out, no window is opened.
        receive_window: tcp::largest_open_window(server_windows::MOST).unwrap_or_default(),
        least_timeout: tcp::has_least_timeout(),
    }
}

fn relay_settings(
    settings: &RelaySettings,
    is_observed: bool,
    offered: Offered,
    verdicts: Remembered,
) -> relay::Settings {
    relay::Settings {
        offered,
        sampling_interval: is_observed.then_some(SAMPLING_INTERVAL),
        threads: settings.threads,
        pin_threads: settings.pin_threads,
        pipe_size: settings.pipe_size,
        pipe_memory: settings.pipe_memory,
        reset_timeout: settings.reset_timeout,
        limits: settings.limits,
        verdicts,
        begins_at: Time::ZERO,
    }
}

/// Lets the sessions end, until the time of this key of `[relay]` is over or the helper has ended.
fn drain(
    mut relay: Relay,
    helper: &OwnedFd,
    (key, limit): (&str, TimeSpan),
    gate: Option<Gate>,
    (mut watch, health): (ThreadWatch, &Health),
) -> Result<(), Error> {
    // The helper has changed the rules so that no connection is intercepted any more.
    if let Some(gate) = gate {
        log_gate(&gate.statistics());
    }
    relay.drain();
    let mut kicks = Kicks::default();
    let start = Instant::now();
    let limit = Duration::from(limit);
    let mut last_active = start;
    let mut last_look = start;
    loop {
        if last_look.elapsed() >= watch.interval() {
            last_look = Instant::now();
            let look = watch.look(&relay, None);
            message::try_send(helper, &look.message)?;
            if let Some(thread) = look.stuck {
                let replace = |number| relay.replace_thread(number, None).map_err(Error::from);
                if !watch.replace(thread, replace) {
                    std::mem::forget(relay);
                    return Err(end_for(thread, watch.limit(), helper));
                }
                kicks.forget_thread(thread);
            }
        }
        if is_readable(helper, DRAIN_INTERVAL)? {
            match message::receive::<ToRelay>(helper)? {
                Some((ToRelay::Kick { number, target }, _)) => {
                    kicks.begin(&relay, None, number, target);
                }
                Some((ToRelay::State(state), _)) => health.set_helper(state),
                // Perhaps the rest of a reload.
                Some(_) => {}
                None => return Ok(()),
            }
        }
        kicks.answer(helper)?;
        let active = relay.statistics().sessions_active;
        if active > 0 {
            last_active = Instant::now();
        }
        if last_active.elapsed() >= QUIET_TIME {
            break;
        }
        if start.elapsed() >= limit {
            if active > 0 {
                warn!(sessions = active, "{key} is over: resetting the rest");
            }
            break;
        }
    }
    let total = relay.statistics();
    relay.stop();
    log_refused_calls();
    info!(
        sessions = total.sessions_opened,
        bytes_to_client = total.bytes_to_client,
        bytes_to_server = total.bytes_to_server,
        "relay ends"
    );
    Ok(())
}

fn is_readable(helper: &OwnedFd, timeout: Duration) -> Result<bool, Error> {
    wait(helper, None, timeout).map(|(is_message, _)| is_message)
}

/// Whether there is a message of the helper, and whether the successor is ready.
fn wait(
    helper: &OwnedFd,
    successor: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> Result<(bool, bool), Error> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut descriptors: Vec<PollFd<'_>> = std::iter::once(helper.as_fd())
        .chain(successor)
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    match poll(&mut descriptors, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(Error::system("wait for the helper")(error.into())),
    }
    let mut ready = descriptors.iter().map(|of| !of.revents().is_empty());
    Ok((ready.next() == Some(true), ready.next() == Some(true)))
}
