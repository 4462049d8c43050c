//! The load that this machine carries: sessions at a time and new connections a second, each with
//! every limit that bounds it, and what raises a limit below what is expected.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use midspan_gateway::interception::timeouts;
use midspan_linux::connection_tracking::Occupancy;
use midspan_policy::memory_share::{LEAST_OF_SESSION, sessions_carried};
use midspan_policy::opening_bound::OpeningLimits;
use midspan_units::ByteSize;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::sysctls::{number, text};
use super::{Context, Finding};
use crate::configuration::{Forward, Listener, Mode};

/// The expected load; `None`: it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expected {
    /// New connections per second.
    pub rate: Option<u64>,
    /// Sessions at a time.
    pub sessions: Option<u64>,
}

/// The load that the machine carries; `None` where nothing bounds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Idle sessions at a time.
    pub sessions: Option<u64>,
    /// New connections per second, as far as limits of this machine bound them.
    pub connections_per_second: Option<u64>,
    /// All limits of the sessions.
    pub session_limits: Vec<Limit>,
    /// All limits of the rate.
    pub rate_limits: Vec<Limit>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What bounds the load, as in `"descriptors"`.
    pub by: &'static str,
    /// The largest load under this limit.
    pub most: u64,
    /// How to carry what is expected, if that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// A connection of a transparent listener has two entries, also after its end.
const ENTRIES: u64 = 2;
/// The longest time, in seconds, that an expired entry remains until the kernel visits it, at 2,000 new
/// connections per second (docs/measurements/soak.md).
const SWEEP_SECONDS: u64 = 8;
/// Time in milliseconds for opening a connection over a satellite.
const LONG_OPENING: u64 = 600;
/// Seconds for which the port of a connection that its client has closed is not used again for the same
/// server.
const TIME_WAIT: u64 = 60;
/// Sockets of one session.
const SOCKETS: u64 = 2;
/// Descriptors of the proxy itself, at rest.
const OWN_DESCRIPTORS: u64 = 64;

/// What of the machine and the configuration bounds the load.
#[derive(Debug, Clone, Default)]
struct Machine {
    /// The memory budget in bytes.
    memory: Option<u64>,
    descriptors: Option<u64>,
    /// `fs.nr_open`: the highest limit that a process can have.
    descriptors_of_any: Option<u64>,
    /// `limits.sessions`.
    sessions: Option<u64>,
    /// Only with transparent listeners.
    tracking: Option<Tracking>,
    /// Only with transparent listeners.
    opening: Option<Opening>,
    /// Without transparent listeners.
    ports: Option<Ports>,
}

/// The table of connection tracking.
#[derive(Debug, Clone, Copy)]
struct Tracking {
    entries: u64,
    limit: u64,
    /// Seconds until an entry is removed after the end of its connection.
    stays: u64,
}

#[derive(Debug, Clone, Copy)]
struct Opening {
    /// Connections that may be being opened at a time.
    most: u64,
    /// Connections that wait at one listening socket.
    backlog: u64,
    /// Listening sockets of one listener.
    threads: u64,
}

/// Local ports of server legs.
#[derive(Debug, Clone, Copy)]
struct Ports {
    /// From one address of this machine to one address and port of a server.
    each: u64,
    /// The pairs of such addresses; those of the listener with the fewest addresses, for one server, if
    /// clients choose their servers.
    pairs: u64,
    /// Whether clients choose their servers (`socks5`, `http`).
    are_chosen: bool,
    /// Whether the kernel uses ports of closed connections again at once (`tcp_tw_reuse`).
    are_reused: bool,
}

impl Ports {
    /// Sessions at a time, and the name of this limit.
    const fn sessions(&self) -> (&'static str, u64) {
        let name = match self.are_chosen {
            true => "local ports, all sessions with one server",
            false => "local ports",
        };
        (name, self.each * self.pairs)
    }

    /// New connections per second, and the name of this limit.
    const fn rate(&self) -> (&'static str, u64) {
        let name = match self.are_chosen {
            true => "local ports, if clients close first, all to one server",
            false => "local ports, if clients close first",
        };
        (name, self.each * self.pairs / TIME_WAIT)
    }
}

