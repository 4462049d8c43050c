//! Which sockets of which node send the data of a flow.

use std::net::{IpAddr, SocketAddr};

use midspan_path::{NodeIndex, Path};

use crate::CaseKind;

/// The sending end of a leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SendingEnd {
    /// The flow's position in the path file.
    pub flow: usize,
    /// The number of the leg, from 1, in the direction of the data.
    pub leg: usize,
    /// The node that sends.
    pub node: NodeIndex,
    /// Addresses that its socket may have: a transparent proxy sends with another node's address.
    local: Vec<IpAddr>,
    /// Addresses that its peer may have: those of the nodes that the data still has to reach.
    remote: Vec<IpAddr>,
}

impl SendingEnd {
    /// Whether a socket of the node with these addresses is this end.
    pub(super) fn is(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.local.contains(&local.ip()) && self.remote.contains(&remote.ip())
    }
}

/// The sending ends of the flows `group` under a case. `address` returns a node's address.
pub(super) fn sending_ends(
    path: &Path,
    case: CaseKind,
    group: &[usize],
    address: impl Fn(NodeIndex) -> IpAddr,
) -> Vec<SendingEnd> {
    let mut ends = Vec::new();
    for (index, flow) in group
        .iter()
        .filter_map(|at| Some((*at, path.flows.get(*at)?)))
    {
        let mut nodes = vec![flow.from];
        nodes.extend(case.carriers(path, flow));
        nodes.push(flow.to);
        if !flow.workload.is_upload() {
            nodes.reverse();
        }
        let addresses: Vec<IpAddr> = nodes.iter().map(|node| address(*node)).collect();
        for (leg, node) in (1..nodes.len()).zip(&nodes) {
            ends.push(SendingEnd {
                flow: index,
                leg,
                node: *node,
                local: addresses.clone(),
                remote: addresses[leg..].to_vec(),
            });
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use midspan_path::Workload;

    use super::*;

    fn address(node: NodeIndex) -> IpAddr {
        Ipv4Addr::new(10, 77, 0, u8::try_from(node.0 + 1).unwrap()).into()
    }

    fn at(path: &Path, node: &str, port: u16) -> SocketAddr {
        SocketAddr::new(address(path.find_node(node).unwrap()), port)
    }

    #[test]
    fn a_leg_is_the_socket_towards_the_receiver_of_the_data() {
        let path = Path::load("geo").unwrap();
        let [client, gateway, server] =
            ["client", "gateway", "server"].map(|name| at(&path, name, 9));
        let download = sending_ends(&path, CaseKind::Midspan, &[0], address);
        let nodes: Vec<_> = download.iter().map(|end| (end.leg, end.node)).collect();
        let node = |name| path.find_node(name).unwrap();
        assert_eq!(nodes, [(1, node("server")), (2, node("gateway"))]);
        // The server's socket, seen from a transparent proxy and from another one.
        assert!(download[0].is(server, client));
        assert!(download[0].is(server, gateway));
        // The proxy's socket towards the client, with the server's address or its own.
        assert!(download[1].is(server, client));
        assert!(download[1].is(gateway, client));
        // The proxy's socket towards the server only receives.
        assert!(!download[1].is(client, server));
        assert!(!download[1].is(gateway, server));
        let direct = sending_ends(&path, CaseKind::Direct, &[0], address);
        assert_eq!(direct.len(), 1);
    }

    #[test]
    fn an_upload_has_its_first_leg_at_the_client() {
        let mut path = Path::load("geo").unwrap();
        let size = path.flows[0].workload.total_size().unwrap();
        path.flows[0].workload = Workload::Upload { size };
        let ends = sending_ends(&path, CaseKind::Haproxy, &[0], address);
        let nodes: Vec<_> = ends.iter().map(|end| end.node).collect();
        assert_eq!(
            nodes,
            ["client", "gateway"].map(|name| path.find_node(name).unwrap())
        );
        let [client, gateway, server] =
            ["client", "gateway", "server"].map(|name| at(&path, name, 9));
        assert!(ends[0].is(client, gateway));
        assert!(ends[1].is(gateway, server) && !ends[1].is(gateway, client));
    }

    #[test]
    fn a_connection_to_itself_is_no_leg() {
        let path = Path::load("geo").unwrap();
        let ends = sending_ends(&path, CaseKind::Midspan, &[0], address);
        let server = at(&path, "server", 80);
        let loopback: SocketAddr = "127.0.0.1:5".parse().unwrap();
        assert!(!ends[0].is(server, server) && !ends[0].is(loopback, loopback));
    }
}
