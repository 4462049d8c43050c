//! The helper: sets the rules and watches the worker.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use midspan_gateway::acknowledgement_queue::AcknowledgementRules;
use midspan_gateway::acknowledgements_first::AckFirstQueue;
use midspan_linux::netlink::interface_index;
use midspan_linux::nftables;
use midspan_linux::user_map::UserMap;
use midspan_service::child::ChildProcess;
use midspan_service::liveness::{Absence, PASS_AFTER, Watch};
use midspan_service::logging::{self, LogSettings};
use midspan_service::message::{self, MessageError};
use midspan_service::notify::Notifier;
use midspan_service::signals::Signals;
use midspan_service::user::{NOBODY, User};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGTSTP;
use tracing::{error, info, warn};

use crate::pages::PagesProcess;
use crate::worker::FromWorker;
use crate::{Error, Settings, Status};

/// A worker that has not opened its queue by then is ended.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Time between the end of a worker and the start of the next.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How often the rules are checked.
const RULES_INTERVAL: Duration = Duration::from_secs(1);
/// How often the helper wakes up without events.
const TICK: Duration = Duration::from_millis(100);

/// Options of [`run`].
#[derive(Debug)]
pub struct RunOptions<'a> {
    /// How ACKs are thinned.
    pub settings: Settings,
    /// Arguments with which this program calls [`worker_main`](crate::worker_main).
    pub worker_arguments: Vec<String>,
    /// Output for a line when thinning begins.
    pub ready: Option<&'a mut dyn ReadyLine>,
    /// The server of metrics, if there is one.
    pub pages: Option<PagesOptions>,
    /// Called with each report of the worker, ten times a second.
    pub watch: Option<&'a mut dyn Watcher>,
}

/// The server of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagesOptions {
    /// A loopback address.
    pub listen: SocketAddr,
    /// Arguments with which this program calls [`pages_main`](crate::pages_main).
    pub arguments: Vec<String>,
}

/// Output for the line that thinning has begun.
pub trait ReadyLine: Write + std::fmt::Debug {}
impl<T: Write + std::fmt::Debug> ReadyLine for T {}

/// A recipient of the worker's reports.
pub trait Watcher: std::fmt::Debug {
    /// The newest report.
    fn handle_status(&mut self, status: &Status);
}

