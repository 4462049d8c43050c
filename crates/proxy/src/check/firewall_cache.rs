//! Whether the listeners' `firewall_cache` can be used with the host's rules.

use super::{Context, Finding};
use crate::helper::firewall_cache_obstacles;

const CHECK: &str = "firewall_cache";

pub(super) fn finding(context: &Context<'_>) -> Option<Finding> {
    let mut listeners = context.configuration.transparent();
    if !listeners.any(|(_, transparent)| transparent.firewall_cache.is_some()) {
        return None;
    }
    Some(match firewall_cache_obstacles(context.configuration) {
        Ok(obstacles) if obstacles.is_empty() => Finding::ok(
            CHECK,
            "used: no rule of the host's chain FORWARD depends on earlier connections",
        ),
        Ok(obstacles) => Finding::warning(
            CHECK,
            format!("not used: {}", obstacles.join("; ")),
            "remove the key, or let the firewall decide by addresses, ports and interfaces only",
        ),
        Err(error) => Finding::warning(
            CHECK,
            format!("not known: {error}"),
            "run as root, with nft installed",
        ),
    })
}
