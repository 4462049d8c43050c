//! Tables that follow the main table, each with metrics of its own.

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
/// What to add and remove follows from this memory, not from a comparison with the kernel's
/// tables: the kernel shows some routes otherwise than they were given, and a comparison would
/// add and remove them for ever.
pub(super) struct Mirror {
    /// What the routes of each table carry.
    windows: BTreeMap<u32, MarkedRoute>,
    /// Of a fragmenter.
    device: Option<u32>,
    made: BTreeMap<Identity, Made>,
}

/// Routes of the main table that may be read besides those that are copied.
const UNCOUNTED: usize = 100;

/// A route's whole message.
type Identity = Vec<u8>;

/// A copy and what stands in the kernel for it.
struct Made {
    /// The copy, or the `throw` route in place of a copy that the kernel refused.
    route: RouteMessage,
    /// The kernel refused the copy itself.
    refused: bool,
}

/// What a table can hold once (but for different next hops): its number, family, prefix, type of
/// service and metric.
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

    /// Other tables and windows; the next update carries it out.
    pub fn set_windows(&mut self, windows: BTreeMap<u32, MarkedRoute>) {
        self.windows = windows;
    }

    /// Numbers of the tables, in order.
    pub fn tables(&self) -> impl Iterator<Item = u32> + '_ {
        self.windows.keys().copied()
    }

    /// Fails where one of the tables has a route at all: ours have been removed before.
    pub fn refuse_foreign_routes(&self, tables: &Tables) -> Result<(), InitialWindowError> {
        for &table in self.windows.keys() {
            let (found, _) = tables.some_routes(Which::Table(table), 1)?;
            if !found.is_empty() {
                return Err(InitialWindowError::TableInUse { table });
            }
        }
        Ok(())
    }

    /// Nothing stands in the kernel any more.
    pub fn forget(&mut self) {
        self.made.clear();
    }

    /// The next update tries again what the kernel refused before.
    pub fn retry_refused(&mut self) {
        for made in self.made.values_mut() {
            made.refused = false;
        }
    }

    /// Brings the tables in line with the main table; `None`, and nothing is changed, where that
    /// takes more than `limit` copies.
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
        // A throw route would hide the copy that is about to be added in its place; any other
        // old route stays until the new one is there.
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

    /// `None` where there are more than `limit`: no more of a long table is read than that.
    fn wanted(
        &self,
        tables: &Tables,
        limit: usize,
    ) -> Result<Option<BTreeMap<Identity, RouteMessage>>, InitialWindowError> {
        let most = limit / self.windows.len().max(1);
        // Routes that are not copied do not count, and are few.
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

    /// Forgets what is no longer wanted, what is to be tried again, and what has gone from the
    /// kernel's tables; returns what of it may still be there.
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

/// Adds a copy, or where the kernel refuses it a `throw` route in its place.
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

/// A route through a gateway needs the route that leads to the gateway.
fn wanted_in_order(
    wanted: BTreeMap<Identity, RouteMessage>,
) -> impl Iterator<Item = (Identity, RouteMessage)> {
    let (gateways, direct): (Vec<_>, Vec<_>) = wanted
        .into_iter()
        .partition(|(_, route)| needs_gateway(route));
    direct.into_iter().chain(gateways)
}

/// The routes that the kernel itself makes to the fragmenter's device are no way to anywhere.
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

/// The names by which a route is known, of any route.
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
