//! Leaves routes alone: if the relay finds that splitting does not help on a route, new connections of this
//! route pass untouched for a while.
//!
//! The network can reach the relay process, so the helper limits its requests: the number of routes at once
//! and in all, how often, for how long, and which prefixes.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_gateway::interception::{Accounting, Pair};
use midspan_policy::leave_alone::Route;
use midspan_policy::prefix::{host_prefix, site_prefix};
use tracing::{info, warn};

use super::supervision::Supervisor;
use crate::control::ROUTES_AT_ONCE;

/// The least time between two changes of the rules, which run a program.
const PAUSE: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Makes connection tracking count the bytes of flows that pass untouched, if the control group
    /// needs this.
    pub(super) fn count_bytes(&mut self, wanted: bool) {
        if !wanted {
            return;
        }
        let table = &self.configuration.interception.numbers.table;
        let name = Accounting::NAME;
        match self.accounting.switch_on(table) {
            Ok(false) => {}
            Ok(true) => info!("{name} = 1, to measure the control group"),
            Err(error) => warn!(
                "the control group cannot be measured: {name} is 0 and cannot be changed: {error}"
            ),
        }
    }

    /// Leaves these routes alone from now on.
    pub(super) fn leave_alone(&mut self, routes: &[Route], now: Instant) {
        let time = self.configuration.interception.leave_alone_time;
        let is_late =
            (self.left_alone_at).is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
        let Some(guard) = &mut self.guard else {
            return;
        };
        if time == midspan_units::TimeSpan::ZERO || is_late {
            return;
        }
        let pairs: Vec<Pair> = routes
            .iter()
            .take(ROUTES_AT_ONCE)
            .filter_map(pair)
            .collect();
        if pairs.is_empty() {
            return;
        }
        self.left_alone_at = Some(now);
        for Pair { client, server } in &pairs {
            info!(
                client = %client.addr(),
                %server,
                %time,
                "splitting does not help here: new connections pass untouched for a while"
            );
        }
        guard.leave_alone(pairs, time.into());
    }
}

/// The route's prefixes; `None` for prefixes that no client or server can have.
fn pair(route: &Route) -> Option<Pair> {
    let (client, server) = (host_prefix(route.client), site_prefix(route.server));
    let is_host = |prefix: IpNet| {
        let address = prefix.addr();
        !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
    };
    let is_ipv4 = |prefix: IpNet| prefix.addr().is_ipv4();
    if is_ipv4(client) != is_ipv4(server) || !is_host(client) || !is_host(server) {
        return None;
    }
    Some(Pair { client, server })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_relay_asks_for_is_cut_to_its_prefixes() {
        let of = |client: &str, server: &str| {
            let route = Route {
                client: client.parse().unwrap(),
                server: server.parse().unwrap(),
            };
            let Pair { client, server } = pair(&route)?;
            Some((client.to_string(), server.to_string()))
        };
        let found = of("192.0.2.1", "198.51.100.7").unwrap();
        assert_eq!(found, ("192.0.2.1/32".into(), "198.51.100.0/24".into()));
        let found = of("2001:db8::1", "2001:db8:1:2::3").unwrap();
        assert_eq!(found, ("2001:db8::/64".into(), "2001:db8:1::/48".into()));
        assert_eq!(of("0.0.0.0", "198.51.100.7"), None);
        assert_eq!(of("192.0.2.1", "224.0.0.1"), None);
        assert_eq!(of("192.0.2.1", "2001:db8::1"), None);
        assert_eq!(of("127.0.0.1", "198.51.100.7"), None);
    }
}
