//! What runs in place of a congestion control that the simulator lacks.

use midspan_path::{NodeIndex, NodeKind, Path};

/// The congestion control that is replaced, by its kernel name.
const BBR: &str = "bbr";
/// The congestion control that runs in its place.
const CUBIC: &str = "cubic";

/// The senders of a path that have CUBIC in place of BBR.
#[derive(Debug, Clone, Default)]
pub struct Replaced {
    /// For each flow, the end host that sends its data, if it is concerned.
    hosts: Vec<Option<String>>,
    /// For each flow, the proxies that are concerned.
    proxies: Vec<Vec<String>>,
}

impl Replaced {
    /// What a reader must know about the results of a flow, with proxies or without.
    #[must_use]
    pub fn note(&self, flow: usize, proxies: bool) -> Option<String> {
        let host = self.hosts.get(flow).cloned().flatten();
        let of_proxies = self.proxies.get(flow).filter(|_| proxies);
        let names: Vec<String> = host
            .into_iter()
            .chain(of_proxies.into_iter().flatten().cloned())
            .map(|name| format!("\"{name}\""))
            .collect();
        let verb = if names.len() == 1 { "sends" } else { "send" };
        (!names.is_empty()).then(|| {
            format!(
                "{} {verb} with BBR on this path; the simulator lacks BBR, so CUBIC ran in its place",
                names.join(" and ")
            )
        })
    }
}

/// Replaces BBR by CUBIC at all hosts and proxies of a path.
pub fn cubic_for_bbr(path: &mut Path) -> Replaced {
    let mut replaced = Replaced::default();
    for flow in &path.flows {
        let is_upload = flow.workload.is_upload();
        let from = if is_upload { flow.from } else { flow.to };
        let name = |node: NodeIndex| path.node(node).name.clone();
        let is_bbr = |control: Option<&str>| control == Some(BBR);
        let of_host = match &path.node(from).kind {
            NodeKind::Host(settings) => is_bbr(settings.congestion_control.as_deref()),
            NodeKind::Router | NodeKind::Proxy(_) => false,
        };
        let of_proxy = |node: &NodeIndex| match &path.node(*node).kind {
            NodeKind::Proxy(settings) => {
                let outbound = if is_upload {
                    &settings.server_leg
                } else {
                    &settings.client_leg
                };
                is_bbr(outbound.congestion_control.as_deref())
            }
            NodeKind::Host(_) | NodeKind::Router => false,
        };
        let proxies = path.proxies_of(flow);
        replaced.hosts.push(of_host.then(|| name(from)));
        let concerned = proxies.into_iter().filter(of_proxy).map(name);
        replaced.proxies.push(concerned.collect());
    }
    for node in &mut path.nodes {
        let controls = match &mut node.kind {
            NodeKind::Host(settings) => vec![&mut settings.congestion_control],
            NodeKind::Proxy(settings) => vec![
                &mut settings.client_leg.congestion_control,
                &mut settings.server_leg.congestion_control,
            ],
            NodeKind::Router => Vec::new(),
        };
        for control in controls {
            if control.as_deref() == Some(BBR) {
                *control = Some(CUBIC.to_owned());
            }
        }
    }
    replaced
}
