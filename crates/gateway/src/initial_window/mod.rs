//! The initial congestion window, and the MTU, of connections that have a mark.
//!
//! Linux has no socket option for the initial window. A route has one (`initcwnd` of
//! `ip-route(8)`), and the mark of a listener or of a connecting socket (`SO_MARK`) selects the
//! table by which its packets are routed (`ip-rule(8)`). Therefore each initial window gets a mark,
//! a rule and a table. The table is a copy of the main table, and its routes have `initcwnd`. In
//! the same way a mark can lead to routes with a larger, locked MTU ([`MarkedRoute`]): TCP's
//! segments then leave in IP fragments.
//!
//! A marked connection is routed like any other; in the worst case it has no initial window. Some
//! routes cannot be copied: an unreachable destination, an unknown encapsulation, a route through
//! an interface that is down. Such a route becomes a `throw` route, after which the kernel
//! continues the lookup in the main table. Destinations on this machine itself are in the table
//! `local`, which comes first, and are never affected.
//!
//! Each rule and route has the routing protocol number [`PROTOCOL`](crate::PROTOCOL) (`ip route
//! show table all proto 77`), and no rule or route without that number is ever removed. The process
//! needs `CAP_NET_ADMIN` in the network namespace.

pub(crate) mod copy;
mod marks;
mod metrics;
pub(crate) mod mirror;
mod raised;
pub(crate) mod tables;

pub use marks::{MarkField, MarkFieldError};
pub use metrics::{MarkedRoute, ThroughDevice};
pub use raised::{Raise, RaisedWindows, RaisingPlace};
pub(crate) use tables::remove_all_routes;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::claim::{Claim, Kind};
use midspan_linux::netlink::NetlinkError;
use midspan_linux::route_watch::RouteWatch;
use mirror::Mirror;
use rustix::io::Errno;
use tables::Tables;

/// The largest number of copied routes, all tables together. Beyond it there are no copies and no
/// rules that lead to them, because an outdated route would lead to a wrong place.
pub const ROUTE_LIMIT: usize = 10_000;

/// After the limit was exceeded, copies are made again when at most this many are needed.
const RESUME_LIMIT: usize = ROUTE_LIMIT - ROUTE_LIMIT / 10;

/// After this number of failed updates in a row, all copies are removed.
const FAILURES: u32 = 3;

/// The numbers that marks, rules and tables use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowNumbers {
    /// The bits of a packet's mark that belong to Midspan.
    pub marks: MarkField,
    /// Number of the first routing table. Further initial windows use the next numbers.
    pub table: u32,
    /// Priority of the rules. Rules before them in `ip rule` decide first.
    pub priority: u32,
}

/// Why initial windows cannot be set.
#[derive(Debug, Error)]
pub enum InitialWindowError {
    /// There are more values than marks in the field.
    #[error(
        "{wanted} different initial windows need as many marks, and the field {mask:#010x} has \
         {possible}: widen marks.mask, or use fewer different values"
    )]
    TooManyWindows {
        /// The number of different initial windows.
        wanted: usize,
        /// The number of marks in the field.
        possible: u32,
        /// The bits of the field.
        mask: u32,
    },
    /// The table has routes of another program.
    #[error(
        "routing table {table} has routes that are not Midspan's: choose another one with \
         marks.table"
    )]
    TableInUse {
        /// Number of the table.
        table: u32,
    },
    /// Another process has set initial windows with these tables.
    #[error(
        "another Midspan uses the routing tables from {table} on: stop it, or give this one \
         tables and marks of its own (marks.table, marks.mask)"
    )]
    InUse {
        /// Number of the first table.
        table: u32,
    },
    /// The process may not change routes.
    #[error(
        "initial_window needs CAP_NET_ADMIN to add routes and rules: run as root, give the \
         program the capability (setcap cap_net_admin+ep), or remove the key"
    )]
    NotPermitted,
    /// A request to the kernel failed.
    #[error(transparent)]
    Netlink(NetlinkError),
    /// Changes of routes cannot be watched.
    #[error("cannot watch the routing tables: {0}")]
    Watch(#[source] io::Error),
    /// Midspan cannot find out whether another process has the same tables.
    #[error("cannot make sure that no other Midspan uses the same tables: {0}")]
    Claim(#[source] io::Error),
}

impl From<NetlinkError> for InitialWindowError {
    fn from(error: NetlinkError) -> Self {
        if error.is(Errno::PERM) {
            Self::NotPermitted
        } else {
            Self::Netlink(error)
        }
    }
}

/// The changes that a [`refresh`](InitialWindows::refresh) made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refreshed {
    /// Rules and routes added.
    pub added: usize,
    /// Rules and routes removed.
    pub removed: usize,
    /// Routes that cannot be copied now. Connections to their destinations have no initial window.
    pub not_copied: usize,
}

