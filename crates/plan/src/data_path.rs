//! A unidirectional path, with the properties that the analysis needs.

use std::num::NonZeroU32;

use midspan_link::{Configuration, LossPattern, QueueLimit};
use midspan_model::leg::{Leg, Transport};
use midspan_model::overlay::ChainedLeg;
use midspan_model::path::{Hop, Path as Hops};
use midspan_model::response::Response;
use midspan_model::window::Recovery;
use midspan_path::{
    Family, Flow, Hop as Step, HostSettings, NodeIndex, NodeKind, Path, ProxySettings, mean_rate,
};
use midspan_policy::{Buffer, LegSettings};
use midspan_units::{BitRate, ByteSize};

use crate::PlanError;

/// The most that Linux advertises and keeps unacknowledged by default: half of the third number of
/// `tcp_rmem`, and the third number of `tcp_wmem`.
pub const RECEIVE_WINDOW: ByteSize = ByteSize::from_bytes(3 << 20);
/// See [`RECEIVE_WINDOW`].
pub const SEND_BUFFER: ByteSize = ByteSize::from_bytes(4 << 20);
/// Initial window of Linux in segments (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;
/// Bytes of a packet on an ordinary path.
pub const PACKET: u32 = 1500;
/// A rate that is never the limit, for links without one.
pub(crate) const NO_LIMIT: BitRate = match BitRate::from_bits_per_second(100_000_000_000) {
    Some(rate) => rate,
    None => panic!("a rate above zero"),
};
/// Segments for each ACK of an ordinary receiver (RFC 9293 §3.8.6.3).
pub const DELAYED_ACK: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The path of data from one host to another.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPath {
    /// Whether the data goes from client to server.
    pub upload: bool,
    /// The nodes' names, from the sender of the data to its receiver.
    pub nodes: Vec<String>,
    /// The links' names: one less than nodes.
    pub links: Vec<String>,
    /// The links for the analysis, without framing: see `overheads`.
    pub hops: Hops,
    /// Bytes that each link adds to a packet.
    pub overheads: Vec<u32>,
    /// Packets or bytes that may wait before each link.
    pub queues: Vec<QueueLimit>,
    /// The proxies: their positions in `nodes`, and their settings.
    pub proxies: Vec<ProxyOnPath>,
    /// The settings of the sender.
    pub sender: HostSettings,
    /// The settings of the receiver.
    pub receiver: HostSettings,
    /// Bytes of IP and TCP headers with timestamps.
    pub headers: u32,
    /// The assumptions, in one sentence each.
    pub assumptions: Vec<String>,
}

/// A proxy on a unidirectional path.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyOnPath {
    /// Its position in the nodes of the unidirectional path, from 1.
    pub position: usize,
    /// The settings of its inbound leg.
    pub inbound: LegSettings,
    /// The settings of its outbound leg.
    pub outbound: LegSettings,
}

impl ProxyOnPath {
    /// A proxy with these settings at this position.
    fn new(position: usize, settings: &ProxySettings, upload: bool) -> Self {
        let (client, server) = (&settings.client_leg, &settings.server_leg);
        let (inbound, outbound) = if upload {
            (client, server)
        } else {
            (server, client)
        };
        Self {
            position,
            inbound: inbound.clone(),
            outbound: outbound.clone(),
        }
    }
}

impl DataPath {
    /// The unidirectional paths of the flows of `path`, each once. If the path has no flows: the download from
    /// its last host to its first.
    ///
    /// # Errors
    /// The path has fewer than two hosts.
    pub fn of_path(path: &Path) -> Result<Vec<Self>, PlanError> {
        Self::ends_of_path(path)?
            .into_iter()
            .map(|(from, to, upload)| Self::new(path, from, to, upload))
            .collect()
    }

