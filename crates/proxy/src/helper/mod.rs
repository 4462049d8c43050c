//! The privileged helper: has the routes, the rules and everything that needs capabilities, starts
//! the relay process, and supervises it.
//!
//! It handles no traffic and reads nothing that comes from the network.

mod commands;
mod control_pages;
mod control_socket;
mod drained;
mod draining;
mod families;
mod firewall;
mod former_relays;
mod fragmenting;
mod guard;
mod inheritance;
mod inherited;
mod installing;
mod interception;
mod learned;
mod learned_windows;
mod leaving_alone;
mod lent;
mod listening;
mod measured;
mod members;
mod memory;
mod numbers_in_force;
mod own_addresses;
mod program_trial;
mod raising;
mod relay_process;
mod reload;
mod routes;
mod rules;
mod slots;
mod state;
mod supervision;
mod trial;
mod upgrades;
mod upgrading;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use midspan_gateway::initial_window::InitialWindows;
use midspan_gateway::interception::Accounting;
use midspan_linux::capability::{self, Capability};
use midspan_linux::descriptor_passing;
use midspan_linux::nftables;
use midspan_linux::tcp;
use midspan_linux::user_map::UserMap;
use midspan_policy::congestion::BBR;
use midspan_policy::{LegStart, SessionSettings};
use midspan_relay::{OpenListener, leg_options};
use midspan_service::liveness::{Absence, Watch};
use midspan_service::logging::{self, LogLevel};
use midspan_service::notify::Notifier;
use midspan_service::signals::Signals;
use midspan_service::user::{OWN, User};
use tracing::{error, info, warn};

use crate::Error;
use crate::configuration::{Configuration, Listener, Mode, passwords, ports};
use control_socket::{ControlSocket, ControlSockets};
pub(crate) use families::leave_out_missing;
use former_relays::FormerRelays;
use guard::{Guard, LOOK_PAUSE};
#[cfg(feature = "fuzzing")]
pub(crate) use inheritance::fuzzed as inheritance_fuzzed;
use inherited::Inherited;
use installing::{adopt_interception, install_initial_windows, install_interception};
use interception::Marking;
pub use interception::describe_rules;
pub(crate) use interception::firewall_cache_obstacles;
pub(crate) use listening::ListenError;
use listening::{Open, Threads};
use measured::Measured;
use members::MembersWatch;
use memory::MemoryWatch;
use own_addresses::MachineWatch;
pub use program_trial::trial_main;
use raising::Raising;
use relay_process::{Extras, Listeners, RelayProcess};
use routes::RouteWatch;
use state::State;
use supervision::Supervisor;
pub(crate) use trial::{check_addresses, try_firewall, try_to_listen};
use upgrades::Upgrades;

/// Options of `midspan run`.
#[derive(Debug)]
pub struct RunOptions {
    /// The configuration file.
    pub configuration: PathBuf,
    /// Arguments with which this program, run again, calls [`relay_main`](crate::relay_main).
    pub relay_arguments: Vec<String>,
    /// Arguments with which another program, tried before an upgrade, calls [`trial_main`](crate::trial_main).
    pub trial_arguments: Vec<String>,
    /// Gets one byte, and is closed, when connections are accepted.
    pub ready: Option<OwnedFd>,
    /// The log level, in place of the configuration's, also after each reload.
    pub log_level: Option<LogLevel>,
}

/// Runs the proxy until a signal ends it.
///
/// Call this function while the process has one thread, with default signal handlers. SIGTERM or SIGINT
/// announces the end for `lame_duck_time`, then drains: the sessions may finish, for at most `drain_timeout`.
/// A further signal begins draining at once; a signal while the proxy drains resets the sessions. SIGHUP
/// makes the helper read the configuration file again.
///
/// # Errors
/// Why the proxy cannot start or continue; see [`Error`]. Routes and rules are removed in every case.
pub fn run(options: RunOptions) -> Result<(), Error> {
    logging::report_panics();
    let result = start_or_continue(options);
    midspan_log::finish();
    result
}

