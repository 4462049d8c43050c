//! From a path file to scenarios.

use midspan_path::{
    Flow as PathFlow, HostSettings, NodeIndex, NodeKind, Order, Path, ProxySettings, Workload,
};
use midspan_policy::{Buffer, LegSettings};
use midspan_units::TimeSpan;

use super::{Flow, NodeId, Scenario, ScenarioError, Source, Split};
use crate::proxy::{Buffers, RelayConfiguration};
use crate::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};

/// What Linux's autotuning may advertise and keep unacknowledged at most: half of the third
/// number of `tcp_rmem`, and the third number of `tcp_wmem`, as Linux sets them.
const RECEIVE_WINDOW: u64 = 3 << 20;
const SEND_BUFFER: u64 = 4 << 20;
/// A packet at the network layer.
const PACKET: u32 = 1500;
/// Of a flow of fixed size: when it is given up.
const LONGEST: TimeSpan = TimeSpan::from_seconds(24 * 3600);

const KNOWN: &str = "cubic and reno";

impl Scenario {
    /// The scenarios of a path file, with its proxies or without: one for each flow where flows
    /// run in turn, one for all where they run together.
    ///
    /// TCP is set as Linux sets it, as far as the simulator models that: segments that fill
    /// packets of 1,500 bytes with timestamps, ten at first, CUBIC or Reno with SACK, time-outs
    /// of at least 200 ms, a delayed ACK after 40 ms. Windows are fixed at what autotuning
    /// would allow at most. A proxy's `pacing_rate` paces at the input of TCP. Its
    /// `notsent_lowat`, `keepalive` and `user_timeout` have no effect.
    ///
    /// # Errors
    /// A flow's workload is not one file or bulk data, or a congestion control is unknown.
    pub fn from_path(path: &Path, proxies: bool) -> Result<Vec<Self>, ScenarioError> {
        let flows: Vec<&PathFlow> = path.flows.iter().collect();
        let groups: Vec<&[&PathFlow]> = match path.order {
            Order::InTurn => flows.chunks(1).collect(),
            Order::Together => flows.chunks(flows.len().max(1)).collect(),
        };
        groups
            .into_iter()
            .map(|group| of_flows(path, group, proxies))
            .collect()
    }
}

fn of_flows(path: &Path, flows: &[&PathFlow], proxies: bool) -> Result<Scenario, ScenarioError> {
    let mut scenario = Scenario::new(path.seed, TimeSpan::ZERO);
    for node in &path.nodes {
        scenario.add_node(&node.name);
    }
    for link in &path.links {
        let [first, second] = link.between.map(|node| NodeId(node.0));
        scenario.add_link(&link.name, first, second, &link.up, &link.down);
    }
    for flow in flows {
        let flow = of_flow(path, flow, proxies)?;
        let end = flow.stop.map_or(LONGEST, |stop| flow.start + stop);
        scenario.duration = scenario.duration.max(end);
        scenario.add_flow(flow);
    }
    Ok(scenario)
}

fn of_flow(path: &Path, flow: &PathFlow, proxies: bool) -> Result<Flow, ScenarioError> {
    let unknown = |workload| {
        Err(ScenarioError::Workload {
            flow: flow.name.clone(),
            workload,
        })
    };
    let (source, stop) = match flow.workload {
        Workload::Download { size } | Workload::Upload { size } => (Source::Fixed(size), None),
        Workload::BulkDownload { duration } | Workload::BulkUpload { duration } => {
            (Source::Bulk, Some(duration))
        }
        Workload::RequestResponse { .. } => return unknown("request-response"),
        Workload::Page { .. } => return unknown("page"),
    };
    let upload = flow.workload.is_upload();
    let (from, to) = if upload {
        (flow.from, flow.to)
    } else {
        (flow.to, flow.from)
    };
    let mut splits = Vec::new();
    if proxies {
        for node in path.proxies_of(flow) {
            splits.push(split(path, node, upload)?);
        }
        // They come from the client's side on.
        if !upload {
            splits.reverse();
        }
    }
    Ok(Flow {
        name: flow.name.clone(),
        from: NodeId(from.0),
        to: NodeId(to.0),
        sender: host_sender(path, from)?,
        receiver: host_receiver(path, to),
        splits,
        source,
        start: flow.start,
        stop,
    })
}

