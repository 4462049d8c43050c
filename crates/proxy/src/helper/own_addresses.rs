//! Keeps the relay told which addresses are this machine's own, and which listeners forward to
//! themselves since an address became one.

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

/// Addresses change in groups: one look serves a whole one.
const DELAY: Duration = Duration::from_millis(30);
/// They are looked at even if nothing has been heard of them.
const INTERVAL: Duration = Duration::from_secs(10);
/// Until the next look after one that failed.
const RETRY: Duration = Duration::from_secs(1);
/// A look takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// What the relay has been told.
pub(super) struct MachineWatch {
    watch: AddressWatch,
    told: Machine,
    next: Instant,
    last: Instant,
    /// How long the last look took.
    took: Duration,
    failed: bool,
    no_ipv6: Option<ipv6::Missing>,
}

impl MachineWatch {
    /// Looks for the first time.
    ///
    /// # Errors
    /// Addresses cannot be watched.
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

    /// What the relay is to be told first.
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

    /// The next look is due now: the configuration is another.
    pub fn look_again(&mut self) {
        self.next = Instant::now();
    }

    /// Tells the relay where it is time and something is new; `changed` says that the watch is
    /// readable. Returns whether IPv6 has gone or come.
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
        // A relay that has ended is noticed elsewhere.
        if let Err(error) = relay.tell_machine(&machine) {
            warn!("the relay cannot be told of the machine's addresses: {error}");
            self.next = now + RETRY;
            return other_families;
        }
        self.say(configuration, &machine);
        self.told = machine;
        other_families
    }

    /// Says which listeners have begun to forward to themselves, and which no longer do.
    fn say(&self, configuration: &Configuration, machine: &Machine) {
        let began: BTreeSet<_> = machine.looping.difference(&self.told.looping).collect();
        for name in began {
            let listener = configuration
                .listeners
                .iter()
                .find(|of| of.relay.name == *name);
            let to = listener.and_then(|of| Some(of.forward()?.to));
            let to = to.map_or_else(String::new, |to| to.to_string());
            error!(
                listener = %name,
                to,
                "forwards to itself, since its server's address is this machine's now: its \
                 connections are refused; change the address, or `to`"
            );
        }
        for name in self.told.looping.difference(&machine.looping) {
            info!(listener = %name, "no longer forwards to itself");
        }
    }

    /// Says that IPv6 has gone or come, where that matters; whether it has.
    fn look_at_ipv6(&mut self, configuration: &Configuration) -> bool {
        let before = std::mem::replace(&mut self.no_ipv6, ipv6::missing());
        if before == self.no_ipv6 || configuration.transparent().next().is_none() {
            return false;
        }
        match self.no_ipv6 {
            Some(missing) => warn!("no IPv6 connections are taken any more: {missing}"),
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