/// How a worker ended.
enum End {
    /// The helper received a signal to end.
    Told,
    /// It ended by itself, or hung and was ended.
    Fell(&'static str),
    /// Its interface was deleted. Another one of this name may be there by now.
    InterfaceGone,
}

/// Thins the ACKs that leave by an interface until SIGTERM, SIGINT or SIGHUP comes. Needs root, or
/// `CAP_NET_ADMIN` and `CAP_NET_RAW` of the network namespace.
///
/// # Errors
/// ACKs cannot be thinned at all. A worker that ends later is started again.
pub fn run(options: RunOptions<'_>) -> Result<(), Error> {
    logging::report_panics();
    logging::start_without_rights(LogSettings::default())
        .map_err(Error::system("start the thread of the log"))?;
    let result = thin(options);
    midspan_log::finish();
    result
}

fn thin(mut options: RunOptions<'_>) -> Result<(), Error> {
    let settings = &options.settings;
    let mut rules = settings.rules()?;
    let signals = Signals::catch().map_err(Error::system("set up signals"))?;
    // If a terminal stopped the helper, the helper would no longer watch the worker.
    signal_hook::flag::register(SIGTSTP, Arc::default())
        .map_err(Error::system("set up signals"))?;
    let mut notifier = Notifier::from_environment();
    let (_claim, removed) = rules.claim()?;
    if removed > 0 {
        info!("removed {removed} tables that an earlier run left behind");
    }
    let mut first = set_ack_first(settings)?;
    let user = user();
    let pages = options.pages.as_ref();
    let pages = pages.map(|pages| PagesProcess::start(pages.listen, &pages.arguments, user));
    let mut pages = pages.transpose()?;
    let mut has_run = false;
    loop {
        if has_run {
            if !wait_for_interface(&settings.interface, &signals, &mut notifier) {
                return Ok(());
            }
            if first.is_none() {
                first = set_ack_first(settings).unwrap_or_else(|error| {
                    error!("ACKs do not go first: {error}");
                    None
                });
            }
        }
        let interface = interface_index(&settings.interface).ok();
        let worker = Worker::start(settings, &options.worker_arguments, user)?;
        match worker.wait_until_ready(&signals, &mut notifier) {
            Err(End::Told) => return Ok(()),
            Err(_) if !has_run => return Err(Error::NotReady),
            Err(End::Fell(_) | End::InterfaceGone) => {}
            Ok(queue) => {
                rules = rules.with_queue(queue);
                let generation = install(&rules)?;
                let status = format!("thinning ACKs on {}", settings.interface);
                if !has_run && let Some(ready) = &mut options.ready {
                    let _ = writeln!(ready, "{status}");
                    let _ = ready.flush();
                }
                notifier.ready(&status);
                nftables::limit_waits();
                has_run = true;
                let mut supervision = Supervision {
                    rules: &rules,
                    name: &settings.interface,
                    interface,
                    generation,
                    signals: &signals,
                    notifier: &mut notifier,
                    pages: pages.as_mut(),
                    watcher: options.watch.as_deref_mut(),
                };
                let end = supervision.supervise(&worker);
                if matches!(end, Ok(End::Told)) {
                    notifier.stopping("removing the rules", None);
                }
                // First the rules that lead to the queue, then the queue.
                let removed = rules.remove();
                drop(worker);
                match end? {
                    End::Told => return Ok(removed?),
                    End::Fell(how) => {
                        removed?;
                        warn!("the worker {how}; ACKs pass, and it is started again");
                        notifier.status("ACKs pass: the worker is started again");
                    }
                    End::InterfaceGone => {
                        removed?;
                        // The queue went with the interface.
                        first = None;
                        let status =
                            format!("waiting: the interface {} is gone", settings.interface);
                        warn!("{status}");
                        notifier.status(&status);
                        continue;
                    }
                }
            }
        }
        let fell = Instant::now();
        while fell.elapsed() < RESTART_PAUSE {
            if has_ended(&signals) {
                return Ok(());
            }
            notifier.handle_time(Instant::now(), Duration::ZERO);
            std::thread::sleep(TICK);
        }
    }
}

/// The queue in which ACKs go first, if it is asked for.
fn set_ack_first(settings: &Settings) -> Result<Option<AckFirstQueue>, Error> {
    match settings.upstream {
        Some(upstream) if settings.ack_first => {
            Ok(Some(AckFirstQueue::set(&settings.interface, upstream)?))
        }
        _ => Ok(None),
    }
}

/// Waits until there is an interface of this name; `false` if a signal to end has come first.
fn wait_for_interface(name: &str, signals: &Signals, notifier: &mut Notifier) -> bool {
    while interface_index(name).is_err() {
        if has_ended(signals) {
            return false;
        }
        notifier.handle_time(Instant::now(), Duration::ZERO);
        std::thread::sleep(TICK);
    }
    true
}

/// Whether a signal to end has come.
fn has_ended(signals: &Signals) -> bool {
    // There is no configuration to be read again: each of the signals ends the helper.
    signals.take_end() || signals.take_reload()
}

/// The user of the other processes; `None` where they stay this one. In a user namespace there may be
/// no user `nobody`.
fn user() -> Option<User> {
    let may = rustix::process::getuid().is_root();
    (may && UserMap::read().outside(NOBODY.id).is_some()).then_some(NOBODY)
}

/// Sets the rules. Returns the ruleset's number with them, if no other program has changed the
/// ruleset meanwhile.
fn install(rules: &AcknowledgementRules) -> Result<Option<u32>, Error> {
    // One transaction.
    let generation = nftables::generation_after(|| rules.install().map(|()| 1))?;
    Ok(generation.number())
}

/// The worker process; it is killed when this value is dropped.
struct Worker(ChildProcess);

impl Worker {
    fn start(settings: &Settings, arguments: &[String], user: Option<User>) -> Result<Self, Error> {
        let process = ChildProcess::start("the worker", arguments, user, |_| {})?;
        message::send(process.connection(), settings, &[])?;
        Ok(Self(process))
    }