    /// Client and server of each of these unidirectional paths, and whether the data goes to the server.
    pub(crate) fn ends_of_path(
        path: &Path,
    ) -> Result<Vec<(NodeIndex, NodeIndex, bool)>, PlanError> {
        let mut seen: Vec<(NodeIndex, NodeIndex, bool)> = Vec::new();
        for flow in &path.flows {
            let key = (flow.from, flow.to, flow.workload.is_upload());
            if !seen.contains(&key) {
                seen.push(key);
            }
        }
        if seen.is_empty() {
            let hosts: Vec<NodeIndex> = path.hosts().map(|(index, _)| index).collect();
            let (Some(first), Some(last)) = (hosts.first(), hosts.last()) else {
                return Err(PlanError::Hosts);
            };
            if first == last {
                return Err(PlanError::Hosts);
            }
            seen.push((*first, *last, false));
        }
        Ok(seen)
    }

    /// The unidirectional path of one flow.
    ///
    /// # Errors
    /// Its two hosts are not connected.
    pub fn of_flow(path: &Path, flow: &Flow) -> Result<Self, PlanError> {
        Self::new(path, flow.from, flow.to, flow.workload.is_upload())
    }

    fn new(
        path: &Path,
        client: NodeIndex,
        server: NodeIndex,
        upload: bool,
    ) -> Result<Self, PlanError> {
        let (from, to) = if upload {
            (client, server)
        } else {
            (server, client)
        };
        let steps = path.way(from, to);
        let proxies = steps
            .iter()
            .enumerate()
            .filter_map(|(index, step)| match &path.node(step.node).kind {
                NodeKind::Proxy(settings) => Some(ProxyOnPath::new(index + 1, settings, upload)),
                NodeKind::Host(_) | NodeKind::Router => None,
            })
            .collect();
        Self::of_steps(path, [from, to], &steps, upload, proxies)
    }

    /// The unidirectional path of a session that passes `stops`, the one nearest to the client first, and is split at
    /// each. Between two of them its packets take the way over the fewest links.
    ///
    /// # Errors
    /// Two neighbours of the route are the same node, or are not connected.
    pub fn through(
        path: &Path,
        [client, server]: [NodeIndex; 2],
        upload: bool,
        stops: &[(NodeIndex, &ProxySettings)],
    ) -> Result<Self, PlanError> {
        let mut ends: Vec<NodeIndex> = vec![client];
        ends.extend(stops.iter().map(|(node, _)| *node));
        ends.push(server);
        let mut settings: Vec<&ProxySettings> =
            stops.iter().map(|(_, settings)| *settings).collect();
        if !upload {
            ends.reverse();
            settings.reverse();
        }
        let (mut steps, mut proxies) = (Vec::new(), Vec::new());
        for (index, pair) in ends.windows(2).enumerate() {
            let way = path.way(pair[0], pair[1]);
            if way.is_empty() {
                let name = |node: NodeIndex| path.node(node).name.clone();
                return Err(PlanError::NoWay {
                    from: name(pair[0]),
                    to: name(pair[1]),
                });
            }
            steps.extend(way);
            if let Some(settings) = settings.get(index) {
                proxies.push(ProxyOnPath::new(steps.len(), settings, upload));
            }
        }
        let outer = [ends[0], ends[ends.len() - 1]];
        Self::of_steps(path, outer, &steps, upload, proxies)
    }

