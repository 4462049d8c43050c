//! Tables that follow the main table; the routes of each table have metrics of their own.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use rtnetlink::packet_core::{Emitable, Nla};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage};

use super::copy::{copy_route, needs_gateway, throw_route};
use super::tables::{self, Tables};
use super::{InitialWindowError, MarkedRoute, Refreshed};
use crate::ours::OUR_ROUTES;
use midspan_linux::routing::{Which, table_of};
use rustix::io::Errno;

/// The copies that have been made.
///
/// The routes to add and to remove follow from this list, not from a comparison with the kernel's
/// tables. The kernel lists some routes differently from how they were added, so that a comparison
/// would add and remove them forever.
pub(super) struct Mirror {
    /// The metrics of the routes of each table.
    windows: BTreeMap<u32, MarkedRoute>,
    /// The index of the fragmenter's device.
    device: Option<u32>,
    made: BTreeMap<Identity, Made>,
}

/// How many routes that are not copied may be read from the main table, in addition to the copied
/// ones.
const UNCOUNTED: usize = 100;

/// A route's whole message.
type Identity = Vec<u8>;

/// A copy, and the route that the kernel has for it.
struct Made {
    /// The copy, or the `throw` route if the kernel refused the copy.
    route: RouteMessage,
    /// The kernel refused the copy itself.
    refused: bool,
}

/// The parts of a route by which the kernel distinguishes the routes of a table, apart from the
/// next hop: the table's number, family, prefix, type of service and metric.
type Key = (u32, u8, u8, u8, Vec<u8>, u32);

impl Mirror {
    pub fn new(windows: BTreeMap<u32, MarkedRoute>, device: Option<u32>) -> Self {
        Self {
            windows,
            device,
            made: BTreeMap::new(),
        }
    }

    pub const fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Sets the tables and their metrics. The next update changes the kernel's tables.
    pub fn set_windows(&mut self, windows: BTreeMap<u32, MarkedRoute>) {
        self.windows = windows;
    }

    /// Numbers of the tables, in order.
    pub fn tables(&self) -> impl Iterator<Item = u32> + '_ {
        self.windows.keys().copied()
    }

    /// Fails if one of the tables has any route. Midspan's own routes have been removed before.
    pub fn refuse_foreign_routes(&self, tables: &Tables) -> Result<(), InitialWindowError> {
        for &table in self.windows.keys() {
            let (found, _) = tables.some_routes(Which::Table(table), 1)?;
            if !found.is_empty() {
                return Err(InitialWindowError::TableInUse { table });
            }
        }
        Ok(())
    }

    /// The kernel's tables are empty now.
    pub fn forget(&mut self) {
        self.made.clear();
    }

    /// The next update tries the refused copies again.
    pub fn retry_refused(&mut self) {
        for made in self.made.values_mut() {
            made.refused = false;
        }
    }

    /// Makes the tables follow the main table. If that takes more than `limit` copies, returns
    /// `None` and changes nothing.
    pub fn update(
        &mut self,
        tables: &Tables,
        limit: usize,
    ) -> Result<Option<Refreshed>, InitialWindowError> {
        let Some(wanted) = self.wanted(tables, limit)? else {
            return Ok(None);
        };
        let present: BTreeSet<Key> = tables.routes(OUR_ROUTES)?.iter().map(key).collect();
        let mut done = Refreshed::default();
        let stale = self.take_stale(&wanted, &present);
        // A throw route would hide the new copy of the same route, and is removed first. Every
        // other old route stays until the new one is there.
        let (throws, others): (Vec<_>, Vec<_>) = stale
            .into_iter()
            .partition(|route| *route == throw_route(route));
        for route in &throws {
            done.removed += usize::from(tables.remove_route(route)?);
        }
        for (identity, copy) in wanted_in_order(wanted) {
            if let Entry::Vacant(entry) = self.made.entry(identity) {
                entry.insert(make(tables, copy)?);
                done.added += 1;
            }
        }
        for route in &others {
            done.removed += usize::from(tables.remove_route(route)?);
        }
        done.not_copied = self.made.values().filter(|made| made.refused).count();
        Ok(Some(done))
    }

    /// Returns `None` if there are more than `limit`. No more of a long table is read.
    fn wanted(
        &self,
        tables: &Tables,
        limit: usize,
    ) -> Result<Option<BTreeMap<Identity, RouteMessage>>, InitialWindowError> {
        let most = limit / self.windows.len().max(1);
        // Routes that are not copied do not count towards the limit, and are few.
        let (routes, were_more) = tables.some_routes(tables::MAIN, most + UNCOUNTED)?;
        let main: Vec<&RouteMessage> = routes
            .iter()
            .filter(|route| tables::is_configured(route))
            .filter(|route| {
                self.device
                    .is_none_or(|device| !leads_through(route, device))
            })
            .collect();
        if were_more || main.len() > most {
            return Ok(None);
        }
        let mut wanted = BTreeMap::new();
        for (table, window) in &self.windows {
            for route in &main {
                let copy = copy_route(route, *table, *window, self.device);
                wanted.insert(identity(&copy), copy);
            }
        }
        Ok(Some(wanted))
    }

    /// Removes from the list the copies that are no longer needed, that are to be tried again, or
    /// that are no longer in the kernel's tables. Returns the routes that may still be in the
    /// kernel's tables.
    fn take_stale(
        &mut self,
        wanted: &BTreeMap<Identity, RouteMessage>,
        present: &BTreeSet<Key>,
    ) -> Vec<RouteMessage> {
        let mut stale = Vec::new();
        self.made.retain(|identity, made| {
            let is_present = present.contains(&key(&made.route));
            let stands_for_copy = identity_differs(identity, &made.route) && !made.refused;
            let keep = is_present && wanted.contains_key(identity) && !stands_for_copy;
            if !keep && is_present {
                stale.push(made.route.clone());
            }
            keep
        });
        stale
    }
}

