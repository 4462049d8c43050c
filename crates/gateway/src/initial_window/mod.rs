//! The initial congestion window, and the MTU, of connections that carry a mark.
//!
//! Linux has no socket option for it. A route has one (`initcwnd` of `ip-route(8)`), and a mark on
//! a listener or on a socket that connects (`SO_MARK`) chooses by which table its packets are
//! routed (`ip-rule(8)`). So each initial window gets a mark, a rule and a table; the table is a
//! copy of the main one whose routes carry `initcwnd`. In the same way a mark can lead to routes
//! with a larger, locked MTU ([`MarkedRoute`]): TCP's segments then leave in IP fragments.
//!
//! The copy is exact where it matters: what cannot be copied (an unreachable destination, an
//! encapsulation that is not understood, a route through an interface that is down) becomes a
//! `throw` route, which sends the lookup on to the main table. So a marked connection is routed as
//! any other, at worst without its initial window. Destinations on this machine itself are in the
//! table `local`, which comes first, and are never affected.
//!
//! Everything made here carries the routing protocol number [`PROTOCOL`](crate::PROTOCOL) (`ip route show table
//! all proto 77`), and nothing without that number is ever removed. All of it needs
//! `CAP_NET_ADMIN` of the network namespace.

pub(crate) mod copy;
mod marks;
mod metrics;
pub(crate) mod mirror;
pub(crate) mod tables;

pub use marks::{MarkField, MarkFieldError};
pub use metrics::{MarkedRoute, ThroughDevice};
pub(crate) use tables::remove_all_routes;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

use thiserror::Error;

use crate::claim::{Claim, Kind};
use midspan_linux::netlink::NetlinkError;
use midspan_linux::route_watch::RouteWatch;
use mirror::Mirror;
use rustix::io::Errno;
use tables::Tables;

/// Most routes that are copied, all tables together. Beyond it there are no copies at all, and no
/// rules that lead to them: a route that is out of date would lead to a wrong place.
pub const ROUTE_LIMIT: usize = 10_000;

/// Once there were more, copies are made again where so many are enough.
const RESUME_LIMIT: usize = ROUTE_LIMIT - ROUTE_LIMIT / 10;

/// After so many updates in a row that failed, no copy is believed any more.
const FAILURES: u32 = 3;

/// Where marks, rules and tables are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The bits of a packet's mark that are ours.
    pub marks: MarkField,
    /// Number of the first routing table; further initial windows take the numbers that follow.
    pub table: u32,
    /// Priority of the rules; those before them in `ip rule` decide first.
    pub priority: u32,
}

/// Why initial windows cannot be set.
#[derive(Debug, Error)]
pub enum InitialWindowError {
    /// More values than the mark field has.
    #[error(
        "{wanted} different initial windows need as many marks, and the field {mask:#010x} has \
         {possible}: widen marks.mask, or use fewer different values"
    )]
    TooManyWindows {
        /// Different initial windows.
        wanted: usize,
        /// Marks that exist.
        possible: u32,
        /// Bits of the mark.
        mask: u32,
    },
    /// The table has routes of somebody else.
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
    /// Whether another process has the same tables cannot be found out.
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

/// What a [`refresh`](InitialWindows::refresh) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refreshed {
    /// Rules and routes added.
    pub added: usize,
    /// Rules and routes removed.
    pub removed: usize,
    /// Routes that cannot be copied now; their destinations go without an initial window.
    pub not_copied: usize,
}

/// Which window has which mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(Vec<(u8, MarkedRoute)>);

/// Initial windows in force; all is removed when this value goes.
///
/// The caller waits until [`changes`](Self::changes) is readable and then calls
/// [`refresh`](Self::refresh), and does so every some ten seconds anyway, since a notification
/// can be lost and another program may remove what is ours.
pub struct InitialWindows {
    place: Place,
    /// Group and segments, in the order of tables and marks.
    windows: Vec<(u8, MarkedRoute)>,
    mirror: Mirror,
    tables: Tables,
    watch: RouteWatch,
    /// There are no rules and copies for the time being.
    suspended: bool,
    /// Updates in a row that have failed.
    failures: u32,
    /// Tells other processes of this network namespace that the tables are in use.
    _claim: Claim,
}

impl InitialWindows {
    /// Puts `windows` (in segments) in force, in the network namespace of the calling thread.
    /// What an earlier run left behind is removed first.
    ///
    /// # Errors
    /// See [`InitialWindowError`]; nothing stays in force then.
    pub fn install(place: Place, windows: &BTreeSet<u32>) -> Result<Self, InitialWindowError> {
        let windows = windows.iter().map(|window| (0, (*window).into()));
        let windows = windows.collect();
        Self::install_groups(place, &windows)
    }

    /// As [`install`](Self::install), for windows each with the number of a group: connections of
    /// different groups have different marks, though their window be the same.
    ///
    /// # Errors
    /// See [`InitialWindowError`]; nothing stays in force then.
    pub fn install_groups(
        place: Place,
        windows: &BTreeSet<(u8, MarkedRoute)>,
    ) -> Result<Self, InitialWindowError> {
        Self::install_through(place, windows, None)
    }