    /// The path over these steps, with these proxies.
    fn of_steps(
        path: &Path,
        [from, to]: [NodeIndex; 2],
        steps: &[Step],
        upload: bool,
        proxies: Vec<ProxyOnPath>,
    ) -> Result<Self, PlanError> {
        let names = std::iter::once(from).chain(steps.iter().map(|hop| hop.node));
        let mut assumptions = Vec::new();
        let mut changing = Vec::new();
        let mut averaged = Vec::new();
        let mut lossy_back = Vec::new();
        let mut hops = Vec::new();
        for step in steps {
            let link = path.link(step.link);
            let (there, back) = (
                link.direction(step.direction),
                link.direction(step.direction.other()),
            );
            hops.push(hop(there, back));
            if [there, back].into_iter().any(Configuration::changes) {
                changing.push(link.name.as_str());
            }
            if there.losses != LossPattern::Independent {
                averaged.push(link.name.as_str());
            }
            if back.mean_loss(PACKET).as_f64() > 0.0 {
                lossy_back.push(link.name.as_str());
            }
        }
        if !changing.is_empty() {
            assumptions.push(format!(
                "{} changes over time: its rate is averaged, its delay and loss are those at the \
                 start",
                changing.join(", ")
            ));
        }
        if !averaged.is_empty() {
            assumptions.push(format!(
                "packets on {} are lost independently, with the mean probability of its losses",
                averaged.join(", ")
            ));
        }
        if !lossy_back.is_empty() {
            assumptions.push(format!(
                "lost ACKs on {} are left out: the next ACK makes up for one",
                lossy_back.join(", ")
            ));
        }
        let directions = |index: usize| {
            let step = steps[index];
            path.link(step.link).direction(step.direction)
        };
        let data_path = Self {
            upload,
            nodes: names.map(|index| path.node(index).name.clone()).collect(),
            links: steps
                .iter()
                .map(|hop| path.link(hop.link).name.clone())
                .collect(),
            hops: Hops::new(hops)?,
            overheads: (0..steps.len())
                .map(|index| directions(index).overhead)
                .collect(),
            queues: (0..steps.len())
                .map(|index| directions(index).queue)
                .collect(),
            proxies,
            sender: host(path, from),
            receiver: host(path, to),
            headers: header_size(path.family),
            assumptions,
        };
        Ok(data_path.with_assumed_senders())
    }

    fn with_assumed_senders(mut self) -> Self {
        let mut say = |place: &str, name: Option<&str>| match name {
            None => self
                .assumptions
                .push(format!("{place} sends with CUBIC, the default of Linux")),
            Some(name) if response(Some(name)).is_none() => self.assumptions.push(format!(
                "{place}: there is no formula for \"{name}\", CUBIC's is taken"
            )),
            Some(_) => {}
        };
        say(&self.nodes[0], self.sender.congestion_control.as_deref());
        for proxy in &self.proxies {
            let place = self.nodes.get(proxy.position).map_or("", String::as_str);
            say(place, proxy.outbound.congestion_control.as_deref());
        }
        self
    }

    /// "server to client".
    #[must_use]
    pub fn name(&self) -> String {
        let end = |name: Option<&String>| name.cloned().unwrap_or_default();
        format!("{} to {}", end(self.nodes.first()), end(self.nodes.last()))
    }

    /// The legs with the proxies of the path.
    ///
    /// # Errors
    /// None for a unidirectional path that [`DataPath::of_path`] made.
    pub fn split(&self) -> Result<Vec<ChainedLeg>, PlanError> {
        self.legs(&self.proxies)
    }

    /// The one leg without proxies.
    ///
    /// # Errors
    /// None for a unidirectional path that [`DataPath::of_path`] made.
    pub fn direct(&self) -> Result<Vec<ChainedLeg>, PlanError> {
        self.legs(&[])
    }

    /// The legs into which `proxies` divide the path. The proxies are in the order of their positions.
    ///
    /// # Errors
    /// The position of a proxy is not between the two hosts, or is not after that of the proxy before.
    pub fn legs(&self, proxies: &[ProxyOnPath]) -> Result<Vec<ChainedLeg>, PlanError> {
        let positions: Vec<usize> = proxies.iter().map(|proxy| proxy.position).collect();
        self.hops.split(&positions)?;
        let mut legs = Vec::with_capacity(proxies.len() + 1);
        for index in 0..=proxies.len() {
            let start = index.checked_sub(1).map_or(0, |before| positions[before]);
            let end = positions.get(index).copied().unwrap_or(self.links.len());
            let sender = index.checked_sub(1).map(|before| &proxies[before].outbound);
            let receiver = proxies.get(index).map(|proxy| &proxy.inbound);
            legs.push(self.leg(start, end, sender, receiver)?);
        }
        Ok(legs)
    }

