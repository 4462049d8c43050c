//! Sends this machine's addresses to the relay, and the listeners that forward to themselves
//! because an address was added.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use midspan_linux::ipv6;
use midspan_linux::own_addresses::{AddressWatch, OwnAddresses};
use midspan_relay::machine::Machine;
use tracing::{error, info, warn};

use super::relay_process::RelayProcess;
use crate::Error;
use crate::configuration::Configuration;

/// Addresses change in groups: one reading is enough for a group.
const DELAY: Duration = Duration::from_millis(30);
/// The addresses are read at least this often, even without a notification.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time to the next reading after one that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Readings take at most one part in this many of the time.
const SHARE: u32 = 20;

/// The state that was last sent to the relay.
pub(super) struct MachineWatch {
    watch: AddressWatch,
    told: Machine,
    next: Instant,
    last: Instant,
    /// Duration of the last reading.
    took: Duration,
    failed: bool,
    no_ipv6: Option<ipv6::Missing>,
}

impl MachineWatch {
    /// Reads the addresses for the first time.
    ///
    /// # Errors
    /// The addresses cannot be watched.
    pub fn open(configuration: &Configuration) -> Result<Self, Error> {
        // Watching starts before the first look, so that no change falls between the two.
        let watch = AddressWatch::open().map_err(Error::system("watch the machine's addresses"))?;
        let now = Instant::now();
        let mut addresses = Self {
            watch,
            told: Machine::default(),
            next: now,
            last: now,
            took: Duration::ZERO,
            failed: false,
            no_ipv6: ipv6::missing(),
        };
        addresses.told = addresses.look(configuration);
        Ok(addresses)
    }

    /// The first state for the relay.
    pub const fn machine(&self) -> &Machine {
        &self.told
    }

    /// Why there is no IPv6; `None` where there is.
    pub const fn no_ipv6(&self) -> Option<ipv6::Missing> {
        self.no_ipv6
    }

    /// Readable when addresses have changed.
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.watch.descriptor()
    }

    /// When to call [`handle`](Self::handle) at the latest.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Makes a reading due now, because the configuration has changed.
    pub fn look_again(&mut self) {
        self.next = Instant::now();
    }

    /// If a reading is due and something has changed, sends it to the relay; `changed`: the watch
    /// is readable. Returns whether IPv6 was added or removed.
    pub fn handle(
        &mut self,
        configuration: &Configuration,
        relay: &RelayProcess,
        changed: bool,
        now: Instant,
    ) -> bool {
        if changed && self.watch.take() {
            let look = (now + DELAY).max(self.last + self.took * SHARE);
            self.next = self.next.min(look);
        }
        if now < self.next {
            return false;
        }
        let other_families = self.look_at_ipv6(configuration);
        let machine = self.look(configuration);
        if machine == self.told {
            return other_families;
        }
        // Another part of the helper notices a relay that has ended.
        if let Err(error) = relay.send_machine(&machine) {
            warn!("cannot send the machine's addresses to the relay: {error}");
            self.next = now + RETRY;
            return other_families;
        }
        self.log_changes(configuration, &machine);
        self.told = machine;
        other_families
    }

    /// Logs which listeners have begun to forward to themselves, and which no longer do.
    fn log_changes(&self, configuration: &Configuration, machine: &Machine) {
        let began: BTreeSet<_> = machine.looping.difference(&self.told.looping).collect();
        for name in began {
            let listener = configuration
                .listeners
                .iter()
                .find(|of| of.relay.name == *name);
            let to = listener.and_then(|of| Some(of.forward()?.to.to_string()));
            let to = to.unwrap_or_default();
            error!(
                listener = %name,
                to,
                "forwards to itself, because its server's address now belongs to this machine: its \
                 connections are refused; change the address, or `to`"
            );
        }
        for name in self.told.looping.difference(&machine.looping) {
            info!(listener = %name, "no longer forwards to itself");
        }
    }

    /// Logs that IPv6 was added or removed, if the configuration needs it; returns whether it was.
    fn look_at_ipv6(&mut self, configuration: &Configuration) -> bool {
        let before = std::mem::replace(&mut self.no_ipv6, ipv6::missing());
        if before == self.no_ipv6 || configuration.transparent().next().is_none() {
            return false;
        }
        match self.no_ipv6 {
            Some(missing) => warn!("no IPv6 connections are intercepted any more: {missing}"),
            None => info!(
                "this machine has IPv6 again; listeners that were started without it take it at the \
                 next reload"
            ),
        }
        true
    }

    fn look(&mut self, configuration: &Configuration) -> Machine {
        let start = Instant::now();
        let own = OwnAddresses::read();
        self.last = Instant::now();
        self.took = self.last.saturating_duration_since(start);
        self.next = self.last + if own.is_ok() { INTERVAL } else { RETRY };
        if let Err(error) = &own
            && !self.failed
        {
            warn!(
                "the machine's addresses cannot be read: clients of SOCKS5 and HTTP listeners \
                 reach only servers that a rule of `access` names, until they can: {error}"
            );
        }
        self.failed = own.is_err();
        let own = own.ok();
        let is_own = |address| own.as_ref().is_none_or(|own| own.contains(address));
        let looping = configuration.loops(is_own).into_iter().flatten().collect();
        Machine { own, looping }
    }
}