impl Tracking {
    /// Entries for new connections. Above 7/8 of the table, new ones pass untouched.
    const fn room(&self) -> u64 {
        (self.limit - self.limit / 8).saturating_sub(self.entries)
    }

    /// The command for a table with room for this many entries.
    fn mend(&self, room: u64) -> String {
        let wanted = room.saturating_add(self.entries).saturating_mul(8) / 7;
        format!("sysctl -w net.netfilter.nf_conntrack_max={}", wanted + 8)
    }
}

pub(super) fn findings(context: &Context<'_>, expected: Expected) -> (Vec<Finding>, Carried) {
    let carried = Machine::of(context).carried(expected);
    let mut findings = vec![
        finding(
            "sessions at a time",
            "",
            &carried.session_limits,
            expected.sessions,
        ),
        finding(
            "new connections",
            " a second",
            &carried.rate_limits,
            expected.rate,
        ),
    ];
    findings.retain(|finding| !finding.found.is_empty());
    (findings, carried)
}

impl Machine {
    fn of(context: &Context<'_>) -> Self {
        let configuration = context.configuration;
        let relay = &configuration.relay;
        let descriptors = getrlimit(Resource::Nofile).maximum;
        let threads = relay.threads as u64;
        let interception = &configuration.interception;
        let is_transparent = context.is_transparent;
        let opening = || {
            let [all, each] = [
                interception.opening_limit,
                interception.opening_limit_per_client,
            ]
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
            Opening {
                most: OpeningLimits::new(all, each, descriptors).most as u64,
                backlog: number("net.core.somaxconn").unwrap_or(4096),
                threads,
            }
        };
        Self {
            memory: relay.limits.memory.map(ByteSize::bytes),
            descriptors,
            descriptors_of_any: number("fs.nr_open"),
            sessions: relay.limits.sessions.sessions.map(u64::from),
            tracking: is_transparent.then(|| tracking(context)).flatten(),
            opening: is_transparent.then(opening),
            ports: ports(context),
        }
    }

    fn carried(&self, expected: Expected) -> Carried {
        let session_limits = self.session_limits(expected);
        let rate_limits = self.rate_limits(expected);
        let least = |limits: &[Limit]| limits.iter().map(|limit| limit.most).min();
        Carried {
            sessions: least(&session_limits),
            connections_per_second: least(&rate_limits),
            session_limits,
            rate_limits,
        }
    }

    fn session_limits(&self, expected: Expected) -> Vec<Limit> {
        let wanted = expected.sessions;
        let mut limits = Vec::new();
        let mut add = |by, most, mend: &dyn Fn(u64) -> String| {
            limits.push(Limit::new(by, most, wanted, mend));
        };
        if let Some(memory) = self.memory {
            add("memory", sessions_carried(memory), &|wanted| {
                let bytes = wanted.saturating_mul(LEAST_OF_SESSION).saturating_mul(8) / 7;
                let mebibytes = (bytes >> 20) + 1;
                format!("limits.memory = \"{mebibytes} MiB\", and as much memory for Midspan")
            });
        }
        if let Some(descriptors) = self.descriptors {
            let most = descriptors.saturating_sub(OWN_DESCRIPTORS) / SOCKETS;
            add("descriptors", most, &|wanted| {
                let sockets = wanted.saturating_mul(SOCKETS);
                self.more_descriptors(sockets.saturating_add(OWN_DESCRIPTORS))
            });
        }
        if let Some(sessions) = self.sessions {
            add("the key sessions", sessions, &|wanted| {
                format!("limits.sessions = {wanted}")
            });
        }
        if let Some(tracking) = self.tracking {
            let ended = expected.rate.unwrap_or(0).saturating_mul(tracking.stays);
            let most = (tracking.room() / ENTRIES).saturating_sub(ended);
            add("connection tracking", most, &|wanted| {
                tracking.mend(wanted.saturating_add(ended).saturating_mul(ENTRIES))
            });
        }
        if let Some(ports) = self.ports {
            let (by, most) = ports.sessions();
            add(by, most, &|wanted| {
                let range = "sysctl -w net.ipv4.ip_local_port_range='1024 65535'";
                format!("{range}, or {}", more_sources(wanted, most))
            });
        }
        limits
    }

