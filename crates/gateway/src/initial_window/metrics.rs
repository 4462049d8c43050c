//! The metrics of the routes of a mark.

use serde::{Deserialize, Serialize};

use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteScope,
};

/// `1 << RTAX_MTU` of <linux/rtnetlink.h>: the MTU is locked, and path MTU discovery does not
/// change it.
const LOCKED_MTU: u32 = 1 << 2;

/// What connections get from the routes of their mark.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct MarkedRoute {
    /// Initial congestion window in segments (`initcwnd`); with `None`, the host's applies.
    pub initial_window: Option<u32>,
    /// The MTU in bytes, independent of the device and of path MTU discovery (`mtu lock`); IPv4
    /// only. TCP then makes segments for this MTU, and IP splits them into fragments (Hasegawa §3).
    pub locked_mtu: Option<u32>,
    /// Which packets leave by the fragmenter's device, if there is one.
    pub through_device: Option<ThroughDevice>,
}

/// The packets that leave by the device of a fragmenter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThroughDevice {
    /// IPv4 packets, too, leave by the device. IP itself could fragment them, but only for the MTU
    /// of the outgoing device.
    pub ipv4: bool,
    /// MTU of IPv6 on the device, in bytes. TCP makes segments for it.
    pub ipv6_mtu: u32,
}

impl From<u32> for MarkedRoute {
    /// A route with an initial window and no other metric.
    fn from(window: u32) -> Self {
        Self {
            initial_window: Some(window),
            locked_mtu: None,
            through_device: None,
        }
    }
}

impl MarkedRoute {
    /// Sets the metrics of `route`; its other metrics stay. `device` is the index of the
    /// fragmenter's device.
    pub(super) fn set(self, route: &mut RouteMessage, device: Option<u32>) {
        let is_four = route.header.address_family == AddressFamily::Inet;
        let through = self.through_device.zip(device);
        let through = through.filter(|(through, _)| !is_four || through.ipv4);
        if let Some((_, device)) = through {
            lead_through(route, device);
        }
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
        // IPv6 does not fragment TCP's packets.
        let mtu = match is_four {
            true => self.locked_mtu,
            false => through.map(|(through, _)| through.ipv6_mtu),
        };
        if let Some(mtu) = mtu {
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

/// Makes the route lead out of the device, behind which there is no gateway.
fn lead_through(route: &mut RouteMessage, device: u32) {
    route.attributes.retain(|attribute| {
        !matches!(
            attribute,
            RouteAttribute::Oif(_)
                | RouteAttribute::Gateway(_)
                | RouteAttribute::Via(_)
                | RouteAttribute::MultiPath(_)
                | RouteAttribute::NhId(_)
                | RouteAttribute::EncapType(_)
                | RouteAttribute::Encap(_)
        )
    });
    route.attributes.push(RouteAttribute::Oif(device));
    route.header.flags = RouteFlags::empty();
    if route.header.address_family == AddressFamily::Inet {
        route.header.scope = RouteScope::Link;
    }
}