fn host(path: &Path, node: NodeIndex) -> HostSettings {
    match &path.node(node).kind {
        NodeKind::Host(settings) => settings.clone(),
        NodeKind::Router | NodeKind::Proxy(_) => HostSettings::default(),
    }
}

fn host_sender(path: &Path, node: NodeIndex) -> Result<SenderConfiguration, ScenarioError> {
    let settings = host(path, node);
    let name = &path.node(node).name;
    Ok(SenderConfiguration {
        window_limit: settings
            .send_buffer
            .map_or(SEND_BUFFER, |size| size.bytes()),
        ..sender(
            path,
            name,
            settings.congestion_control.as_deref(),
            settings.initial_window,
        )?
    })
}

fn host_receiver(path: &Path, node: NodeIndex) -> ReceiverConfiguration {
    let settings = host(path, node);
    let window = settings.receive_buffer.map(|size| size.bytes() / 2);
    receiver(path, window)
}

/// A proxy's session: the legs by the direction of the data.
fn split(path: &Path, node: NodeIndex, upload: bool) -> Result<Split, ScenarioError> {
    let default = ProxySettings::default();
    let settings = match &path.node(node).kind {
        NodeKind::Proxy(settings) => &**settings,
        NodeKind::Host(_) | NodeKind::Router => &default,
    };
    let (inbound, outbound) = if upload {
        (&settings.client_leg, &settings.server_leg)
    } else {
        (&settings.server_leg, &settings.client_leg)
    };
    let name = &path.node(node).name;
    let control = outbound.congestion_control.as_deref();
    Ok(Split {
        node: NodeId(node.0),
        inbound: receiver(path, fixed(inbound.receive_buffer)),
        outbound: sender(path, name, control, outbound.initial_window)?,
        relay: relay(outbound),
    })
}

fn relay(outbound: &LegSettings) -> RelayConfiguration {
    RelayConfiguration {
        buffers: Buffers::Separate {
            send: fixed(outbound.send_buffer).unwrap_or(SEND_BUFFER),
        },
        service: None,
        pacing: outbound.pacing_rate,
    }
}

const fn fixed(buffer: Buffer) -> Option<u64> {
    match buffer {
        Buffer::Auto => None,
        Buffer::Fixed(size) => Some(size.bytes()),
    }
}

/// IP and TCP header, timestamps included.
const fn header_size(path: &Path) -> u32 {
    match path.family {
        midspan_path::Family::Ipv4 => 20 + 32,
        midspan_path::Family::Ipv6 => 40 + 32,
    }
}

fn sender(
    path: &Path,
    place: &str,
    congestion_control: Option<&str>,
    initial_window: Option<u32>,
) -> Result<SenderConfiguration, ScenarioError> {
    let variant = match congestion_control {
        None | Some("cubic") => Variant::Cubic,
        Some("reno") => Variant::Sack,
        Some(name) => {
            return Err(ScenarioError::CongestionControl {
                place: place.to_owned(),
                name: name.to_owned(),
                known: KNOWN,
            });
        }
    };
    Ok(SenderConfiguration {
        variant,
        segment_size: PACKET - header_size(path),
        header_size: header_size(path),
        initial_window: initial_window.unwrap_or(10),
        minimum_timeout: TimeSpan::from_milliseconds(200),
        maximum_timeout: TimeSpan::from_seconds(120),
        ..SenderConfiguration::default()
    })
}

fn receiver(path: &Path, window: Option<u64>) -> ReceiverConfiguration {
    ReceiverConfiguration {
        buffer: window.unwrap_or(RECEIVE_WINDOW),
        acknowledge: AckRule::Delayed {
            segments: 2,
            timeout: TimeSpan::from_milliseconds(40),
        },
        selective: true,
        header_size: header_size(path),
        segment_size: PACKET - header_size(path),
    }
}
