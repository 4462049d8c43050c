//! The helper: sets the rules and watches the worker.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use midspan_gateway::acknowledgement_queue::AcknowledgementRules;
use midspan_gateway::acknowledgements_first::AckFirstQueue;
use midspan_linux::{capability, descriptor_passing, nftables};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};

use crate::own_process::OwnProcess;
use crate::pages::PagesProcess;
use crate::worker::FromWorker;
use crate::{Error, Settings, Status};

/// A worker without a message for this time hangs; it sends five messages in this time.
const SILENCE_LIMIT: Duration = Duration::from_millis(500);
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
}

/// Thins the ACKs that leave by an interface until SIGTERM, SIGINT or SIGHUP comes. Needs root, or
/// `CAP_NET_ADMIN` and `CAP_NET_RAW` of the network namespace.
///
/// # Errors
/// ACKs cannot be thinned at all. A worker that ends later is started again.
pub fn run(options: RunOptions<'_>) -> Result<(), Error> {
    midspan_log::report_panics(midspan_log::say);
    // The thread of the log needs no privileges; privileges that cannot be given up stay.
    midspan_log::start(|| drop(capability::give_up_all_but(&[])))
        .map_err(Error::system("start the thread of the log"))?;
    let result = thin(options);
    midspan_log::finish();
    result
}

fn thin(mut options: RunOptions<'_>) -> Result<(), Error> {
    let settings = &options.settings;
    let rules = settings.rules()?;
    let told = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&told))
            .map_err(Error::system("set up signals"))?;
    }
    // If a terminal stopped the helper, the helper would no longer watch the worker.
    signal_hook::flag::register(SIGTSTP, Arc::default())
        .map_err(Error::system("set up signals"))?;
    let (_claim, removed) = rules.claim()?;
    if removed > 0 {
        midspan_log::say(&format!(
            "removed {removed} tables that an earlier run left behind"
        ));
    }
    let _first = match settings.upstream {
        Some(upstream) if settings.ack_first => {
            Some(AckFirstQueue::set(&settings.interface, upstream)?)
        }
        _ => None,
    };
    let pages = options.pages.as_ref();
    let pages = pages.map(|pages| PagesProcess::start(pages.listen, &pages.arguments));
    let mut pages = pages.transpose()?;
    let mut has_run = false;
    loop {
        let worker = Worker::start(settings, &options.worker_arguments)?;
        if !worker.wait_until_ready(&told)? {
            if told.load(Ordering::Relaxed) {
                return Ok(());
            }
            if !has_run {
                return Err(Error::NotReady);
            }
        } else {
            let generation = install(&rules)?;
            if !has_run && let Some(ready) = &mut options.ready {
                let _ = writeln!(ready, "thinning ACKs on {}", settings.interface);
                let _ = ready.flush();
            }
            has_run = true;
            let watch = options.watch.as_deref_mut();
            let end = worker.supervise(&rules, generation, &told, pages.as_mut(), watch);
            // First the rules that lead to the queue, then the queue.
            let removed = rules.remove();
            drop(worker);
            match end? {
                End::Told => return Ok(removed?),
                End::Fell(how) => {
                    removed?;
                    midspan_log::say(&format!(
                        "the worker {how}; ACKs pass, and it is started again"
                    ));
                }
            }
        }
        let fell = Instant::now();
        while fell.elapsed() < RESTART_PAUSE {
            if told.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Sets the rules. Returns the ruleset's number with them, if no other program has changed the
/// ruleset meanwhile.
fn install(rules: &AcknowledgementRules) -> Result<Option<u32>, Error> {
    // One transaction.
    let generation = nftables::generation_after(|| rules.install().map(|()| 1))?;
    Ok(generation.number())
}

/// The worker process; it is killed when this value is dropped.
struct Worker(OwnProcess);

impl Worker {
    fn start(settings: &Settings, arguments: &[String]) -> Result<Self, Error> {
        let process = OwnProcess::start(arguments, "start the worker (/proc/self/exe)")?;
        let bytes = serde_json::to_vec(settings)
            .map_err(|error| Error::system("write a message")(std::io::Error::other(error)))?;
        descriptor_passing::send(&process.connection, &bytes, &[])?;
        Ok(Self(process))
    }

    /// The worker's next message, within `limit`: `Ok(None)` if there is none, `Err(())` if the worker
    /// has ended.
    fn hear(&self, limit: Duration) -> Result<Option<FromWorker>, ()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut descriptors = [PollFd::new(&self.0.connection, PollFlags::IN)];
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(_) => return Err(()),
        }
        match descriptor_passing::receive(&self.0.connection) {
            Ok(Some(message)) => Ok(serde_json::from_slice(&message.bytes).ok()),
            _ => Err(()),
        }
    }

    fn wait_until_ready(&self, told: &AtomicBool) -> Result<bool, Error> {
        let start = Instant::now();
        while start.elapsed() < READY_LIMIT && !told.load(Ordering::Relaxed) {
            match self.hear(TICK) {
                Ok(Some(FromWorker::Ready)) => return Ok(true),
                Ok(_) => {}
                Err(()) => return Ok(false),
            }
        }
        Ok(false)
    }

    fn supervise(
        &self,
        rules: &AcknowledgementRules,
        mut generation: Option<u32>,
        told: &AtomicBool,
        mut pages: Option<&mut PagesProcess>,
        mut watch: Option<&mut (dyn Watcher + '_)>,
    ) -> Result<End, Error> {
        let mut heard = Instant::now();
        let mut looked = Instant::now();
        loop {
            if told.load(Ordering::Relaxed) {
                return Ok(End::Told);
            }
            match self.hear(TICK) {
                Ok(Some(FromWorker::Alive(status))) => {
                    heard = Instant::now();
                    if let Some(pages) = &mut pages
                        && let Some(ended) = pages.tell(&status)
                    {
                        midspan_log::say(&format!(
                            "metrics are no longer available, because their process has ended \
                             ({ended}); ACKs are thinned as before"
                        ));
                    }
                    if let Some(watch) = &mut watch {
                        watch.handle_status(&status);
                    }
                }
                Ok(_) => {}
                Err(()) => return Ok(End::Fell("has ended")),
            }
            if heard.elapsed() >= SILENCE_LIMIT {
                return Ok(End::Fell("hung and was ended"));
            }
            if looked.elapsed() >= RULES_INTERVAL {
                looked = Instant::now();
                // Another program has changed the firewall, perhaps all of it.
                if nftables::generation().ok() != generation {
                    generation = install(rules)?;
                }
            }
        }
    }
}