/// The mark of each window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Places(Vec<(u8, MarkedRoute)>);

/// Initial windows in force. Dropping this value removes them.
///
/// The caller waits until [`changes`](Self::changes) is readable and then calls
/// [`refresh`](Self::refresh). It also calls `refresh` about every ten seconds, because a
/// notification can be lost, and another program may remove Midspan's rules and routes.
pub struct InitialWindows {
    numbers: WindowNumbers,
    /// Group and metrics of each mark, in the order of tables and marks.
    windows: Vec<(u8, MarkedRoute)>,
    mirror: Mirror,
    tables: Tables,
    watch: RouteWatch,
    /// Whether rules and copies are removed for the time being.
    suspended: bool,
    /// Updates in a row that have failed.
    failures: u32,
    /// Other processes of this network namespace see by this claim that the tables are in use.
    _claim: Claim,
}

impl InitialWindows {
    /// Puts `windows` (in segments) in force, in the network namespace of the calling thread.
    /// Leftovers of an earlier run are removed first.
    ///
    /// # Errors
    /// See [`InitialWindowError`]. After an error, nothing stays in force.
    pub fn install(
        numbers: WindowNumbers,
        windows: &BTreeSet<u32>,
    ) -> Result<Self, InitialWindowError> {
        let windows = windows.iter().map(|window| (0, (*window).into()));
        let windows = windows.collect();
        Self::install_groups(numbers, &windows)
    }

    /// Like [`install`](Self::install), for windows that each have the number of a group.
    /// Connections of different groups have different marks, even if their window is the same.
    ///
    /// # Errors
    /// See [`InitialWindowError`]. After an error, nothing stays in force.
    pub fn install_groups(
        numbers: WindowNumbers,
        windows: &BTreeSet<(u8, MarkedRoute)>,
    ) -> Result<Self, InitialWindowError> {
        Self::install_through(numbers, windows, None)
    }

    /// Like [`install_groups`](Self::install_groups), with a fragmenter whose device has this
    /// index.
    ///
    /// # Errors
    /// See [`InitialWindowError`]. After an error, nothing stays in force.
    pub fn install_through(
        numbers: WindowNumbers,
        windows: &BTreeSet<(u8, MarkedRoute)>,
        device: Option<u32>,
    ) -> Result<Self, InitialWindowError> {
        Self::install_at(numbers, Places::default(), windows, device)
    }

    /// Like [`install_through`](Self::install_through). Windows keep the marks that they have at these places, because
    /// existing connections have the marks.
    ///
    /// # Errors
    /// See [`InitialWindowError`]. After an error, nothing stays in force.
    pub fn install_at(
        numbers: WindowNumbers,
        Places(places): Places,
        windows: &BTreeSet<(u8, MarkedRoute)>,
        device: Option<u32>,
    ) -> Result<Self, InitialWindowError> {
        let windows = reassign(&places, windows);
        let possible = numbers.marks.count();
        if u32::try_from(windows.len()).is_ok_and(|wanted| wanted > possible) {
            return Err(InitialWindowError::TooManyWindows {
                wanted: windows.len(),
                possible,
                mask: numbers.marks.mask(),
            });
        }
        let claim = claim(numbers)?;
        let tables = Tables::open()?;
        tables.remove_ours(numbers)?;
        let mirror = Mirror::new(
            (numbers.table..)
                .zip(windows.iter().map(|(_, window)| *window))
                .collect(),
            device,
        );
        mirror.refuse_foreign_routes(&tables)?;
        // Watching starts before the first read, so that every change after the read is noticed.
        let watch = RouteWatch::open().map_err(InitialWindowError::Watch)?;
        let mut installed = Self {
            numbers,
            windows,
            mirror,
            tables,
            watch,
            suspended: false,
            failures: 0,
            _claim: claim,
        };
        installed.update()?;
        Ok(installed)
    }