    fn rate_limits(&self, expected: Expected) -> Vec<Limit> {
        let wanted = expected.rate;
        let mut limits = Vec::new();
        let mut add = |by, most, mend: &dyn Fn(u64) -> String| {
            limits.push(Limit::new(by, most, wanted, mend));
        };
        if let Some(tracking) = self.tracking {
            let live = expected.sessions.unwrap_or(0).saturating_mul(ENTRIES);
            let each = ENTRIES * tracking.stays.max(1);
            let most = tracking.room().saturating_sub(live) / each;
            add("connection tracking", most, &|wanted| {
                tracking.mend(wanted.saturating_mul(each).saturating_add(live))
            });
        }
        if let Some(opening) = self.opening {
            let at_once = |rate: u64| rate.saturating_mul(LONG_OPENING).div_ceil(1000);
            let rate = |at_once: u64| at_once.saturating_mul(1000) / LONG_OPENING;
            add("openings that take 0.6 s", rate(opening.most), &|wanted| {
                let wanted = at_once(wanted);
                match OpeningLimits::descriptors_for(wanted) {
                    Some(descriptors) => self.more_descriptors(descriptors),
                    None => format!("several machines: {wanted} are too many openings for one"),
                }
            });
            let waiting = opening.backlog.saturating_mul(opening.threads.max(1));
            add("listening sockets, 0.6 s", rate(waiting), &|wanted| {
                let each = at_once(wanted).div_ceil(opening.threads.max(1));
                format!("sysctl -w net.core.somaxconn={each}")
            });
        }
        if let Some(ports) = self.ports.filter(|ports| !ports.are_reused) {
            let (by, most) = ports.rate();
            add(by, most, &|wanted| {
                let reuse = "sysctl -w net.ipv4.tcp_tw_reuse=1";
                format!("{reuse}, or {}", more_sources(wanted, most))
            });
        }
        limits
    }

    /// What gives the service this many descriptors.
    fn more_descriptors(&self, wanted: u64) -> String {
        let service = format!("LimitNOFILE={wanted} in the service, or: ulimit -Hn {wanted}");
        match self.descriptors_of_any {
            Some(most) if most < wanted => {
                format!("first sysctl -w fs.nr_open={wanted}, then {service}")
            }
            _ => service,
        }
    }
}

impl Limit {
    fn new(by: &'static str, most: u64, wanted: Option<u64>, mend: &dyn Fn(u64) -> String) -> Self {
        let wanted = wanted.filter(|wanted| *wanted > most);
        Self {
            by,
            most,
            mend: wanted.map(mend),
        }
    }
}

/// The key that raises a limit of local ports from `most` to `wanted`.
fn more_sources(wanted: u64, most: u64) -> String {
    let factor = wanted.div_ceil(most.max(1));
    format!("source = [...] with {factor} times as many addresses of this machine in the listeners")
}

fn finding(check: &str, unit: &str, limits: &[Limit], wanted: Option<u64>) -> Finding {
    let Some(least) = limits.iter().min_by_key(|limit| limit.most) else {
        return Finding::ok(check, "");
    };
    let (most, by) = (least.most, least.by);
    let others: Vec<String> = limits
        .iter()
        .filter(|limit| limit.by != by)
        .map(|limit| format!("{} by {}", limit.most, limit.by))
        .collect();
    let mut found = format!("this machine carries {most}{unit}, bounded by {by}");
    if !others.is_empty() {
        found += &format!(" (without it: {})", others.join(", "));
    }
    let mends: Vec<&str> = limits
        .iter()
        .filter_map(|limit| limit.mend.as_deref())
        .collect();
    let Some(wanted) = wanted else {
        return Finding::ok(check, found);
    };
    found += &format!("; {wanted} are expected");
    match mends.is_empty() {
        true => Finding::ok(check, found),
        false => Finding::warning(check, found, mends.join("\n    ")),
    }
}

/// The table of connection tracking; `None` if it is not there yet, or has no limit.
fn tracking(context: &Context<'_>) -> Option<Tracking> {
    let Occupancy { entries, limit } = Occupancy::read_files()?;
    let place = &context.configuration.interception.numbers;
    let ended = match timeouts::are_possible(place).unwrap_or(false) {
        true => timeouts::ENDED_SECONDS,
        false => number("net.netfilter.nf_conntrack_tcp_timeout_time_wait").unwrap_or(120),
    };
    Some(Tracking {
        entries,
        limit: limit?,
        stays: ended.saturating_add(SWEEP_SECONDS),
    })
}

