//! Rules for sockets with the addresses of clients: the plan for the kernel, and the settings of the gate.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ipnet::IpNet;
use midspan_gateway::initial_window::{InitialWindows, MarkedRoute, Raise};
use midspan_gateway::interception::{
    self, InterceptionError, LeftAlone, Marks, Plan, Rung, Selection,
};
use midspan_linux::raw_packet::RawSocket;
use midspan_policy::automatic_ahead::LONG_HANDSHAKE;
use midspan_policy::learned_start::{SERVER_WINDOWS, may_be_raised, raised_window};
use midspan_policy::opening_bound::OpeningLimits;
use midspan_relay::ListenerMarks;
use midspan_relay::profile::{self, SegmentMarks};
use rustix::process::{Resource, getrlimit};

use super::listening::Open;
use super::slots::Slots;
use super::{families, learned_windows};
use crate::Error;
use crate::configuration::{Configuration, Listener, Mode, Quic};
use crate::gate::{GateSettings, hop_limit};

/// Groups of initial windows, by their legs.
const FORWARD: u8 = 0;
const CLIENT_LEG: u8 = 1;
const SERVER_LEG: u8 = 2;

/// The configured initial windows, by group.
pub(super) fn windows(configuration: &Configuration) -> BTreeSet<(u8, MarkedRoute)> {
    let mut windows = fixed_windows(configuration);
    let learned = learned(configuration).into_iter();
    windows.extend(learned.map(|window| (CLIENT_LEG, window.into())));
    let to_servers = learned_windows::granted_to_servers(configuration, windows.len());
    let to_servers = to_servers.into_iter();
    windows.extend(to_servers.map(|window| (SERVER_LEG, window.into())));
    windows
}

/// Which connections get a large window after all if their handshake shows a long leg; `None` if none do.
pub(super) fn raise(configuration: &Configuration, windows: &InitialWindows) -> Option<Raise> {
    let window = raised_window(*learned(configuration).last()?);
    let marks: Vec<u32> = (raised_windows(configuration).into_iter())
        .filter_map(|window| windows.mark_of_group(CLIENT_LEG, window))
        .collect();
    (!marks.is_empty()).then(|| Raise {
        marks,
        mask: configuration.marks.marks.mask(),
        least_round_trip: LONG_HANDSHAKE,
        window,
    })
}

/// The learned windows, as far as the relay bounds what such a connection sends: not those of a listener that sends nothing
/// ahead or has a smaller limit, and not those that a configuration has fixed.
pub(super) fn raised_windows(configuration: &Configuration) -> BTreeSet<u32> {
    let mut windows = learned(configuration);
    let largest = windows.last().copied();
    windows.retain(|window| may_be_raised(*window, largest.unwrap_or_default()));
    let fixed = fixed_windows(configuration);
    windows.retain(|window| !fixed.contains(&(CLIENT_LEG, (*window).into())));
    for (listener, _) in configuration.transparent() {
        let own = &listener.relay.learned_windows;
        if !listener.relay.session.sends_ahead() || own.last().copied() != largest {
            windows.retain(|window| !own.contains(window));
        }
    }
    windows
}

/// The learned windows for which there are marks.
fn learned(configuration: &Configuration) -> BTreeSet<u32> {
    learned_windows::granted(configuration, fixed_windows(configuration).len())
}

/// The windows that are not for learned starts.
fn fixed_windows(configuration: &Configuration) -> BTreeSet<(u8, MarkedRoute)> {
    let mut windows = BTreeSet::new();
    for listener in &configuration.listeners {
        let is_transparent = listener.transparent().is_some();
        for (leg, group) in [
            (&listener.relay.session.client, CLIENT_LEG),
            (&listener.relay.session.server, SERVER_LEG),
        ] {
            let has_address =
                is_transparent || (group == SERVER_LEG && listener.connects_as_clients());
            let group = if has_address { group } else { FORWARD };
            windows.extend(leg.initial_window.map(|window| (group, window.into())));
        }
        let group = if is_transparent { CLIENT_LEG } else { FORWARD };
        // In a negotiation, the client gets data before its session begins.
        if listener.relay.negotiation().is_none() {
            let routes = profile::routes(&configuration.profiles);
            windows.extend(routes.into_iter().map(|route| (group, route)));
        }
    }
    windows
}

/// The marks for all parts of a configuration.
pub(super) struct Marking<'a> {
    configuration: &'a Configuration,
    slots: &'a Slots,
    initial: Option<&'a InitialWindows>,
    /// Marks of interception; `None` if no socket has a client's address.
    marks: Option<Marks>,
}