    /// The leg over the links `start..end`; an end without a proxy's settings is a host.
    fn leg(
        &self,
        start: usize,
        end: usize,
        sender: Option<&LegSettings>,
        receiver: Option<&LegSettings>,
    ) -> Result<ChainedLeg, PlanError> {
        let mut hops = self.hops.hops()[start..end].to_vec();
        if let (Some(first), Some(pacing)) = (
            hops.first_mut(),
            sender.and_then(|settings| settings.pacing_rate),
        ) {
            first.rate = first.rate.min(pacing);
        }
        let overhead = self.framing(start, end);
        let control = sender.map_or(self.sender.congestion_control.as_deref(), |settings| {
            settings.congestion_control.as_deref()
        });
        let send_buffer = match sender {
            Some(settings) => fixed(settings.send_buffer, SEND_BUFFER),
            None => self.sender.send_buffer.unwrap_or(SEND_BUFFER),
        };
        let receive_buffer = match receiver {
            Some(settings) => fixed(settings.receive_buffer, RECEIVE_WINDOW),
            None => self.receiver.receive_buffer.map_or(RECEIVE_WINDOW, |size| {
                ByteSize::from_bytes(size.bytes() / 2)
            }),
        };
        Ok(ChainedLeg {
            leg: Leg {
                section: Hops::new(hops)?.whole(),
                transport: self.transport(control, overhead)?,
                receive_buffer,
                send_buffer: Some(send_buffer),
            },
            waiting: send_buffer,
        })
    }

    /// The TCP of a sender with this congestion control, and `overhead` bytes of framing on the
    /// link.
    ///
    /// # Errors
    /// None: a packet holds its headers.
    pub fn transport(&self, control: Option<&str>, overhead: u32) -> Result<Transport, PlanError> {
        let response = response(control).unwrap_or(Response::Cubic);
        let headers = self.headers + overhead;
        let mut transport = Transport::new(PACKET - self.headers, headers, response)?;
        transport.packets_per_ack = DELAYED_ACK;
        transport.counts_bytes = true;
        transport.ack_size = headers;
        Ok(transport)
    }

    /// The framing of the slowest of the links `start..end`.
    fn framing(&self, start: usize, end: usize) -> u32 {
        (start..end)
            .min_by_key(|index| self.hops.hops()[*index].rate)
            .map_or(0, |index| self.overheads[index])
    }

    /// Initial windows of the legs with `proxies`, in segments.
    #[must_use]
    pub fn initial_windows(&self, proxies: &[ProxyOnPath]) -> Vec<u32> {
        let first = self.sender.initial_window;
        std::iter::once(first)
            .chain(proxies.iter().map(|proxy| proxy.outbound.initial_window))
            .map(|window| window.unwrap_or(INITIAL_WINDOW))
            .collect()
    }
}

/// The formula for a congestion control of the kernel; `None` if there is none.
#[must_use]
pub fn response(name: Option<&str>) -> Option<Response> {
    match name {
        None | Some("cubic") => Some(Response::Cubic),
        Some("bbr") => Some(Response::Bbr),
        Some("reno") => Some(Response::Window(Recovery::NewReno)),
        Some(_) => None,
    }
}

fn hop(there: &Configuration, back: &Configuration) -> Hop {
    let queue = match there.queue {
        QueueLimit::Bytes(size) => size,
        QueueLimit::Packets(packets) => {
            ByteSize::from_bytes(u64::from(packets) * u64::from(PACKET))
        }
    };
    Hop {
        rate: mean_rate(there).unwrap_or(NO_LIMIT),
        round_trip: there.mean_delay() + back.mean_delay(),
        loss: there.mean_loss(PACKET),
        return_rate: mean_rate(back),
        queue: Some(queue),
    }
}

fn host(path: &Path, node: NodeIndex) -> HostSettings {
    match &path.node(node).kind {
        NodeKind::Host(settings) => settings.clone(),
        NodeKind::Router | NodeKind::Proxy(_) => HostSettings::default(),
    }
}

const fn fixed(buffer: Buffer, automatic: ByteSize) -> ByteSize {
    match buffer {
        Buffer::Auto | Buffer::Adaptive => automatic,
        Buffer::Fixed(size) => size,
    }
}

/// IP and TCP headers with timestamps.
const fn header_size(family: Family) -> u32 {
    match family {
        Family::Ipv4 => 20 + 32,
        Family::Ipv6 => 40 + 32,
    }
}
