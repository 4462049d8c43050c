//! What the routes of a mark carry.

use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric};

/// `1 << RTAX_MTU` of <linux/rtnetlink.h>: the MTU is locked, path MTU discovery leaves it alone.
const LOCKED_MTU: u32 = 1 << 2;

/// What connections of one mark have by their routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MarkedRoute {
    /// Initial congestion window in segments (`initcwnd`); `None` leaves the host's.
    pub initial_window: Option<u32>,
    /// The MTU whatever the device and the path say (`mtu lock`), in bytes; IPv4 only. TCP then
    /// makes segments for this MTU, which IP cuts into fragments (Hasegawa §3).
    pub locked_mtu: Option<u32>,
}

impl From<u32> for MarkedRoute {
    /// An initial window and nothing else.
    fn from(window: u32) -> Self {
        Self {
            initial_window: Some(window),
            locked_mtu: None,
        }
    }
}

impl MarkedRoute {
    /// Gives `route` what it is to carry; other metrics stay.
    pub(super) fn set(self, route: &mut RouteMessage) {
        let mut metrics: Vec<RouteMetric> = Vec::new();
        route.attributes.retain(|attribute| match attribute {
            RouteAttribute::Metrics(present) => {
                metrics.extend(present.iter().cloned());
                false
            }
            _ => true,
        });
        if let Some(window) = self.initial_window {
            metrics.retain(|metric| !matches!(metric, RouteMetric::InitCwnd(_)));
            metrics.push(RouteMetric::InitCwnd(window));
        }
        // IPv6 does not fragment what TCP sends.
        if let Some(mtu) = self.locked_mtu
            && route.header.address_family == AddressFamily::Inet
        {
            let lock = |metric: &RouteMetric| match metric {
                RouteMetric::Lock(bits) => Some(*bits),
                _ => None,
            };
            let locked = metrics.iter().find_map(lock).unwrap_or(0);
            metrics.retain(|metric| lock(metric).is_none());
            metrics.retain(|metric| !matches!(metric, RouteMetric::Mtu(_)));
            metrics.push(RouteMetric::Lock(locked | LOCKED_MTU));
            metrics.push(RouteMetric::Mtu(mtu));
        }
        metrics.sort_by_key(Nla::kind);
        if !metrics.is_empty() {
            route.attributes.push(RouteAttribute::Metrics(metrics));
        }
    }
}