fn start_or_continue(mut options: RunOptions) -> Result<(), Error> {
    let ready = options.ready.take();
    let mut inherited = Inherited::take()?;
    let is_first = inherited.is_none();
    match (start(options, inherited.as_mut()), inherited) {
        (Ok(supervisor), _) => {
            if let Some(ready) = ready.filter(|_| is_first) {
                announce(ready);
            }
            supervisor.supervise()
        }
        // The former program continues with its relay.
        (Err(error), Some(mut inherited)) if !inherited.is_committed && !inherited.is_return() => {
            error!("this program cannot take over, the former one continues: {error}");
            Err(inherited.return_to_former(&error))
        }
        (Err(error), _) => Err(error),
    }
}

/// Starts the proxy, or takes over what this program has inherited.
fn start(options: RunOptions, mut inherited: Option<&mut Inherited>) -> Result<Supervisor, Error> {
    let former = inherited
        .as_deref()
        .map(|of| of.state.configuration())
        .transpose()?;
    let mut configuration = match (inherited.as_deref(), &former) {
        (Some(inherited), Some(former)) if inherited.is_return() => former.clone(),
        _ => Configuration::load(&options.configuration)?,
    };
    let rules = inherited.as_deref().and_then(|of| of.state.rules.as_ref());
    let earlier = rules.map_or(&[][..], |rules| &rules.former_sessions);
    let fixed = match &former {
        Some(former) => configuration.keep_numbers(former, earlier),
        None => Vec::new(),
    };
    configuration.log.level = options.log_level.unwrap_or(configuration.log.level);
    logging::start_without_rights(configuration.log)
        .map_err(Error::system("start the thread of the log"))?;
    if passwords::has_any(&configuration)
        && let Some(mode) = passwords::readers(&options.configuration)
    {
        warn!(
            "every user of this machine can read the passwords in {} (mode {mode:03o}): chmod 600",
            options.configuration.display()
        );
    }
    for (key, reason) in fixed {
        warn!("{key} has changed in the file and keeps its former value: {reason}");
    }
    let left_out = families::leave_out_and_say(&mut configuration)?;
    // Before the first route is set, so that no signal leaves a route behind.
    let signals = Signals::catch().map_err(Error::system("catch signals"))?;
    let notifier = Notifier::from_environment();
    check_machine(&configuration)?;
    load_bbr(&configuration);
    let user = relay_user(&configuration)?;
    let former_control = match inherited.as_deref() {
        Some(Inherited {
            control: Some(socket),
            state,
            ..
        }) => {
            let duplicate = socket.try_clone();
            let path = state.control.as_deref().unwrap_or(Path::new(""));
            let adopted = duplicate.and_then(|socket| ControlSocket::adopt(socket, path));
            Some(adopted.map_err(Error::system("take over the control socket"))?)
        }
        _ => None,
    };
    let control = ControlSockets::open(&configuration.control, former_control)?;
    let control_place = control.as_ref().map(ControlSockets::place).transpose();
    let control_place = control_place
        .map_err(Error::system(NO_DUPLICATE))?
        .flatten();
    if inherited.is_none() {
        remove_leftovers()?;
    }
    let state_of_former = inherited.as_deref().map(|inherited| &inherited.state);
    let drained = state_of_former
        .map(|state| state.drained.clone())
        .unwrap_or_default();
    let whole = configuration;
    let configuration = drained.applied_to(&whole);
    let fragmenter = fragmenting::open(&configuration);
    let device = fragmenter.as_ref().map(|fragmenter| fragmenter.device);
    let has_other_marks =
        (former.as_ref()).is_some_and(|of| of.marks.marks != configuration.marks.marks);
    // Sockets with other marks than before have none of these places.
    let places = state_of_former.and_then(|state| state.places.clone());
    let places = places.filter(|_| !has_other_marks);
    if let Some(former) = former.as_ref().filter(|of| of.marks != configuration.marks) {
        InitialWindows::remove_former(former.marks)?;
    }
    let windows = install_initial_windows(&configuration, places, device)?;
    let raising = Raising::begin(&configuration, windows.as_ref());
    raise_descriptor_limit();
    let limit = interception::slot_limit(&configuration, windows.as_ref());
    let slots = state_of_former
        .map(|state| state.slots.clone())
        .unwrap_or_default();
    let slots = slots.assign(&configuration, limit);
    let marking = Marking::new(&configuration, &slots, windows.as_ref())?;
    let present = state_of_former
        .map(|state| state.open.clone())
        .unwrap_or_default();
    // The former sockets of transparent listeners have the former marks, as all sockets that they accept, and there is
    // one for each thread. Clients do not see them, so there can be new ones.
    let has_fewer_threads =
        (former.as_ref()).is_some_and(|of| of.relay.threads > configuration.relay.threads);
    let opens_anew = has_other_marks || has_fewer_threads;
    let present: Vec<Open> = (present.into_iter())
        .filter(|open| !(open.is_transparent && opens_anew))
        .collect();
    let (open, listeners) = listen(&configuration, &marking, &present)?;
    let state = State::open(&configuration.state)?;
    let (bypasses, kept_bypasses) = commands::kept_bypasses(state.as_ref());
    let bypasses = state_of_former.map_or(bypasses, |state| state.bypasses.clone());
    let mut interception = match state_of_former.zip(former.as_ref()) {
        None => install_interception(&configuration, &marking, &open, &bypasses)?,
        Some((state, former)) => {
            adopt_interception(&configuration, &marking, &open, state, former)?
        }
    };
    let admin = open_admin(&configuration, inherited.as_deref())?;
    let own_admin = admin.as_ref().map(OwnedFd::try_clone).transpose();
    let own_admin = own_admin.map_err(Error::system(NO_DUPLICATE))?;
    let arguments = &options.relay_arguments;
    let machine = MachineWatch::open(&configuration)?;
    let (control, pages) = match control {
        Some(control) => {
            let (here, there) = passing_pair().map_err(Error::system("open a socket pair"))?;
            (Some((control, here)), Some(there))
        }
        None => (None, None),
    };
    let extras = Extras {
        admin,
        pages,
        predecessor: None,
        machine: machine.machine().clone(),
        state,
        fragmenter: fragmenter.map(|fragmenter| (marking.fragments(), fragmenter)),
    };
    let mut relay = match inherited.as_deref() {
        None => RelayProcess::start(&configuration, arguments, user, listeners, extras)?,
        Some(inherited) if inherited.is_return() => {
            let connection = inherited
                .relay
                .try_clone()
                .map_err(Error::system(NO_DUPLICATE))?;
            RelayProcess::adopt(inherited.state.relay, connection, extras.state)?
        }
        Some(inherited) => inherited.start_successor(extras, |extras| {
            RelayProcess::start(&configuration, arguments, user, listeners, extras)
        })?,
    };
    // Rules, routes and listeners can be changed with these; the relay is there.
    // And the relay can be ended, though it is another user.
    let kill = user.map(|_| Capability::CAP_KILL);
    let kept: Vec<Capability> = KEPT.into_iter().chain(kill).collect();
    let for_relay = user.map_or(&[][..], |_| &FOR_NEXT_RELAY);
    let in_reserve: Vec<Capability> = for_relay.iter().copied().chain([raising::NEEDED]).collect();
    capability::keep(&kept, &in_reserve)?;
    if !inherited.as_deref().is_some_and(Inherited::is_return) {
        supervision::wait_until_ready(&mut relay, &signals)?;
    }
    let (former_relays, upgrades) = match inherited.as_deref_mut() {
        None => (FormerRelays::default(), Upgrades::default()),
        Some(inherited) => inherited.settle(configuration.relay.upgrade_timeout)?,
    };
    let control = control
        .map(|(control, relay)| control.serve(relay))
        .transpose()?;
    if let Some((interception, firewall)) = &mut interception {
        if let Err(error) = interception.own() {
            warn!("rules or routes of the former program may be left: {error}");
        }
        interception.set_taking(firewall.lets_pass())?;
    }
    info!(
        listeners = configuration.listeners.len(),
        threads = configuration.relay.threads,
        version = env!("CARGO_PKG_VERSION"),
        "{}",
        match inherited.as_deref() {
            None => "ready",
            Some(inherited) if inherited.is_return() =>
                "ready: continues after an upgrade that failed",
            Some(_) => "ready: upgraded",
        }
    );
    nftables::limit_waits();
    let limit = configuration.interception.watchdog_timeout.into();
    let mut supervisor = Supervisor {
        file: options.configuration,
        log_level: options.log_level,
        relay,
        signals,
        windows,
        raising,
        guard: interception
            .map(|(interception, firewall)| Guard::new(interception, firewall))
            .transpose()?,
        lives: 0,
        watch: Watch::of_beating(Instant::now(), LOOK_PAUSE, limit, Absence::Restarts),
        late: Vec::new(),
        told: None,
        slots,
        open,
        interfaces: inherited
            .as_deref()
            .map(|of| of.state.interfaces.clone())
            .unwrap_or_default(),
        bypasses,
        bypasses_late: false,
        kept_bypasses,
        bypasses_not_kept: None,
        left_alone_at: None,
        accounting: Accounting::default(),
        control,
        control_place,
        admin: own_admin,
        trial_arguments: options.trial_arguments,
        upgrades,
        former: former_relays,
        notifier,
        ready_since: (inherited.as_deref())
            .and_then(|of| Instant::now().checked_sub(of.state.uptime))
            .unwrap_or_else(Instant::now),
        reloads: inherited.as_deref().map_or(0, |of| of.state.reloads),
        orders: 0,
        reloads_failed: inherited.as_deref().map_or(0, |of| of.state.reloads_failed),
        reload_error: None,
        routes: RouteWatch::new(),
        machine,
        left_out,
        memory: MemoryWatch::new(),
        members: MembersWatch::new(Instant::now()),
        measured: Measured::new(),
        configured_at: now_in_seconds(),
        lame_duck_until: None,
        drain_until: None,
        drained,
        whole,
        configuration: configuration.clone(),
    };
    supervisor.remember_interfaces(&configuration);
    let measures = configuration.has_control_group();
    supervisor.count_bytes(measures);
    supervisor.send_to_relay();
    supervisor.notifier.ready(&supervisor.status_line());
    Ok(supervisor)
}

