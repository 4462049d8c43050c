//! Tests whether the host's firewall permits intercepted connections, at the start and after each
//! change.

use std::fs;
use std::time::{Duration, Instant};

use midspan_gateway::interception::probe::{Obstacle, Probe};
use midspan_linux::ipv6;
use midspan_linux::nftables;
use tracing::{debug, error, info, warn};

/// The least time between two tests, each of which runs programs.
const PAUSE: Duration = Duration::from_millis(500);
/// Time until the next test if the last one found obstacles or failed, or if changes of rules
/// cannot be noticed.
const RETRY: Duration = Duration::from_secs(5);
/// The least time between two tests if there are tables whose changes cannot be noticed.
const LEGACY_INTERVAL: Duration = Duration::from_secs(5);
/// Files that show whether iptables-legacy has tables, whose changes cannot be noticed.
const LEGACY_TABLES: [&str; 2] = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];

/// The state of the host's firewall.
pub(super) struct Firewall {
    probe: Probe,
    /// The number of the tested ruleset; `None` if it cannot be read.
    tried: Option<u32>,
    /// Whether there was IPv6 at that time.
    tried_ipv6: bool,
    obstacles: Vec<Obstacle>,
    /// Whether the last test failed.
    failed: bool,
    last: Instant,
    /// Whether rules changed so soon after the last test that the next one has to wait.
    waiting: bool,
}

impl Firewall {
    /// Makes the first test, and logs the result.
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

    /// Whether connections can be intercepted; also if this could not be found out.
    pub const fn lets_pass(&self) -> bool {
        self.obstacles.is_empty()
    }

    /// Number of obstacles.
    pub const fn obstacles(&self) -> usize {
        self.obstacles.len()
    }

    /// The number of changes of the ruleset that the tests have made.
    pub const fn changes(&self) -> u32 {
        self.probe.changes()
    }

    /// When to call [`look_again`](Self::look_again) even without a notification.
    pub fn next(&self) -> Option<Instant> {
        if self.waiting {
            return Some(self.last + PAUSE);
        }
        // If the kernel does not report the ruleset's number, changes are not noticed.
        let is_open = self.failed || self.tried.is_none() || !self.lets_pass();
        is_open.then_some(self.last + RETRY)
    }

    /// Tests again if rules have changed since the last test, or a test is due.
    pub fn look_again(&mut self, now: Instant) {
        let changed = nftables::generation().ok() != self.tried
            || ipv6::missing().is_none() != self.tried_ipv6;
        let due = self.next().is_some_and(|next| now >= next);
        // Routes may change several times per second, and each test runs programs.
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
        // Another program may have changed rules meanwhile.
        let is_clean = before.map(|before| before.wrapping_add(ours)) == after;
        self.tried = after;
        self.waiting = !is_clean;
        self.last = Instant::now();
        let failed = std::mem::replace(&mut self.failed, result.is_err());
        match result {
            Ok(obstacles) => self.report(obstacles),
            // A firewall reload may have removed the test's table.
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