impl<'a> Marking<'a> {
    /// Marks for the initial windows that are installed, or about to be.
    pub fn new(
        configuration: &'a Configuration,
        slots: &'a Slots,
        initial: Option<&'a InitialWindows>,
    ) -> Result<Self, Error> {
        let names = configuration.transparent();
        let numbers: Vec<usize> = names
            .map(|(listener, _)| slots.of(&listener.relay.name))
            .collect();
        let field = configuration.interception.numbers.marks;
        let others = initial.map_or_else(|| windows(configuration).len(), InitialWindows::count);
        let marks = match configuration.has_clients_addresses() {
            false => None,
            true => {
                Some(Marks::with_slots(field, &numbers, others).map_err(InterceptionError::from)?)
            }
        };
        Ok(Self {
            configuration,
            slots,
            initial,
            marks,
        })
    }

    /// Marks of interception; `None` if no socket has a client's address.
    pub const fn marks(&self) -> Option<&Marks> {
        self.marks.as_ref()
    }

    /// The mark of client legs, and of the sockets that listen for them.
    pub fn client_leg(&self, listener: &Listener) -> Option<u32> {
        let window = listener.relay.session.client.initial_window;
        match listener.mode {
            Mode::Forward(_) | Mode::Explicit(_) => self.window(FORWARD, window),
            Mode::Transparent(_) => (self.window(CLIENT_LEG, window))
                .or(self.marks.as_ref().map(|marks| marks.client_leg)),
        }
    }

    /// The sockets that a listener needs for client legs: for each, its mark, and the initial
    /// window for which the gate selects it.
    pub fn client_legs(&self, listener: &Listener) -> Vec<(Option<u32>, Option<u32>)> {
        let learned = self.learned_windows(listener).into_iter();
        let learned = learned.map(|window| (Some(window), self.window(CLIENT_LEG, Some(window))));
        std::iter::once((None, self.client_leg(listener)))
            .chain(learned)
            .collect()
    }

    /// The initial windows that the gate may choose for the clients of a listener.
    fn learned_windows(&self, listener: &Listener) -> Vec<u32> {
        let windows = listener.relay.learned_windows.iter().copied();
        windows
            .filter(|window| self.window(CLIENT_LEG, Some(*window)).is_some())
            .collect()
    }

    /// The mark of server legs.
    pub fn server_leg(&self, listener: &Listener) -> Option<u32> {
        let window = listener.relay.session.server.initial_window;
        match listener.mode {
            Mode::Forward(_) | Mode::Explicit(_) if !listener.connects_as_clients() => {
                self.window(FORWARD, window)
            }
            Mode::Forward(_) | Mode::Explicit(_) | Mode::Transparent(_) => (self
                .window(SERVER_LEG, window))
            .or(self.marks.as_ref().map(|marks| marks.server_leg)),
        }
    }

    /// The initial windows that the gate may choose towards the servers of a listener, with their marks.
    fn server_windows(&self, listener: &Listener) -> Vec<(u32, u32)> {
        if !learned_windows::learns_of_servers(listener) {
            return Vec::new();
        }
        let mark = |window| Some((window, self.window(SERVER_LEG, Some(window))?));
        SERVER_WINDOWS.into_iter().filter_map(mark).collect()
    }

    /// The mark of the fragmenter's packets.
    pub fn fragments(&self) -> u32 {
        self.marks.as_ref().map_or(0, |marks| marks.client_leg)
    }

    /// Marks for the segment sizes of clients with an access profile.
    fn segment_marks(&self, listener: &Listener) -> SegmentMarks {
        let group = match listener.mode {
            Mode::Forward(_) | Mode::Explicit(_) => FORWARD,
            Mode::Transparent(_) => CLIENT_LEG,
        };
        let mark = |route| self.initial?.mark_of_group(group, route);
        let has_fragmenter = self.initial.is_some_and(InitialWindows::has_device);
        SegmentMarks::new(&self.configuration.profiles, has_fragmenter, mark)
    }

    fn window(&self, group: u8, window: Option<u32>) -> Option<u32> {
        self.initial?.mark_of_group(group, window?)
    }

    /// The plan of interception; `open` has the addresses of the listeners. `earlier` interfaces
    /// may still have connections.
    pub fn plan(&self, open: &[Open], earlier: &BTreeSet<String>, bypasses: &[IpNet]) -> Plan {
        let selections = self.configuration.transparent();
        let selections = selections.map(|(listener, transparent)| {
            let port = |ipv4: bool, window: Option<u32>| {
                open.iter()
                    .filter(|open| open.is_transparent && open.name == listener.relay.name)
                    .filter(|open| open.window == window)
                    .map(|open| open.address)
                    .find(|address| address.is_ipv4() == ipv4)
                    .map(|address| address.port())
            };
            Selection {
                slot: self.slots.of(&listener.relay.name),
                interfaces: transparent.interfaces.clone(),
                ipv4_port: port(true, None),
                ipv6_port: port(false, None),
                rungs: (self.learned_windows(listener).into_iter())
                    .map(|window| Rung {
                        hop_limit: hop_limit(window),
                        ipv4_port: port(true, Some(window)),
                        ipv6_port: port(false, Some(window)),
                    })
                    .collect(),
                ports: transparent.ports.clone(),
                except_ports: (self.configuration.interception).except_ports(transparent),
                except: transparent.except.clone(),
                rejects_quic: transparent.quic == Quic::Reject,
                firewall_cache: transparent.firewall_cache.map(Duration::from),
            }
        });
        let marks_of = |group| self.initial.map(|initial| initial.marks_of_group(group));
        Plan {
            numbers: self.configuration.interception.numbers.clone(),
            selections: selections.collect(),
            as_clients: (self.configuration.listeners.iter()).any(Listener::connects_as_clients),
            more_interfaces: earlier.clone(),
            bypasses: bypasses.to_vec(),
            left_alone: LeftAlone::default(),
            client_leg_marks: marks_of(CLIENT_LEG).into_iter().flatten().collect(),
            server_leg_marks: marks_of(SERVER_LEG).into_iter().flatten().collect(),
            former_sessions: Vec::new(),
            former_listeners: None,
        }
    }