const NO_DUPLICATE: &str = "duplicate a descriptor";

/// The capabilities that the helper keeps: to change rules and routes, and to open sockets at a
/// reload.
const KEPT: [Capability; 3] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_BIND_SERVICE,
    Capability::CAP_NET_RAW,
];

/// The capabilities in reserve for the next program of this process, whose relay becomes another user.
const FOR_NEXT_RELAY: [Capability; 3] = [
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_SETPCAP,
];

/// The user of the relay; `None` if the relay cannot change its user.
fn relay_user(configuration: &Configuration) -> Result<Option<User>, Error> {
    let name = configuration.relay.user.as_deref();
    let may = capability::is_held(Capability::CAP_SETUID)?
        && capability::is_held(Capability::CAP_SETGID)?
        && UserMap::read().has_all();
    match (may, name) {
        (false, None) => Ok(None),
        (false, Some(name)) => {
            warn!("relay.user = \"{name}\" needs root: the relay runs as this user");
            Ok(None)
        }
        (true, name) => {
            match User::find(name).map_err(Error::system("look up the relay's user"))? {
                Some(user) => {
                    if user.is_shared() {
                        warn!(
                            "the relay runs as the user nobody, whose other processes can end it: make \
                         a user midspan for it (systemd-sysusers, deploy/midspan.sysusers), or \
                         name one in relay.user"
                        );
                    }
                    Ok(Some(user))
                }
                None => Err(Error::NoUser(name.unwrap_or(OWN).to_owned())),
            }
        }
    }
}