/// The local ports of server legs, if no listener is transparent.
fn ports(context: &Context<'_>) -> Option<Ports> {
    let range = text("net.ipv4.ip_local_port_range")?;
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    let (pairs, are_chosen) = pairs(&context.configuration.listeners)?;
    Some(Ports {
        each: (last + 1).saturating_sub(first),
        pairs,
        are_chosen,
        are_reused: number("net.ipv4.tcp_tw_reuse") == Some(1),
    })
}

/// The pairs of a source address and a server, and whether clients choose the servers.
fn pairs(listeners: &[Listener]) -> Option<(u64, bool)> {
    let mut forward = BTreeSet::new();
    let mut chosen: Option<u64> = None;
    for listener in listeners {
        let source = &listener.relay.source;
        match &listener.mode {
            Mode::Transparent(_) => return None,
            Mode::Forward(Forward { to, .. }) => {
                let mut servers = to.addresses();
                // All names together count as one server, because their addresses are not known here.
                servers.extend(to.has_names().then(|| SocketAddr::from(([0, 0, 0, 0], 0))));
                for to in servers {
                    forward.extend(source.in_turn(to, 0).map(|source| (to, source)));
                }
            }
            Mode::Explicit(_) => {
                let [four, six] = [true, false].map(|is_four| {
                    let fitting = |address: &&IpAddr| address.is_ipv4() == is_four;
                    source.0.iter().filter(fitting).count() as u64
                });
                let addresses = four.max(six).max(1);
                chosen = Some(chosen.map_or(addresses, |least| least.min(addresses)));
            }
        }
    }
    Some(match chosen {
        Some(addresses) => (addresses, true),
        None => (forward.len() as u64, false),
    })
}

#[cfg(test)]
mod tests {
    use midspan_document::Source;

    use super::*;
    use crate::check::State;
    use crate::configuration::Configuration;

    const MIB: u64 = 1 << 20;

    fn machine() -> Machine {
        Machine {
            memory: Some(1024 * MIB),
            descriptors: Some(524_288),
            descriptors_of_any: Some(1_048_576),
            sessions: None,
            tracking: Some(Tracking {
                entries: 0,
                limit: 65_536,
                stays: 13,
            }),
            opening: Some(Opening {
                most: 65_536,
                backlog: 4096,
                threads: 4,
            }),
            ports: None,
        }
    }

    fn expected(rate: u64, sessions: u64) -> Expected {
        Expected {
            rate: Some(rate),
            sessions: Some(sessions),
        }
    }

    fn mends(limits: &[Limit]) -> Vec<&str> {
        limits.iter().filter_map(|it| it.mend.as_deref()).collect()
    }

    #[test]
    fn without_an_expected_load_the_tightest_limit_is_named() {
        let carried = machine().carried(Expected::default());
        // 7/8 of 65,536 are 57,344 entries: two for each session, or two for 13 s.
        assert_eq!(carried.sessions, Some(23_525));
        assert_eq!(carried.connections_per_second, Some(2_205));
        let row = finding("sessions", "", &carried.session_limits, None);
        assert_eq!(row.state, State::Ok);
        let found = "this machine carries 23525, bounded by memory (without it: 262112 by \
                     descriptors, 28672 by connection tracking)";
        assert_eq!(row.found, found);
    }

    #[test]
    fn each_limit_below_what_is_expected_has_its_command() {
        let carried = machine().carried(expected(40_000, 600_000));
        assert_eq!(
            mends(&carried.session_limits),
            [
                "limits.memory = \"26117 MiB\", and as much memory for Midspan",
                "first sysctl -w fs.nr_open=1200064, then LimitNOFILE=1200064 in the service, or: \
                 ulimit -Hn 1200064",
                "sysctl -w net.netfilter.nf_conntrack_max=2560008",
            ]
        );
        assert_eq!(
            mends(&carried.rate_limits),
            [
                "sysctl -w net.netfilter.nf_conntrack_max=2560008",
                "sysctl -w net.core.somaxconn=6000",
            ]
        );
        let row = finding("rate", " a second", &carried.rate_limits, Some(40_000));
        assert_eq!(row.state, State::Warning);
        assert!(row.found.ends_with("; 40000 are expected"), "{row:?}");
    }

