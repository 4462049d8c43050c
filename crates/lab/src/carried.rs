//! Checks that the proxies carried the connections of a run.
//!
//! A transparent proxy that intercepts nothing behaves like plain routing, and the lab would
//! measure plain routing in the proxy's name. The nodes' kernels count opened connections: a proxy
//! opens a connection for each one that it carries, and a node that routes opens none.

use std::collections::BTreeSet;

use midspan_path::{NodeIndex, Path};

use crate::CaseKind;
use crate::tcp_counters::TcpCounters;

/// The proxies that carried too few connections: for each, a text with the number that it carried
/// and the number that the clients of the flows `group` opened through it, in a case of this kind.
/// `counters` has the counters of each node during the run, in the order of the path file.
pub(crate) fn missed(
    path: &Path,
    kind: CaseKind,
    group: &[usize],
    counters: &[TcpCounters],
) -> Vec<String> {
    let opened = |node: NodeIndex| {
        counters
            .get(node.0)
            .map_or(0, |counters| counters.connections_opened)
    };
    let proxies: BTreeSet<NodeIndex> = group
        .iter()
        .flat_map(|flow| kind.carriers(path, &path.flows[*flow]))
        .collect();
    proxies
        .into_iter()
        .filter_map(|proxy| {
            let expected = expected(path, kind, group, proxy, opened);
            let carried = opened(proxy);
            (carried < expected).then(|| {
                format!(
                    "the proxy \"{}\" carried {carried} connections of {expected}",
                    path.node(proxy).name
                )
            })
        })
        .collect()
}

/// The number of connections that a proxy had to carry. A client's kernel does not count by
/// destination. If all flows of a client pass the proxy, this client's counter is used; otherwise
/// one connection for each flow that passes it.
fn expected(
    path: &Path,
    kind: CaseKind,
    group: &[usize],
    proxy: NodeIndex,
    opened: impl Fn(NodeIndex) -> u64,
) -> u64 {
    let flows = || group.iter().map(|flow| &path.flows[*flow]);
    let clients: BTreeSet<NodeIndex> = flows().map(|flow| flow.from).collect();
    clients
        .into_iter()
        .map(|client| {
            let own = || flows().filter(|flow| flow.from == client);
            let through = own()
                .filter(|flow| kind.carriers(path, flow).contains(&proxy))
                .count();
            if through == own().count() {
                opened(client)
            } else {
                through as u64
            }
        })
        .sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use midspan_document::Source;

    use super::*;

    /// Two flows of one client; one of them does not pass the proxy.
    const PATH: &str = r#"
[[host]]
name = "client"
[[router]]
name = "router"
[[proxy]]
name = "proxy"
[[host]]
name = "near"
[[host]]
name = "far"
[[link]]
name = "a"
between = ["client", "router"]
[[link]]
name = "b"
between = ["router", "near"]
[[link]]
name = "c"
between = ["router", "proxy"]
[[link]]
name = "d"
between = ["proxy", "far"]
[[flow]]
name = "to far"
from = "client"
to = "far"
workload = "download"
size = "1 KB"
[[flow]]
name = "to near"
from = "client"
to = "near"
workload = "download"
size = "1 KB"
"#;

    fn counters(client: u64, proxy: u64) -> Vec<TcpCounters> {
        // Hosts, routers and proxies may be in any order in the path.
        let path = path();
        path.nodes
            .iter()
            .map(|node| TcpCounters {
                connections_opened: match node.name.as_str() {
                    "client" => client,
                    "proxy" => proxy,
                    _ => 0,
                },
                ..TcpCounters::default()
            })
            .collect()
    }

    fn path() -> Path {
        Path::read(&Source::new("test.toml", PATH)).unwrap()
    }

    #[test]
    fn a_proxy_must_carry_each_connection() {
        let path = path();
        assert!(missed(&path, CaseKind::Midspan, &[0], &counters(3, 3)).is_empty());
        let reasons = missed(&path, CaseKind::Midspan, &[0], &counters(3, 2));
        assert_eq!(reasons, ["the proxy \"proxy\" carried 2 connections of 3"]);
    }

    #[test]
    fn what_passes_elsewhere_is_not_asked_for() {
        let path = path();
        assert!(missed(&path, CaseKind::Midspan, &[1], &counters(3, 0)).is_empty());
        assert!(missed(&path, CaseKind::Midspan, &[0, 1], &counters(4, 1)).is_empty());
        assert_eq!(
            missed(&path, CaseKind::Midspan, &[0, 1], &counters(4, 0)).len(),
            1
        );
    }

    #[test]
    fn the_nodes_of_an_overlay_route_must_carry_each_connection() {
        let path = Path::load("triangle").unwrap();
        let counters = |carried: u64| -> Vec<TcpCounters> {
            let opened = |name: &str| match name {
                "client" => 2,
                "fra" => carried,
                _ => 2,
            };
            let nodes = path.nodes.iter();
            nodes
                .map(|node| TcpCounters {
                    connections_opened: opened(&node.name),
                    ..TcpCounters::default()
                })
                .collect()
        };
        let over = |route: &str, carried| {
            let kind = route.parse().unwrap();
            missed(&path, kind, &[0], &counters(carried))
        };
        assert!(over("overlay-static=sin", 0).is_empty());
        assert!(over("overlay-static=fra/sin", 2).is_empty());
        assert_eq!(
            over("overlay-static=fra/sin", 1),
            ["the proxy \"fra\" carried 1 connections of 2"]
        );
    }
}