    /// As [`install_groups`](Self::install_groups), where there is a fragmenter with a device of
    /// this index.
    ///
    /// # Errors
    /// See [`InitialWindowError`]; nothing stays in force then.
    pub fn install_through(
        place: Place,
        windows: &BTreeSet<(u8, MarkedRoute)>,
        device: Option<u32>,
    ) -> Result<Self, InitialWindowError> {
        let possible = place.marks.count();
        if u32::try_from(windows.len()).is_ok_and(|wanted| wanted > possible) {
            return Err(InitialWindowError::TooManyWindows {
                wanted: windows.len(),
                possible,
                mask: place.marks.mask(),
            });
        }
        let claim = claim(place)?;
        let tables = Tables::open()?;
        tables.remove_ours(place)?;
        let mirror = Mirror::new(
            (place.table..)
                .zip(windows.iter().map(|(_, window)| *window))
                .collect(),
            device,
        );
        mirror.refuse_foreign_routes(&tables)?;
        // Watching starts before the first look, so that no change falls between the two.
        let watch = RouteWatch::open().map_err(InitialWindowError::Watch)?;
        let mut installed = Self {
            place,
            windows: windows.iter().copied().collect(),
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

    /// Other windows from now on. A mark stays with its window while that is wanted; one that is
    /// not wanted any more stays reserved, since connections that exist carry it, until its group
    /// needs it for another window.
    ///
    /// # Errors
    /// See [`InitialWindowError`]; after `TooManyWindows` nothing has changed, after others some
    /// copies may be missing until the next [`refresh`](Self::refresh).
    pub fn change_groups(
        &mut self,
        wanted: &BTreeSet<(u8, MarkedRoute)>,
    ) -> Result<(), InitialWindowError> {
        let windows = reassign(&self.windows, wanted);
        let possible = self.place.marks.count();
        if u32::try_from(windows.len()).map_or(true, |wanted| wanted > possible) {
            return Err(InitialWindowError::TooManyWindows {
                wanted: windows.len(),
                possible,
                mask: self.place.marks.mask(),
            });
        }
        self.set_places(Places(windows))
    }

    /// Which window has which mark now, to [go back](Self::set_places) to it.
    #[must_use]
    pub fn places(&self) -> Places {
        Places(self.windows.clone())
    }

    /// Gives each window the mark that it had.
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
            (self.place.table..)
                .zip(windows.iter().map(|(_, window)| *window))
                .collect(),
        );
        self.windows = windows;
        self.update()?;
        // A copy that differs from an old one in its window alone is the old one to IPv6: where
        // that has gone with it, it is missing now.
        self.update()?;
        Ok(())
    }

    /// Whether there is a fragmenter's device.
    #[must_use]
    pub const fn has_device(&self) -> bool {
        self.mirror.has_device()
    }

    /// How many marks are taken.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.windows.len()
    }

    /// The marks of a group, of windows that are wanted and of those that were.
    pub fn marks_of_group(&self, group: u8) -> impl Iterator<Item = u32> + '_ {
        self.windows
            .iter()
            .zip(0..)
            .filter(move |((of, _), _)| *of == group)
            .filter_map(|(_, index)| self.place.marks.value(index))
    }

    /// The mark that gives a connection this initial window; `None` where it was not among those
    /// installed.
    #[must_use]
    pub fn mark(&self, window: u32) -> Option<u32> {
        self.mark_of_group(0, window)
    }

    /// The same in one of the [groups](Self::install_groups).
    #[must_use]
    pub fn mark_of_group(&self, group: u8, route: impl Into<MarkedRoute>) -> Option<u32> {
        let wanted = (group, route.into());
        let index = self.windows.iter().position(|value| *value == wanted)?;
        self.place.marks.value(u32::try_from(index).ok()?)
    }

    /// Readable when routes or rules have changed; not before the last refresh.
    #[must_use]
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.watch.descriptor()
    }

    /// [`changes`](Self::changes) is no longer readable for what has changed so far. For callers
    /// that wait a moment for more before they [`refresh`](Self::refresh).
    pub fn forget_changes(&self) {
        self.watch.forget();
    }

    /// Brings the copies in line with the main table. `thorough` also tries routes again that
    /// could not be copied before.
    ///
    /// # Errors
    /// Those of netlink; the copies may be incomplete until the next refresh.
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
            // The error that is returned says why.
            let _ = self.suspend();
        }
        result
    }

    /// Whether connections go without initial windows for the time being, by the main table alone:
    /// it has more routes than are copied, or the copies cannot be kept up to date.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Removes rules and copies; they come back with an update that goes well.
    fn suspend(&mut self) -> Result<usize, InitialWindowError> {
        let removed = self.tables.remove_ours(self.place)?;
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
                .and_then(|index| self.place.marks.value(index));
            rules.extend(mark.map(|mark| (mark, table)));
        }
        done.added += self.tables.ensure_rules(self.place, &rules)?;
        Ok(())
    }
}

/// Gives each wanted window a place, in which it stays; takes over places of its group that are
/// not wanted any more, then adds some.
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
        // Nobody is left to tell; what stays is harmless without marked sockets, and the next
        // run removes it.
        let _ = self.tables.remove_ours(self.place);
    }
}

/// A second run on the same table would remove what the first has set.
fn claim(place: Place) -> Result<Claim, InitialWindowError> {
    crate::claim::claim(Kind::InitialWindows, place.table)
        .map_err(InitialWindowError::Claim)?
        .ok_or(InitialWindowError::InUse { table: place.table })
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