    /// Removes the rules and copies of the former program of this process, which had these numbers. Its connections
    /// continue, and use the main table.
    ///
    /// # Errors
    /// A rule or a copy could not be removed.
    pub fn remove_former(numbers: WindowNumbers) -> Result<usize, InitialWindowError> {
        Tables::open()?.remove_ours(numbers)
    }

    /// Replaces the windows. A window keeps its mark as long as it is needed. The mark of a window
    /// that is no longer needed stays reserved, because existing connections have it, until its
    /// group needs the mark for another window.
    ///
    /// # Errors
    /// See [`InitialWindowError`]. After `TooManyWindows`, nothing has changed. After other errors,
    /// some copies may be missing until the next [`refresh`](Self::refresh).
    pub fn change_groups(
        &mut self,
        wanted: &BTreeSet<(u8, MarkedRoute)>,
    ) -> Result<(), InitialWindowError> {
        let windows = reassign(&self.windows, wanted);
        let possible = self.numbers.marks.count();
        if u32::try_from(windows.len()).map_or(true, |wanted| wanted > possible) {
            return Err(InitialWindowError::TooManyWindows {
                wanted: windows.len(),
                possible,
                mask: self.numbers.marks.mask(),
            });
        }
        self.set_places(Places(windows))
    }

    /// The current mark of each window, for a later [`set_places`](Self::set_places).
    #[must_use]
    pub fn places(&self) -> Places {
        Places(self.windows.clone())
    }

    /// Gives each window the mark that it had before.
    ///
    /// # Errors
    /// See [`InitialWindowError`]; some copies may be missing until the next
    /// [`refresh`](Self::refresh).
    pub fn set_places(&mut self, places: Places) -> Result<(), InitialWindowError> {
        let Places(windows) = places;
        if windows == self.windows {
            return Ok(());
        }
        self.mirror.set_windows(
            (self.numbers.table..)
                .zip(windows.iter().map(|(_, window)| *window))
                .collect(),
        );
        self.windows = windows;
        self.update()?;
        // For IPv6, the kernel treats a copy that differs from an old one only in its window as the
        // same route. Removing the old one has removed the new one too, so that it is missing now.
        self.update()?;
        Ok(())
    }

    /// Whether there is a fragmenter's device.
    #[must_use]
    pub const fn has_device(&self) -> bool {
        self.mirror.has_device()
    }