    #[test]
    fn what_a_limit_s_command_sets_carries_the_expected_load() {
        let load = expected(2_300, 60_000);
        let mut machine = machine();
        assert!(!mends(&machine.carried(load).session_limits).is_empty());
        let room = 2 * (60_000 + 2_300 * 13);
        let table = Tracking {
            entries: 0,
            limit: (room * 8) / 7 + 8,
            stays: 13,
        };
        machine.tracking = Some(table);
        let bytes = 60_000 * LEAST_OF_SESSION * 8 / 7;
        machine.memory = Some(((bytes >> 20) + 1) << 20);
        let carried = machine.carried(load);
        assert_eq!(mends(&carried.session_limits), [""; 0], "{carried:?}");
        assert_eq!(mends(&carried.rate_limits), [""; 0], "{carried:?}");
        // Sizes are rounded up.
        let sessions = carried.sessions.unwrap();
        assert!((60_000..60_100).contains(&sessions), "{carried:?}");
        assert_eq!(carried.connections_per_second, Some(2_300));
    }

    #[test]
    fn forward_listeners_are_bounded_by_their_ports() {
        let ports = Ports {
            each: 28_232,
            pairs: 2,
            are_chosen: false,
            are_reused: false,
        };
        let mut machine = Machine {
            ports: Some(ports),
            ..Machine::default()
        };
        let carried = machine.carried(Expected::default());
        assert_eq!(carried.sessions, Some(56_464));
        assert_eq!(carried.connections_per_second, Some(941));
        let slow = machine.carried(expected(2_000, 100_000));
        assert_eq!(
            mends(&slow.rate_limits),
            [
                "sysctl -w net.ipv4.tcp_tw_reuse=1, or source = [...] with 3 times as many addresses of \
              this machine in the listeners"
            ]
        );
        machine.ports = Some(Ports {
            are_reused: true,
            ..ports
        });
        let carried = machine.carried(Expected::default());
        assert_eq!(carried.connections_per_second, None);
        assert_eq!(finding("rate", "", &carried.rate_limits, None).found, "");
    }

    #[test]
    fn each_source_address_has_ports_of_its_own() {
        let pairs_of = |listeners: &[&str]| {
            let text: String = (listeners.iter().enumerate())
                .map(|(number, keys)| format!("[[listener]]\nname = \"l{number}\"\n{keys}\n"))
                .collect();
            let source = Source::new("midspan.toml", text);
            pairs(&Configuration::read(&source).unwrap().listeners)
        };
        let forward = |port: u16, source: &str| {
            format!("listen = \"127.0.0.1:{port}\"\nto = \"192.0.2.9:80\"\n{source}")
        };
        let three = "source = [\"192.0.2.1\", \"192.0.2.2\", \"2001:db8::1\"]";
        let [any, two] = [forward(1, ""), forward(2, three)];
        assert_eq!(pairs_of(&[&any]), Some((1, false)));
        assert_eq!(pairs_of(&[&two]), Some((2, false)));
        // Ports that two listeners share count once.
        let again = forward(3, three);
        assert_eq!(pairs_of(&[&two, &again]), Some((2, false)));
        assert_eq!(pairs_of(&["mode = \"socks5\"", &two]), Some((1, true)));
        let http = format!("mode = \"http\"\n{three}");
        assert_eq!(pairs_of(&[&http, &any]), Some((2, true)));
        let transparent = "mode = \"transparent\"\ninterfaces = [\"e\"]";
        assert_eq!(pairs_of(&[&any, transparent]), None);
    }

    #[test]
    fn numbers_that_no_machine_has_are_no_overflow() {
        let mut machine = machine();
        machine.tracking = Some(Tracking {
            entries: u64::MAX,
            limit: 1,
            stays: 120,
        });
        for load in [expected(u64::MAX, u64::MAX), expected(0, 0)] {
            let carried = machine.carried(load);
            assert_eq!(carried.connections_per_second, Some(0));
        }
        machine.memory = Some(u64::MAX);
        machine.descriptors = Some(u64::MAX);
        machine.carried(expected(u64::MAX, u64::MAX));
    }
}
