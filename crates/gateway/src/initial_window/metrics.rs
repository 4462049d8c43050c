//! What the routes of a mark carry.

use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteScope,
};

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
    /// Where there is a device for packets that a program cuts into fragments: which of the
    /// packets go there.
    pub through_device: Option<ThroughDevice>,
}

/// What leaves by the device of a fragmenter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThroughDevice {
    /// IPv4 too, which IP itself could cut, but only for the MTU of the outgoing device.
    pub ipv4: bool,
    /// MTU of IPv6 on this way, in bytes: TCP makes segments for it.
    pub ipv6_mtu: u32,
}

impl From<u32> for MarkedRoute {
    /// An initial window and nothing else.
    fn from(window: u32) -> Self {
        Self {
            initial_window: Some(window),
            locked_mtu: None,
            through_device: None,
        }
    }
}

impl MarkedRoute {
    /// Gives `route` what it is to carry; other metrics stay. `device` is the fragmenter's.
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
        // IPv6 does not fragment what TCP sends.
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

/// Packets leave by a device at whose end no gateway is to be found.
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
