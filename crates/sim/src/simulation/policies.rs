//! Carries out the decisions of policies before the first byte on a scenario: whether a connection
//! is split, and how the legs of a session start.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use midspan_policy::narrow_leg::NarrowClient;
use midspan_policy::narrow_session::NarrowSession;
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{
    Admission, Buffer, Handshake, Knowledge, Leg as Side, LegStart, Offered, PacingBy, Policy,
    Request, SessionSettings, make,
};
use midspan_units::Time;

use crate::proxy::{Buffers, RelayConfiguration};
use crate::scenario::{Client, FlowId, NodeId, Scenario, ScenarioError, Split};
use crate::tcp::{Receiver, SenderConfiguration, Variant, WindowGrowth};

/// The policies that decide for sessions at the proxies of a scenario.
///
/// At the start of a flow, the policy decides on its [`Admission`] and, if the flow is split, on
/// its [`Start`](midspan_policy::Start); then it is sampled until the flow has ended. The simulator
/// uses fixed addresses: the client is 192.0.2.1 with the flow's number as its port, the server is
/// 198.51.100.1, port 80.
///
/// | decision | how it is carried out |
/// | --- | --- |
/// | `Bypass` | the flow is not split there |
/// | `Refuse` | a sender to the proxy gets a reset |
/// | `handshake` | both kinds |
/// | `congestion_control` | cubic, or reno (with SACK); others are an error |
/// | `send_buffer`, `notsent_lowat`, `pacing_rate`, `pacing_by`, `segment_ceiling`, `oversized_start`, `window_scale` | for the outbound leg |
/// | `receive_buffer` | for the inbound leg |
/// | `initial_window`, `connect_timeout`, `keepalive`, `user_timeout` | no effect |
///
/// If the proxy paces at the input of TCP, a pacing rate applies there.
///
/// A policy given here replaces the [scenario](Scenario::set_policy)'s policy for the same proxy.
#[derive(Default)]
pub struct Policies {
    sessions: Vec<(FlowId, usize, Box<dyn Policy + Send>)>,
}

/// A session that is split at a proxy.
pub(super) struct Session {
    pub(super) flow: FlowId,
    /// The number of the proxy along the flow's path, counted from 0.
    pub(super) split: usize,
    /// The node of the proxy.
    pub(super) node: NodeId,
    pub(super) policy: Box<dyn Policy + Send>,
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.sessions.iter().map(|(flow, split, _)| (flow, split));
        f.debug_list().entries(places).finish()
    }
}

