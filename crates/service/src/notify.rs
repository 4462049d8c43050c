//! Messages to systemd (sd_notify(3)). Each message is a datagram with lines of text, sent to the socket that
//! systemd names in the environment variable `NOTIFY_SOCKET`.
//!
//! Reason against the crate `sd-notify`: it opens a blocking socket for each notification, so a manager that
//! does not read would stop the helper.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tracing::debug;

/// If the child has sent nothing for this long, no sign of life is passed on. A child sends several
/// per second.
const CHILD_LIMIT: Duration = Duration::from_millis(2_500);

/// How much more time is requested while the daemon ends.
const EXTENSION: Duration = Duration::from_secs(30);
/// How often this is requested.
const EXTENSION_INTERVAL: Duration = Duration::from_secs(5);

/// The socket of the service manager, if it started this process.
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Watchdog>,
    /// While the daemon ends: its latest end, and the time of the next request.
    draining: Option<(Instant, Instant)>,
}

/// The manager ends a service that gives no sign of life for its time-out.
struct Watchdog {
    /// Half of the time-out.
    interval: Duration,
    next: Instant,
}

impl Notifier {
    /// From the environment variables.
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        let socket = variable("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name).ok()?,
                None => SocketAddr::from_pathname(&name).ok()?,
            };
            let socket = UnixDatagram::unbound().ok()?;
            // A manager that does not read must not block the helper.
            socket.set_nonblocking(true).ok()?;
            Some((socket, address))
        });
        let is_for_us =
            variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let timeout = variable("WATCHDOG_USEC").and_then(|time| time.parse::<u64>().ok());
        let now = Instant::now();
        let watchdog = timeout
            .filter(|timeout| *timeout > 0 && is_for_us && socket.is_some())
            .map(|timeout| Watchdog {
                interval: Duration::from_micros(timeout.div_ceil(2)),
                next: now,
            });
        Self {
            socket,
            watchdog,
            draining: None,
        }
    }

    /// The daemon does its work.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The configuration is being read; [`ready`](Self::ready) follows.
    pub fn reloading(&self) {
        let time = clock_gettime(ClockId::Monotonic);
        let microseconds = i128::from(time.tv_sec) * 1_000_000 + i128::from(time.tv_nsec) / 1_000;
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=reloading"
        ));
    }

    /// The daemon is about to end, at `until` at the latest. This requests more time repeatedly,
    /// because draining may take longer than the unit's TimeoutStopSec.
    pub fn stopping(&mut self, status: &str, until: Option<Instant>) {
        let extension = EXTENSION.as_micros();
        self.send(&format!(
            "STOPPING=1\nSTATUS={status}\nEXTEND_TIMEOUT_USEC={extension}"
        ));
        let again = Instant::now() + EXTENSION_INTERVAL;
        self.draining = until.map(|until| (until, again));
    }

    /// One line of text for the operator.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
    }

    /// When to call [`handle_time`](Self::handle_time) at the latest.
    pub fn next(&self) -> Option<Instant> {
        let watchdog = self.watchdog.as_ref().map(|watchdog| watchdog.next);
        let draining = self.draining.map(|(_, again)| again);
        watchdog.into_iter().chain(draining).min()
    }

    /// Passes a sign of life on, if it is due and the child lives; `still` is the time since the
    /// child's last sign of life.
    pub fn handle_time(&mut self, now: Instant, still: Duration) {
        if let Some((until, again)) = &mut self.draining
            && now >= *again
        {
            *again = now + EXTENSION_INTERVAL;
            if now <= *until {
                self.send(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
            } else {
                self.draining = None;
            }
        }
        let Some(watchdog) = &mut self.watchdog else {
            return;
        };
        if now < watchdog.next {
            return;
        }
        watchdog.next = now + watchdog.interval;
        if still <= watchdog.interval.max(CHILD_LIMIT) {
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(message.as_bytes(), address)
        {
            debug!("cannot send to the service manager \"{message}\": {error}");
        }
    }
}
