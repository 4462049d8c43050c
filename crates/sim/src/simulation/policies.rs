//! Carries out the decisions of policies before the first byte on a scenario: whether a connection
//! is split, and how the legs of a session start.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

use midspan_policy::learned_start::{DEFAULT_WINDOW_LIMIT, SERVER_WINDOWS, windows};
use midspan_policy::narrow_leg::NarrowClient;
use midspan_policy::narrow_session::NarrowSession;
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{
    AccessLink, Admission, Buffer, Handshake, Knowledge, Leg as Side, LegStart, Offered, PacingBy,
    Policy, Request, SessionSettings, make, server_windows,
};
use midspan_units::Time;

use crate::proxy::{Buffers, RelayConfiguration};
use crate::scenario::{
    Client, Flow, FlowId, NodeId, Scenario, ScenarioError, Split, base_round_trip,
};
use crate::tcp::{Receiver, SenderConfiguration, Variant, WindowGrowth};

/// The policies that decide for sessions at the proxies of a scenario.
///
/// At the start of a flow, the policy decides on its [`Admission`] and, if the flow is split, on
/// its [`Start`](midspan_policy::Start); then it is sampled until the flow has ended, and gets a last
/// sample then. The host with number *n* has the address 2001:db8:0:*n*::1. The client's port is the
/// flow's number, the server's is 80.
///
/// | decision | how it is carried out |
/// | --- | --- |
/// | `Bypass` | the flow is not split there |
/// | `Refuse` | a sender to the proxy gets a reset |
/// | `handshake` | both kinds |
/// | `congestion_control` | cubic, reno (with SACK) or bbr; others are an error. While data flows, a change to one of these, but none from bbr |
/// | [`window`](Policy::window), `initial_window`, `first_flight` | for sessions whose policy [learns](midspan_policy::PolicyName::learns) |
/// | `send_buffer`, `notsent_lowat`, `pacing_rate`, `pacing_by`, `segment_ceiling`, `oversized_start`, `window_scale` | for the outbound leg |
/// | `receive_buffer` | for the inbound leg |
/// | while data flows: all fields of a [`LegDecision`](midspan_policy::LegDecision) | for the outbound leg |
/// | `receive_window`, `connect_timeout`, `keepalive`, `user_timeout` | no effect |
///
/// If the proxy paces at the input of TCP, a pacing rate applies there.
///
/// A policy given here replaces the [scenario](Scenario::set_policy)'s policy for the same proxy.
#[derive(Default)]
pub struct Policies {
    sessions: Vec<Chosen>,
}

/// A policy for the session of a flow at its proxy of this number, counted from 0.
struct Chosen {
    flow: FlowId,
    split: usize,
    policy: Box<dyn Policy + Send>,
    learning: Option<Vec<u32>>,
}

