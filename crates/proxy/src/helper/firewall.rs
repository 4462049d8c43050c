//! Whether the host's firewall lets intercepted connections work, now and after each change.

use std::fs;
use std::time::{Duration, Instant};

use midspan_gateway::interception::probe::{Obstacle, Probe};
use midspan_linux::ipv6;
use midspan_linux::nftables;
use tracing::{debug, error, info, warn};

/// The least time between two tries, each of which runs programs.
const PAUSE: Duration = Duration::from_millis(500);
/// The time until the next try where the last one found obstacles, or came to nothing, or where it
/// cannot be told whether rules have changed.
const RETRY: Duration = Duration::from_secs(5);
/// The least time between two tries for tables whose changes nobody is told of.
const LEGACY_INTERVAL: Duration = Duration::from_secs(5);
/// Where iptables-legacy has tables, whose changes nobody is told of.
const LEGACY_TABLES: [&str; 2] = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];

/// What is known of the host's firewall.
pub(super) struct Firewall {
    probe: Probe,
    /// The number of the ruleset that has been tried; `None` where it cannot be read.
    tried: Option<u32>,
    /// IPv6 was there at that time.
    tried_ipv6: bool,
    obstacles: Vec<Obstacle>,
    /// The last try came to nothing.
    failed: bool,
    last: Instant,
    /// Rules have changed so soon after the last try that the next one waits.
    waiting: bool,
}

impl Firewall {
    /// Tries for the first time, and says what it finds.
    pub fn open(probe: Probe) -> Self {
        let mut firewall = Self {
            probe,
            tried: None,
            tried_ipv6: false,
            obstacles: Vec::new(),
            failed: false,
            last: Instant::now(),
            waiting: false,
        };
        firewall.look();
        firewall
    }

    /// Whether connections can be intercepted; also where that could not be found out.
    pub const fn lets_pass(&self) -> bool {
        self.obstacles.is_empty()
    }

    /// How much speaks against it.
    pub const fn obstacles(&self) -> usize {
        self.obstacles.len()
    }

    /// When to call [`look_again`](Self::look_again) though nothing is known to have changed.
    pub fn next(&self) -> Option<Instant> {
        if self.waiting {
            return Some(self.last + PAUSE);
        }
        // Where the kernel does not tell the ruleset's number, changes go unseen.
        let is_open = self.failed || self.tried.is_none() || !self.lets_pass();
        is_open.then_some(self.last + RETRY)
    }

    /// Tries again where rules are not the ones that have been tried, or a try is due.
    pub fn look_again(&mut self, now: Instant) {
        let changed = nftables::generation().ok() != self.tried
            || ipv6::missing().is_none() != self.tried_ipv6;
        let due = self.next().is_some_and(|next| now >= next);
        // Routes may change several times a second, and each try runs programs.
        let is_blind = now >= self.last + LEGACY_INTERVAL && has_legacy_tables();
        if due || (changed && now >= self.last + PAUSE) || (!changed && is_blind) {
            self.look();
        } else if changed {
            self.waiting = true;
        }
    }

    fn look(&mut self) {
        self.tried_ipv6 = ipv6::missing().is_none();
        let before = nftables::generation().ok();
        let changes = self.probe.changes();
        let result = self.probe.run();
        let ours = self.probe.changes().wrapping_sub(changes);
        let after = nftables::generation().ok();
        // Somebody else may have changed rules meanwhile.
        let is_clean = before.map(|before| before.wrapping_add(ours)) == after;
        self.tried = after;
        self.waiting = !is_clean;
        self.last = Instant::now();
        let failed = std::mem::replace(&mut self.failed, result.is_err());
        match result {
            Ok(obstacles) => self.report(obstacles),
            // Its table was removed under it, perhaps, by a firewall that is being reloaded.
            Err(error) if !is_clean => debug!("the firewall is tried again: {error}"),
            Err(_) if failed => {}
            Err(error) => warn!("whether the firewall lets connections pass is not known: {error}"),
        }
    }

    fn report(&mut self, obstacles: Vec<Obstacle>) {
        if obstacles == self.obstacles {
            return;
        }
        for obstacle in &obstacles {
            error!(
                "new connections pass untouched: {}; what is missing: {}",
                obstacle.finding(),
                obstacle.remedy()
            );
        }
        if obstacles.is_empty() {
            info!("the host's firewall lets intercepted connections pass again");
        }
        self.obstacles = obstacles;
    }
}

fn has_legacy_tables() -> bool {
    LEGACY_TABLES
        .iter()
        .any(|file| fs::read_to_string(file).is_ok_and(|names| !names.trim().is_empty()))
}