    /// Settings of the gate; `None` without transparent listeners.
    pub fn gate(&self) -> Option<GateSettings> {
        self.configuration.transparent().next()?;
        let marks = self.marks.as_ref()?;
        let settings = &self.configuration.interception;
        Some(GateSettings {
            queue: settings.numbers.queue,
            mask: marks.mask,
            refused_mark: marks.refused,
            watched_mark: marks.watched,
            server_zone: settings.numbers.server_zone(),
            asymmetric_route_time: settings.asymmetric_route_time,
            opening_limits: OpeningLimits::new(
                settings.opening_limit as usize,
                settings.opening_limit_per_client as usize,
                // The helper raises the soft limit to the hard one.
                getrlimit(Resource::Nofile).maximum,
            ),
        })
    }

    /// The mark of SYNs for a transparent listener.
    fn syn(&self, listener: &Listener) -> Option<u32> {
        let marks = self.marks.as_ref()?.listeners.iter();
        let mut listeners = self.configuration.transparent().zip(marks);
        listeners
            .find(|((of, _), _)| of.relay.name == listener.relay.name)
            .map(|(_, mark)| *mark)
    }

    /// A listener as the relay uses it at this address.
    pub fn listener(&self, listener: &Listener, open: &Open) -> midspan_relay::Listener {
        midspan_relay::Listener {
            listen: Some(open.address),
            learned_windows: self.learned_windows(listener),
            marks: ListenerMarks {
                client: match open.window {
                    Some(_) => self.window(CLIENT_LEG, open.window),
                    None => self.client_leg(listener),
                },
                server: self.server_leg(listener),
                server_windows: self.server_windows(listener),
                syn: self.syn(listener),
                segments: self.segment_marks(listener),
            },
            ..listener.relay.clone()
        }
    }
}

/// How many different numbers transparent listeners may have.
pub(super) fn slot_limit(configuration: &Configuration, initial: Option<&InitialWindows>) -> usize {
    let others = initial.map_or_else(|| windows(configuration).len(), InitialWindows::count);
    let possible = usize::try_from(configuration.marks.marks.count()).unwrap_or(usize::MAX);
    possible.saturating_sub(others.saturating_add(Marks::BESIDES_LISTENERS))
}

/// The rules that [`run`](crate::run) would put in force for this configuration, as text for
/// people, with invented ports of the internal listeners; empty if no socket has a client's address.
///
/// # Errors
/// The mark field is too small, or the program `nft` is missing.
pub fn describe_rules(configuration: &Configuration) -> Result<String, Error> {
    if !configuration.has_clients_addresses() {
        return Ok(String::new());
    }
    Ok(interception::describe(&example_plan(configuration)?)?)
}

/// Why the listeners' `firewall_cache` would not be used on this machine; empty if it would.
pub(crate) fn firewall_cache_obstacles(
    configuration: &Configuration,
) -> Result<Vec<String>, Error> {
    Ok(interception::express_lane_obstacles(&example_plan(
        configuration,
    )?)?)
}

/// The plan of this configuration, with invented ports of the internal listeners.
fn example_plan(configuration: &Configuration) -> Result<Plan, Error> {
    let slots = Slots::default().assign(configuration, slot_limit(configuration, None));
    let marking = Marking::new(configuration, &slots, None)?;
    let mut plan = marking.plan(&[], &BTreeSet::new(), &[]);
    let transparent = configuration.transparent();
    for (selection, (_, transparent)) in plan.selections.iter_mut().zip(transparent) {
        selection.ipv4_port = transparent.ipv4.then_some(EXAMPLE_PORT);
        selection.ipv6_port = transparent.ipv6.then_some(EXAMPLE_PORT);
    }
    Ok(plan)
}

const EXAMPLE_PORT: u16 = 40_000;

/// The gate's raw sockets.
pub(super) fn raw_sockets() -> Result<Vec<OwnedFd>, Error> {
    families::sockets(RawSocket::open).map_err(Error::system(
        "open a raw socket, which transparent listeners need (CAP_NET_RAW)",
    ))
}