/// A session that is split at a proxy.
pub(super) struct Session {
    pub(super) flow: FlowId,
    /// The number of the proxy along the flow's path, counted from 0.
    pub(super) split: usize,
    /// The node of the proxy.
    pub(super) node: NodeId,
    pub(super) request: Request,
    pub(super) policy: Box<dyn Policy + Send>,
    /// The session starts by what earlier ones have left, with one of these initial windows on its outbound
    /// leg; `None`: it starts as its scenario defines.
    pub(super) learning: Option<Vec<u32>>,
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.sessions.iter().map(|of| (of.flow, of.split));
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
        self.take(flow, split);
        self.sessions.push(Chosen {
            flow,
            split,
            policy,
            learning: None,
        });
        self
    }

    fn take(&mut self, flow: FlowId, split: usize) -> Option<Chosen> {
        let is_it = |of: &Chosen| (of.flow, of.split) == (flow, split);
        let at = self.sessions.iter().position(is_it)?;
        Some(self.sessions.remove(at))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Adds the policies of the scenario itself, if the proxy exists and none is given for it.
    pub(super) fn with_those_of(mut self, scenario: &Scenario) -> Self {
        for (flow, split, settings) in &scenario.policies {
            let exists =
                (scenario.flows.get(flow.0)).is_some_and(|flow| *split < flow.splits.len());
            let given = (self.sessions.iter()).any(|of| (of.flow, of.split) == (*flow, *split));
            if exists && !given {
                self.sessions.push(Chosen {
                    flow: *flow,
                    split: *split,
                    policy: make(settings, Handshake::Early, OFFERED),
                    learning: learning(scenario, *flow, settings),
                });
            }
        }
        self.with_narrow_legs(scenario)
    }

    /// Wraps the policies of sessions whose outbound leg leads to a client that downloads, if it is
    /// behind a narrow upstream or if the policy may send ahead of its window.
    fn with_narrow_legs(mut self, scenario: &Scenario) -> Self {
        let narrow = scenario.access.iter();
        let narrow =
            narrow.map(|(flow, split, access, start)| (*flow, *split, Some((*access, *start))));
        let has_access = |of: &&Chosen| {
            let mut all = scenario.access.iter();
            all.any(|(flow, split, ..)| (*flow, *split) == (of.flow, of.split))
        };
        let long = self.sessions.iter().filter(|of| of.policy.sends_ahead());
        let long = long.filter(|of| !has_access(of));
        let long = long.map(|of| (of.flow, of.split, None));
        let legs: Vec<_> = narrow.chain(long).collect();
        for (id, index, access) in legs {
            let Some(flow) = scenario.flows.get(id.0) else {
                continue;
            };
            let is_last = index + 1 == flow.splits.len();
            let Some(split) = flow.splits.get(index).filter(|_| is_last) else {
                continue;
            };
            if flow.client != Client::Receiver {
                continue;
            }
            let receiver = Receiver::new(flow.receiver);
            // As in the real proxy, a client with a known access link gets what this link allows.
            let round_trip = match access {
                Some(_) => None,
                None => base_round_trip(scenario, split.node, flow.to),
            };
            let (access, start) = access.unwrap_or((AccessLink::default(), OversizedStart::Probe));
            let client = NarrowClient {
                access,
                segment_size: split.outbound.segment_size,
                window: receiver.initial_window(),
                window_scale: receiver.window_scale(),
                sizes: (access.oversized_segments)
                    .sizes(access.downstream, access.upstream)
                    .into(),
                start,
                verdict: None,
                ahead: None,
                bound: None,
            };
            let (inner, learning) = match self.take(id, index) {
                Some(chosen) => (chosen.policy, chosen.learning),
                None => {
                    let settings = SessionSettings::default();
                    (make(&settings, Handshake::Early, OFFERED), None)
                }
            };
            self.sessions.push(Chosen {
                flow: id,
                split: index,
                policy: Box::new(NarrowSession::new(inner, client, round_trip)),
                learning,
            });
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
            .sort_by_key(|of| (of.flow, std::cmp::Reverse(of.split)));
        let mut kept: Vec<Session> = Vec::new();
        for chosen in self.sessions {
            let (id, index, mut policy) = (chosen.flow, chosen.split, chosen.policy);
            let no_proxy = || ScenarioError::NoProxy {
                flow: id.0,
                split: index,
            };
            let flow = scenario.flows.get_mut(id.0).ok_or_else(no_proxy)?;
            let (now, request) = (Time::ZERO + flow.start, request(id, flow));
            let split = flow.splits.get_mut(index).ok_or_else(no_proxy)?;
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
            // What earlier sessions have left is not there yet: see `begin_session`.
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
                request,
                policy,
                learning: chosen.learning,
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

/// Both ends of a flow's connection. Each node is a network of its own, and all are one site.
fn request(id: FlowId, flow: &Flow) -> Request {
    let address = |node: NodeId| {
        let node = u16::try_from(node.0).unwrap_or(u16::MAX);
        Ipv6Addr::new(0x2001, 0xdb8, 0, node, 0, 0, 0, 1)
    };
    let port = u16::try_from(id.0).unwrap_or(u16::MAX);
    let (client, server) = match flow.client {
        Client::Sender => (flow.from, flow.to),
        Client::Receiver => (flow.to, flow.from),
    };
    Request {
        client: SocketAddr::from((address(client), port)),
        server: SocketAddr::from((address(server), 80)),
    }
}

/// The policies may choose BBR. A receive window that they choose has no effect, and the least time-out is that of
/// the configuration.
const OFFERED: Offered = Offered {
    bbr: true,
    receive_window: server_windows::MOST,
    least_timeout: false,
};

/// The initial windows from which a session of this flow has one chosen; `None` if it learns
/// nothing from earlier sessions.
fn learning(scenario: &Scenario, flow: FlowId, settings: &SessionSettings) -> Option<Vec<u32>> {
    let dialogues = scenario.dialogues.iter();
    // The connection of a dialogue has two flows. That of its responses stands for both.
    let mut connections = dialogues.flat_map(|dialogue| &dialogue.connections);
    if !settings.policy.learns() || connections.any(|[requests, _]| *requests == flow) {
        return None;
    }
    let side = scenario
        .flows
        .get(flow.0)
        .map(|of| outbound_side(of.client));
    Some(match side {
        Some(Side::Server) => match settings.server.initial_window {
            None => SERVER_WINDOWS.to_vec(),
            Some(_) => Vec::new(),
        },
        Some(Side::Client) | None => windows(match settings.client.initial_window {
            None => DEFAULT_WINDOW_LIMIT,
            Some(_) => 0,
        }),
    })
}

/// The congestion controls of Linux that the simulator supports.
const KNOWN: &str = "cubic, reno and bbr";

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
        Some("bbr") => Variant::Bbr,
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
