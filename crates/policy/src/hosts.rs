//! The hosts of which something that was learned is listed or forgotten.
//!
//! Each such call returns or forgets at most a given number of entries, because the threads that decide
//! about connections wait meanwhile. A caller repeats the call until the rest is empty.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Bound;

use ipnet::IpNet;

use crate::prefix::host_prefix;

/// The hosts of which something is listed or forgotten: those with a prefix, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hosts(Option<IpNet>);

impl Hosts {
    /// All hosts.
    pub const ALL: Self = Self(None);

    /// The hosts with this prefix.
    #[must_use]
    pub fn with_prefix(prefix: IpNet) -> Self {
        Self(Some(prefix.trunc()))
    }

    /// Whether any of the hosts is in this network.
    #[must_use]
    pub fn are_in(&self, network: IpNet) -> bool {
        self.0
            .is_none_or(|prefix| prefix.contains(&network) || network.contains(&prefix))
    }

    /// The entries of these hosts, by [`host_prefix`], that come after `after`.
    pub(crate) fn entries<'a, V>(
        &self,
        map: &'a BTreeMap<IpNet, V>,
        after: Option<IpNet>,
    ) -> impl Iterator<Item = (&'a IpNet, &'a V)> {
        let ends = (self.0).map(|prefix| [prefix.network(), prefix.broadcast()].map(host_prefix));
        map.range(bounds(ends, after))
    }

    /// The same for a map with addresses.
    pub(crate) fn addresses<'a, V>(
        &self,
        map: &'a BTreeMap<IpAddr, V>,
        after: Option<IpAddr>,
    ) -> impl Iterator<Item = (&'a IpAddr, &'a V)> {
        let ends = (self.0).map(|prefix| [prefix.network(), prefix.broadcast()]);
        map.range(bounds(ends, after))
    }

    /// Removes at most `most` entries of these hosts from the map; returns how many. `order` loses all
    /// of these hosts, also those that are left for the next call: they are only about to be forgotten.
    pub(crate) fn forget<V>(
        &self,
        map: &mut BTreeMap<IpNet, V>,
        order: &mut VecDeque<IpNet>,
        most: usize,
    ) -> usize {
        let entries = self.entries(map, None).take(most);
        let networks: Vec<IpNet> = entries.map(|(network, _)| *network).collect();
        for network in &networks {
            map.remove(network);
        }
        if !networks.is_empty() {
            order.retain(|network| !self.are_in(*network));
        }
        networks.len()
    }
}

/// The bounds of a range from the first to the last key, without the keys up to `after`.
fn bounds<K: Ord + Copy>(ends: Option<[K; 2]>, after: Option<K>) -> (Bound<K>, Bound<K>) {
    match (ends, after) {
        (None, None) => (Bound::Unbounded, Bound::Unbounded),
        (None, Some(after)) => (Bound::Excluded(after), Bound::Unbounded),
        // A range must not begin behind its end.
        (Some([first, last]), Some(after)) if after >= first => {
            (Bound::Excluded(after.min(last)), Bound::Included(last))
        }
        (Some([first, last]), _) => (Bound::Included(first), Bound::Included(last)),
    }
}