/// Removes the leftovers of a killed run, under any names.
fn remove_leftovers() -> Result<(), Error> {
    if !capability::is_held(Capability::CAP_NET_ADMIN)? {
        return Ok(());
    }
    match midspan_gateway::leftovers::rules_and_routes() {
        Ok(0) => {}
        Ok(removed) => info!(removed, "removed rules and routes of an earlier run"),
        Err(error) => warn!("rules and routes of an earlier run may be left: {error}"),
    }
    Ok(())
}

/// Checks that depend on the machine.
fn check_machine(configuration: &Configuration) -> Result<(), Error> {
    check_addresses(configuration)?;
    for (listener, leg, settings) in configuration.legs() {
        leg_options::check(&LegStart::from(settings)).map_err(|error| {
            midspan_document::Error::from(configuration.leg_error(
                listener,
                leg,
                error.key(),
                &error,
            ))
        })?;
    }
    Ok(())
}

/// Makes the kernel load BBR, which the relay has no right to. Debian's kernels have it as a module that
/// nothing else loads.
fn load_bbr(configuration: &Configuration) {
    // Also for a later reload, after which a policy may choose it.
    let loaded = tcp::load_congestion_control(BBR);
    let mut sessions = configuration.listeners.iter().map(|of| &of.relay.session);
    if let Err(error) = loaded
        && sessions.any(SessionSettings::chooses_congestion_control)
    {
        warn!(
            "{error}: legs that lose packets keep their congestion control (modprobe tcp_bbr, or start as root)"
        );
    }
}