/// Adds a copy. If the kernel refuses it, adds a `throw` route instead.
fn make(tables: &Tables, copy: RouteMessage) -> Result<Made, InitialWindowError> {
    match tables.add_route(&copy) {
        Ok(()) => Ok(Made {
            route: copy,
            refused: false,
        }),
        Err(error) if error.is(Errno::PERM) => Err(error.into()),
        Err(_) => {
            let route = throw_route(&copy);
            tables.add_route(&route)?;
            Ok(Made {
                route,
                refused: true,
            })
        }
    }
}

/// A route through a gateway comes after the route that leads to the gateway.
fn wanted_in_order(
    wanted: BTreeMap<Identity, RouteMessage>,
) -> impl Iterator<Item = (Identity, RouteMessage)> {
    let (gateways, direct): (Vec<_>, Vec<_>) = wanted
        .into_iter()
        .partition(|(_, route)| needs_gateway(route));
    direct.into_iter().chain(gateways)
}

/// Whether the route is one that the kernel itself made for the fragmenter's device; such routes
/// lead nowhere else.
fn leads_through(route: &RouteMessage, device: u32) -> bool {
    route.attributes.contains(&RouteAttribute::Oif(device))
}

fn identity(route: &RouteMessage) -> Identity {
    let mut bytes = vec![0; route.buffer_len()];
    route.emit(&mut bytes);
    bytes
}

fn identity_differs(of: &Identity, route: &RouteMessage) -> bool {
    *of != identity(route)
}

/// The keys of a route, for any route.
#[cfg(feature = "fuzzing")]
pub(crate) fn names(route: &RouteMessage) {
    let (identity, key) = (identity(route), key(route));
    assert!(!identity.is_empty());
    assert_eq!(key.0, table_of(route));
}

fn key(route: &RouteMessage) -> Key {
    let mut destination = Vec::new();
    let mut priority = 0;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(_) => {
                destination = vec![0; attribute.value_len()];
                attribute.emit_value(&mut destination);
            }
            RouteAttribute::Priority(value) => priority = *value,
            _ => {}
        }
    }
    (
        table_of(route),
        u8::from(route.header.address_family),
        route.header.destination_prefix_length,
        route.header.tos,
        destination,
        priority,
    )
}
