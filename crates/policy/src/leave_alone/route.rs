//! Routes from one client to one network of servers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::Request;
use crate::hosts::Hosts;
use crate::prefix::{host_prefix, site_prefix};

/// A route from one client (an IPv4 address, an IPv6 /64) to one prefix of servers (/24, /48).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The client's network; the bits after its prefix are zero.
    pub client: IpAddr,
    /// The servers' network; the bits after its prefix are zero.
    pub server: IpAddr,
}

impl Route {
    /// The route of a connection.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        Self::between(request.client.ip(), request.server.ip())
    }

    /// The route between two hosts.
    #[must_use]
    pub fn between(client: IpAddr, server: IpAddr) -> Self {
        Self {
            client: host_prefix(client).addr(),
            server: site_prefix(server).addr(),
        }
    }

    /// The entries whose routes have any of these hosts, after the route `after`.
    pub(super) fn entries<'a, V>(
        map: &'a BTreeMap<Self, V>,
        hosts: &'a Hosts,
        after: Option<Self>,
    ) -> impl Iterator<Item = (&'a Self, &'a V)> {
        let lower = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = map.range((lower, Bound::Unbounded));
        entries.filter(|(route, _)| route.has_any(hosts))
    }

    /// Whether any of these hosts is at either end.
    #[must_use]
    pub fn has_any(&self, hosts: &Hosts) -> bool {
        hosts.are_in(host_prefix(self.client)) || hosts.are_in(site_prefix(self.server))
    }
}