/// Opens the sockets of all listeners, except those that are `present`.
fn listen(
    configuration: &Configuration,
    marking: &Marking<'_>,
    present: &[Open],
) -> Result<(Vec<Open>, Listeners), Error> {
    let mut all = Vec::new();
    let mut relay = Vec::new();
    for listener in &configuration.listeners {
        let threads = Threads::from(&configuration.relay);
        for leg in marking.client_legs(listener) {
            let opened = listening::open(listener, leg, threads, present).map_err(|error| {
                midspan_document::Error::from(configuration.listen_error(listener, error))
            })?;
            for (open, sockets) in opened {
                let listener = marking.listener(listener, &open);
                relay.push(OpenListener { listener, sockets });
                all.push(open);
            }
        }
        log_listener(configuration, listener);
    }
    let gate = match marking.gate() {
        Some(message) => Some((message, interception::raw_sockets()?)),
        None => None,
    };
    Ok((all, Listeners { relay, gate }))
}

fn log_listener(configuration: &Configuration, listener: &Listener) {
    let name = &listener.relay.name;
    match &listener.mode {
        Mode::Forward(forward) => {
            info!(listener = %name, listen = %forward.listen, to = %forward.to, "listening");
        }
        Mode::Explicit(explicit) => {
            info!(listener = %name, listen = %explicit.listen, mode = explicit.mode, "listening");
        }
        Mode::Transparent(transparent) => {
            let interfaces = transparent.interfaces.join(" ");
            info!(listener = %name, interfaces, "transparent");
            let left_alone = configuration.interception.helper_ports_of(transparent);
            if !left_alone.is_empty() {
                info!(
                    listener = %name,
                    ports = ports(left_alone),
                    "left alone: control ports of protocols for which firewalls have helpers \
                     (interception.helper_ports)"
                );
            }
        }
    }
}

/// Seconds since 1970.
fn now_in_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Two connected sockets for connections of the control socket's clients: of the helper, and of the
/// relay. Neither process waits for the other.
fn passing_pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (here, there) = descriptor_passing::pair()?;
    for socket in [&here, &there] {
        rustix::io::ioctl_fionbio(socket, true)?;
    }
    Ok((here, there))
}

/// The socket of the admin listener, which may be inherited; `None` where there is none.
fn open_admin(
    configuration: &Configuration,
    inherited: Option<&Inherited>,
) -> Result<Option<OwnedFd>, Error> {
    let Some(admin) = &configuration.admin else {
        return Ok(None);
    };
    if let Some(inherited) = inherited.filter(|of| of.state.admin == Some(admin.listen))
        && let Some(socket) = &inherited.admin
    {
        return socket
            .try_clone()
            .map(Some)
            .map_err(Error::system(NO_DUPLICATE));
    }
    let socket = listening::open_admin(admin.listen)
        .map_err(|error| midspan_document::Error::from(configuration.admin_error(admin, error)))?;
    info!(listen = %admin.listen, "metrics and sessions");
    Ok(Some(socket))
}

/// Every session needs two descriptors and its pipes; the soft limit is often 1024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("cannot raise the limit of open descriptors: {error}");
    }
}

/// The process that waits may have ended; the proxy continues.
fn announce(ready: OwnedFd) {
    if let Err(error) = std::fs::File::from(ready).write_all(b"\n") {
        warn!("cannot say that the proxy is ready: {error}");
    }
}