    /// The number of marks in use.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.windows.len()
    }

    /// The marks of a group, of current and of former windows.
    pub fn marks_of_group(&self, group: u8) -> impl Iterator<Item = u32> + '_ {
        self.windows
            .iter()
            .zip(0..)
            .filter(move |((of, _), _)| *of == group)
            .filter_map(|(_, index)| self.numbers.marks.value(index))
    }

    /// The mark that gives a connection this initial window; `None` if the window is not installed.
    #[must_use]
    pub fn mark(&self, window: u32) -> Option<u32> {
        self.mark_of_group(0, window)
    }

    /// Like [`mark`](Self::mark), for one of the [groups](Self::install_groups).
    #[must_use]
    pub fn mark_of_group(&self, group: u8, route: impl Into<MarkedRoute>) -> Option<u32> {
        let wanted = (group, route.into());
        let index = self.windows.iter().position(|value| *value == wanted)?;
        self.numbers.marks.value(u32::try_from(index).ok()?)
    }

    /// Readable when routes or rules have changed since the last refresh.
    #[must_use]
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.watch.descriptor()
    }

    /// After this, [`changes`](Self::changes) is not readable until something changes again. For
    /// callers that wait a moment for more changes before they [`refresh`](Self::refresh).
    pub fn forget_changes(&self) {
        self.watch.forget();
    }

    /// Makes the copies follow the main table. With `thorough`, routes that could not be copied
    /// before are tried again.
    ///
    /// # Errors
    /// The errors of netlink. The copies may be incomplete until the next refresh.
    pub fn refresh(&mut self, thorough: bool) -> Result<Refreshed, InitialWindowError> {
        self.watch.forget();
        if thorough {
            self.mirror.retry_refused();
        }
        let result = self.update();
        self.failures = match result {
            Ok(_) => 0,
            Err(_) => self.failures.saturating_add(1),
        };
        if self.failures == FAILURES {
            // The error that is returned contains the reason.
            let _ = self.suspend();
        }
        result
    }

    /// Whether connections have no initial windows for the time being, and use the main table
    /// alone: the table has more routes than are copied, or the copies cannot be kept up to date.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Removes rules and copies. The next successful update adds them again.
    fn suspend(&mut self) -> Result<usize, InitialWindowError> {
        let removed = self.tables.remove_ours(self.numbers)?;
        self.mirror.forget();
        self.suspended = true;
        Ok(removed)
    }

    fn update(&mut self) -> Result<Refreshed, InitialWindowError> {
        let limit = match self.suspended {
            true => RESUME_LIMIT,
            false => ROUTE_LIMIT,
        };
        // Routes come before the rules that lead to them.
        let Some(mut done) = self.mirror.update(&self.tables, limit)? else {
            let removed = match self.suspended {
                true => 0,
                false => self.suspend()?,
            };
            return Ok(Refreshed {
                removed,
                ..Refreshed::default()
            });
        };
        self.update_rules(&mut done)?;
        self.suspended = false;
        Ok(done)
    }

    fn update_rules(&self, done: &mut Refreshed) -> Result<(), InitialWindowError> {
        let mut rules = Vec::new();
        for (index, table) in self.mirror.tables().enumerate() {
            let mark = u32::try_from(index)
                .ok()
                .and_then(|index| self.numbers.marks.value(index));
            rules.extend(mark.map(|mark| (mark, table)));
        }
        done.added += self.tables.ensure_rules(self.numbers, &rules)?;
        Ok(())
    }
}

/// Gives each needed window a place, and keeps the place that it has. New windows first reuse
/// places of their group that are no longer needed; then places are added.
fn reassign(
    present: &[(u8, MarkedRoute)],
    wanted: &BTreeSet<(u8, MarkedRoute)>,
) -> Vec<(u8, MarkedRoute)> {
    let mut places = present.to_vec();
    for window in wanted {
        if places.contains(window) {
            continue;
        }
        let free = places
            .iter_mut()
            .find(|old| old.0 == window.0 && !wanted.contains(old));
        match free {
            Some(old) => *old = *window,
            None => places.push(*window),
        }
    }
    places
}

impl Drop for InitialWindows {
    fn drop(&mut self) {
        // At a drop, an error cannot be returned. Remaining rules and routes are harmless without
        // marked sockets, and the next run removes them.
        let _ = self.tables.remove_ours(self.numbers);
    }
}

/// Claims the tables. A second run on the same table would remove what the first has set.
fn claim(numbers: WindowNumbers) -> Result<Claim, InitialWindowError> {
    crate::claim::claim(Kind::InitialWindows, numbers.table)
        .map_err(InitialWindowError::Claim)?
        .ok_or(InitialWindowError::InUse {
            table: numbers.table,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_keeps_its_place_and_a_place_its_group() {
        let of = |(group, window): (u8, u32)| (group, MarkedRoute::from(window));
        let present = [(0, 10), (0, 20), (1, 30)].map(of);
        let wanted = [(0, 20), (0, 40), (1, 50), (1, 60), (2, 20)].map(of);
        let places = reassign(&present, &BTreeSet::from(wanted));
        let expected = [(0, 40), (0, 20), (1, 50), (1, 60), (2, 20)].map(of);
        assert_eq!(places, expected);
        assert_eq!(reassign(&places, &BTreeSet::new()), places);
    }
}