impl Policies {
    /// No policies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the policy for the session of `flow` at its proxy number `split`, counted from 0. It
    /// replaces an earlier one for the same session.
    #[must_use]
    pub fn with(mut self, flow: FlowId, split: usize, policy: Box<dyn Policy + Send>) -> Self {
        self.sessions
            .retain(|(known, at, _)| (*known, *at) != (flow, split));
        self.sessions.push((flow, split, policy));
        self
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Adds the policies of the scenario itself, if the proxy exists and none is given for it.
    pub(super) fn with_those_of(mut self, scenario: &Scenario) -> Self {
        for (flow, split, settings) in &scenario.policies {
            let exists =
                (scenario.flows.get(flow.0)).is_some_and(|flow| *split < flow.splits.len());
            let given = (self.sessions.iter()).any(|(of, at, _)| (of, at) == (flow, split));
            if exists && !given {
                let policy = make(settings, Handshake::Early, Offered::default());
                self.sessions.push((*flow, *split, policy));
            }
        }
        self.with_narrow_legs(scenario)
    }

    /// Wraps the policies of sessions whose outbound leg leads to a client behind a narrow
    /// upstream.
    fn with_narrow_legs(mut self, scenario: &Scenario) -> Self {
        for (id, index, access, way) in &scenario.access {
            let Some(flow) = scenario.flows.get(id.0) else {
                continue;
            };
            let is_last = *index + 1 == flow.splits.len();
            let Some(split) = flow.splits.get(*index).filter(|_| is_last) else {
                continue;
            };
            if flow.client != Client::Receiver {
                continue;
            }
            let receiver = Receiver::new(flow.receiver);
            let client = NarrowClient {
                access: *access,
                segment_size: split.outbound.segment_size,
                window: receiver.initial_window(),
                window_scale: receiver.window_scale(),
                sizes: (access.oversized_segments)
                    .sizes(access.downstream, access.upstream)
                    .into(),
                way: *way,
                verdict: None,
            };
            let at = (self.sessions.iter()).position(|(flow, at, _)| (flow, at) == (id, index));
            let inner: Box<dyn Policy + Send> = match at {
                Some(at) => self.sessions.remove(at).2,
                None => make(
                    &SessionSettings::default(),
                    Handshake::Early,
                    Offered::default(),
                ),
            };
            let session = NarrowSession::new(inner, &client);
            self.sessions.push((*id, *index, Box::new(session)));
        }
        self
    }

    /// Lets every policy decide, and changes the scenario accordingly. Returns the policies whose
    /// session is split; their proxies are numbered without the bypassed ones.
    pub(super) fn carry_out(
        mut self,
        scenario: &mut Scenario,
    ) -> Result<Vec<Session>, ScenarioError> {
        // From the last proxy to the first: removing one does not renumber those that are still to
        // come.
        self.sessions
            .sort_by_key(|(flow, split, _)| (*flow, std::cmp::Reverse(*split)));
        let mut kept: Vec<Session> = Vec::new();
        for (id, index, mut policy) in self.sessions {
            let no_proxy = || ScenarioError::NoProxy {
                flow: id.0,
                split: index,
            };
            let flow = scenario.flows.get_mut(id.0).ok_or_else(no_proxy)?;
            let split = flow.splits.get_mut(index).ok_or_else(no_proxy)?;
            let now = Time::ZERO + flow.start;
            let request = request(id);
            match policy.admit(now, &request) {
                Admission::Bypass => {
                    flow.splits.remove(index);
                    for later in kept.iter_mut().filter(|later| later.flow == id) {
                        later.split -= 1;
                    }
                    continue;
                }
                Admission::Refuse => {
                    split.relay.refuse = true;
                    continue;
                }
                Admission::Intercept { handshake, .. } => split.relay.handshake = handshake,
            }
            let start = policy.start(now, &request, None, &mut Knowledge::default());
            let (inbound, outbound) = match outbound_side(flow.client) {
                Side::Client => (&start.server, &start.client),
                Side::Server => (&start.client, &start.server),
            };
            let place = format!("{}, proxy {}", flow.name, index + 1);
            start_legs(split, inbound, outbound).map_err(|name| {
                ScenarioError::CongestionControl {
                    place,
                    name,
                    known: KNOWN,
                }
            })?;
            kept.push(Session {
                flow: id,
                split: index,
                node: split.node,
                policy,
            });
        }
        Ok(kept)
    }
}

/// The side of a proxy on which its outbound leg is.
pub(super) const fn outbound_side(client: Client) -> Side {
    match client {
        Client::Sender => Side::Server,
        Client::Receiver => Side::Client,
    }
}

pub(super) fn request(flow: FlowId) -> Request {
    let port = u16::try_from(flow.0).unwrap_or(u16::MAX);
    Request {
        client: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port)),
        server: SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 80)),
    }
}

/// The congestion controls of Linux that the simulator supports.
const KNOWN: &str = "cubic and reno";

/// Configures the two sockets of a session. Fails with the name of an unsupported congestion
/// control.
fn start_legs(split: &mut Split, inbound: &LegStart, outbound: &LegStart) -> Result<(), String> {
    if let Buffer::Fixed(size) = inbound.receive_buffer {
        split.inbound.buffer = size.bytes();
        split.inbound.window_growth = WindowGrowth::Fixed;
    }
    start_sender(&mut split.outbound, outbound)?;
    start_relay(&mut split.relay, &mut split.outbound, outbound);
    Ok(())
}

fn start_sender(sender: &mut SenderConfiguration, start: &LegStart) -> Result<(), String> {
    sender.variant = match start.congestion_control.as_deref() {
        None => sender.variant,
        Some("cubic") => Variant::Cubic,
        Some("reno") => Variant::Sack,
        Some(name) => return Err(name.to_owned()),
    };
    if let Some(ceiling) = start.segment_ceiling {
        let ceiling = u32::try_from(ceiling.bytes()).unwrap_or(u32::MAX);
        sender.segment_ceiling = Some(ceiling);
        if start.oversized_start == OversizedStart::Duplicate && ceiling > sender.segment_size {
            sender.duplicate_start = Some(sender.segment_size);
        }
        if start.oversized_start != OversizedStart::Probe {
            sender.segment_size = sender.segment_size.max(ceiling);
        }
    }
    sender.window_scale = start.window_scale.or(sender.window_scale);
    Ok(())
}

fn start_relay(relay: &mut RelayConfiguration, sender: &mut SenderConfiguration, start: &LegStart) {
    if let (Buffer::Fixed(size), Buffers::Separate { send }) =
        (start.send_buffer, &mut relay.buffers)
    {
        *send = size.bytes();
    }
    if let Some(most) = start.notsent_lowat {
        relay.notsent_lowat = Some(most.bytes());
    }
    if let Some(rate) = start.pacing_rate {
        match &mut relay.pacing {
            Some(pacing) => *pacing = rate,
            None if start.pacing_by == PacingBy::Input => relay.pacing = Some(rate),
            None => sender.pacing_rate = Some(rate),
        }
    }
}