    /// The worker's next message, within `limit`: `Ok(None)` if there is none, `Err(())` if the worker
    /// has ended.
    fn hear(&self, limit: Duration) -> Result<Option<FromWorker>, ()> {
        let timeout = Timespec::try_from(limit).ok();
        let connection = self.0.connection();
        let mut descriptors = [PollFd::from_borrowed_fd(connection, PollFlags::IN)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(_) => return Err(()),
        }
        match message::receive(connection) {
            Ok(Some((message, _))) => Ok(Some(message)),
            Err(MessageError::Format(_)) => Ok(None),
            Ok(None) | Err(MessageError::Passing(_)) => Err(()),
        }
    }

    /// The number of the worker's queue as soon as it has one; how it ended where it does not get that far.
    fn wait_until_ready(&self, signals: &Signals, notifier: &mut Notifier) -> Result<u16, End> {
        let start = Instant::now();
        while start.elapsed() < READY_LIMIT {
            if has_ended(signals) {
                return Err(End::Told);
            }
            notifier.handle_time(Instant::now(), Duration::ZERO);
            match self.hear(TICK) {
                Ok(Some(FromWorker::Ready(queue))) => return Ok(queue),
                Ok(_) => {}
                Err(()) => return Err(End::Fell("has ended")),
            }
        }
        Err(End::Fell("did not get ready"))
    }
}

/// What the helper does while a worker thins ACKs.
struct Supervision<'a, 'w> {
    rules: &'a AcknowledgementRules,
    name: &'a str,
    /// The interface's index when the worker was started; an interface that is made again has another.
    interface: Option<u32>,
    /// The ruleset's number with the rules, if it is known.
    generation: Option<u32>,
    signals: &'a Signals,
    notifier: &'a mut Notifier,
    pages: Option<&'a mut PagesProcess>,
    watcher: Option<&'a mut (dyn Watcher + 'w)>,
}

impl Supervision<'_, '_> {
    /// Returns when the worker has ended or hangs, the interface is gone, or a signal has come.
    fn supervise(&mut self, worker: &Worker) -> Result<End, Error> {
        let mut lives = 0;
        let mut watch = Watch::of_beating(Instant::now(), TICK, PASS_AFTER, Absence::Pauses);
        let mut looked = Instant::now();
        loop {
            if has_ended(self.signals) {
                return Ok(End::Told);
            }
            match worker.hear(watch.next().saturating_duration_since(Instant::now())) {
                Ok(Some(FromWorker::Alive(status))) => {
                    lives += 1;
                    self.report(&status);
                }
                Ok(_) => {}
                Err(()) => return Ok(End::Fell("has ended")),
            }
            let now = Instant::now();
            watch.look(now, lives);
            self.notifier.handle_time(now, watch.still());
            if watch.must_end() {
                return Ok(End::Fell("hung and was ended"));
            }
            if interface_index(self.name).ok() != self.interface {
                return Ok(End::InterfaceGone);
            }
            if looked.elapsed() >= RULES_INTERVAL {
                looked = Instant::now();
                // Another program has changed the firewall, perhaps all of it.
                if nftables::generation().ok() != self.generation {
                    self.generation = install(self.rules)?;
                }
            }
        }
    }

    fn report(&mut self, status: &Status) {
        if let Some(pages) = &mut self.pages
            && let Some(ended) = pages.tell(status)
        {
            error!(
                "metrics are no longer available, because their process has ended ({ended}); \
                 ACKs are thinned as before"
            );
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.handle_status(status);
        }
    }
}
