//! What is compared: a path, and what runs on it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use midspan_path::{Flow, NodeIndex, NodeKind, Path, Workload};
use midspan_records::RunKey;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::programs::Program;
use crate::proxies::thin::ThinOptions;
use crate::static_route::StaticRoute;

/// The time limit of a transfer: a multiple of its expected time, and at least this number of
/// seconds.
const LIMIT: (f64, f64) = (8.0, 120.0);
/// Seconds of a run apart from its transfers: for the network, the servers and the proxy.
const SET_UP: f64 = 3.0;

/// One of the cases that are compared.
#[derive(Debug, Clone)]
pub struct Case {
    /// The case's name, unique among those that are compared, such as "normal segments".
    pub name: &'static str,
    /// The path, with its hosts, proxies and flows.
    pub path: Path,
    /// What runs on the path.
    pub kind: CaseKind,
    /// Run `midspan thin` with these options on each client's host. In a case of the kind
    /// [`CaseKind::Thin`] it runs even if this is `None`, with its defaults.
    pub thin: Option<ThinOptions>,
    /// What the first flow of each run transfers before the run, through the same proxies. This
    /// transfer is not measured; the proxies learn the path from it.
    pub discarded: Option<Workload>,
    /// How long the transfers are expected to take, in seconds; 0 if it is not known.
    pub seconds: f64,
    /// Time limit of one transfer; `None` for one that depends on `seconds`.
    pub limit: Option<Duration>,
}

impl Case {
    /// A case with Midspan at the places of the proxies.
    #[must_use]
    pub const fn midspan(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, CaseKind::Midspan, seconds)
    }

    /// A case with plain routing.
    #[must_use]
    pub const fn direct(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, CaseKind::Direct, seconds)
    }

    /// A case with plain routing and thinned ACKs.
    #[must_use]
    pub const fn thin(name: &'static str, path: Path, seconds: f64) -> Self {
        Self::new(name, path, CaseKind::Thin, seconds)
    }

    /// A case of this kind.
    #[must_use]
    pub const fn new(name: &'static str, path: Path, kind: CaseKind, seconds: f64) -> Self {
        Self {
            name,
            path,
            kind,
            thin: None,
            discarded: None,
            seconds,
            limit: None,
        }
    }

    /// A case of each kind on the same path, each once, with the kind's name and a time limit of one transfer. Of the
    /// kind [`CaseKind::Oracle`], those of all overlay routes: [`oracle`](crate::oracle()) finds the best.
    ///
    /// # Errors
    /// The path does not have an overlay route for one of its flows.
    pub fn of_kinds(
        kinds: &[CaseKind],
        path: &Path,
        limit: Duration,
    ) -> Result<Vec<Self>, LabError> {
        let mut all: Vec<CaseKind> = Vec::new();
        for kind in kinds {
            for one in kind.on(path)? {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
        let of = |kind: CaseKind| Self {
            limit: Some(limit),
            ..Self::new(kind.name(), kind.path_from(path), kind, 0.0)
        };
        Ok(all.into_iter().map(of).collect())
    }

    /// The case with these options of thinning.
    #[must_use]
    pub const fn with_thin(mut self, options: ThinOptions) -> Self {
        self.thin = Some(options);
        self
    }

    /// The case after a transfer that is not measured and takes about `seconds`.
    #[must_use]
    pub fn after(mut self, discarded: Workload, seconds: f64) -> Self {
        self.discarded = Some(discarded);
        self.seconds += seconds;
        self
    }

    /// Seconds of a whole run.
    #[must_use]
    pub fn run_seconds(&self) -> f64 {
        self.seconds + SET_UP
    }

    /// Whether its flows start one after another.
    #[must_use]
    pub fn is_staggered(&self) -> bool {
        let mut flows = self.path.flows.iter();
        flows.any(|flow| flow.start > TimeSpan::ZERO)
    }

    /// What distinguishes a run of the case from others in a file of stored runs: all its settings, as
    /// in a path file. The name of the case is not part of the key. `None` if no path file can have the
    /// path.
    #[must_use]
    pub fn run_key(&self, repetition: u32) -> Option<RunKey> {
        let mut path = self.path.clone();
        path.description.clear();
        let mut key = RunKey::new()
            .with("path", path.to_text()?)
            .with("case", self.kind)
            .with("repetition", repetition);
        if let Some(ThinOptions { pass, ack_first }) = self.thin {
            key = key.with("thin", if pass { "pass" } else { "by default" });
            if let Some(rate) = ack_first {
                key = key.with("ACKs first at", rate);
            }
        }
        if let Some(discarded) = &self.discarded {
            key = key.with("after", discarded.to_text());
        }
        Some(key)
    }

    /// Time limit of one transfer.
    pub(crate) fn limit(&self) -> Duration {
        let by_time = || Duration::from_secs_f64((self.seconds * LIMIT.0).max(LIMIT.1));
        self.limit.unwrap_or_else(by_time)
    }
}

/// What runs on the path of a case: what its proxies do, and whether its clients thin ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum CaseKind {
    /// Plain routing: connections run from end to end.
    Direct,
    /// As [`Self::Direct`], with the congestion control BBR on the servers.
    DirectBbr,
    /// HAProxy at every proxy.
    Haproxy,
    /// `PEPsal` at every proxy: clients connect to the server. It is left out of a comparison if it is
    /// not installed ([`CaseKind::missing`]).
    Pepsal,
    /// Midspan with transparent listeners at every proxy: clients connect to the server.
    Midspan,
    /// As [`Self::Midspan`], with the handshake early.
    MidspanEarly,
    /// Midspan with forward listeners at every proxy: clients connect to the first proxy, as they
    /// do with HAProxy.
    MidspanForward,
    /// Plain routing, with `midspan thin` on each client's host.
    Thin,
    /// Midspan with forward listeners at the overlay nodes: clients connect to the ingress, which chooses the
    /// overlay route of each session. Before a run, the nodes measure each other.
    Overlay,
    /// As [`Self::Overlay`], with the same overlay route for all sessions.
    OverlayStatic(StaticRoute),
    /// For each flow of each repetition, the best of all overlay routes. It is found in the runs of the
    /// others, and is not run itself.
    Oracle,
}

impl CaseKind {
    /// All kinds in the order of tables, without those of one overlay route.
    pub const ALL: [Self; 10] = [
        Self::Direct,
        Self::DirectBbr,
        Self::Haproxy,
        Self::Pepsal,
        Self::Midspan,
        Self::MidspanEarly,
        Self::MidspanForward,
        Self::Thin,
        Self::Overlay,
        Self::Oracle,
    ];

    /// The name, as in options and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::DirectBbr => "direct-bbr",
            Self::Haproxy => "haproxy",
            Self::Pepsal => "pepsal",
            Self::Midspan => "midspan",
            Self::MidspanEarly => "midspan-early",
            Self::MidspanForward => "midspan-forward",
            Self::Thin => "thin",
            Self::Overlay => "overlay",
            Self::OverlayStatic(route) => route.name(),
            Self::Oracle => "oracle",
        }
    }

    /// The kinds that are run for this one on a path.
    fn on(self, path: &Path) -> Result<Vec<Self>, LabError> {
        let all_routes = |route: StaticRoute| -> Result<Vec<Self>, LabError> {
            let routes = route.on(path)?.into_iter();
            Ok(routes.map(Self::OverlayStatic).collect())
        };
        match self {
            Self::Overlay => {
                for flow in &path.flows {
                    path.ingress(flow)?;
                }
                Ok(vec![self])
            }
            Self::OverlayStatic(route) => all_routes(route),
            Self::Oracle => all_routes(StaticRoute::all()),
            _ => Ok(vec![self]),
        }
    }

    /// The proxies at which connections of a flow end, from the client on. With chosen overlay routes, only
    /// the ingress is known.
    pub(crate) fn carriers(self, path: &Path, flow: &Flow) -> Vec<NodeIndex> {
        match self {
            Self::Direct | Self::DirectBbr | Self::Thin => Vec::new(),
            Self::Haproxy
            | Self::Pepsal
            | Self::Midspan
            | Self::MidspanEarly
            | Self::MidspanForward => path.proxies_of(flow),
            Self::Overlay | Self::Oracle => path.ingress(flow).into_iter().collect(),
            Self::OverlayStatic(route) => route.stops(path, flow).unwrap_or_default(),
        }
    }

    /// Whether overlay nodes carry the flows.
    #[must_use]
    pub const fn is_overlay(self) -> bool {
        matches!(self, Self::Overlay | Self::OverlayStatic(_) | Self::Oracle)
    }

    /// Whether clients connect to the first proxy; otherwise they connect to the server.
    #[must_use]
    pub const fn is_forward(self) -> bool {
        matches!(self, Self::Haproxy | Self::MidspanForward) || self.is_overlay()
    }

    /// Whether connections run from the client to the server, without a proxy.
    #[must_use]
    pub const fn is_without_proxy(self) -> bool {
        matches!(self, Self::Direct | Self::DirectBbr | Self::Thin)
    }

    /// The program that this kind needs and that is not installed, if it is one that Debian does not
    /// have: such a case is left out of a comparison. A missing program of Debian is an error of the
    /// run, with the package to install.
    #[must_use]
    pub fn missing(self) -> Option<LabError> {
        match self {
            Self::Pepsal => Program::Pepsal.find().err(),
            _ => None,
        }
    }

    /// The path of a case of this kind: `path` with the changes of the kind.
    fn path_from(self, path: &Path) -> Path {
        let mut path = path.clone();
        if self == Self::DirectBbr {
            for server in path.flows.iter().map(|flow| flow.to).collect::<Vec<_>>() {
                if let NodeKind::Host(host) = &mut path.nodes[server.0].kind {
                    host.congestion_control = Some("bbr".to_owned());
                }
            }
        }
        path
    }

    /// A sentence for reports: what runs at the proxies, and which address each end sees.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Direct => {
                "direct: plain routing; each connection runs from the client to the server."
            }
            Self::DirectBbr => {
                "direct-bbr: as direct, and the servers send with the congestion control BBR."
            }
            Self::Haproxy => {
                "haproxy: clients connect to HAProxy at the first proxy; the server sees the last \
                 proxy's address."
            }
            Self::Pepsal => {
                "pepsal: clients connect to the server, and PEPsal intercepts their connections at each \
                 proxy; the server sees the last proxy's address."
            }
            Self::Midspan => {
                "midspan: clients connect to the server, and Midspan intercepts their connections \
                 at each proxy; client and server see each other's own address and port."
            }
            Self::MidspanEarly => {
                "midspan-early: as midspan, but each proxy accepts connections at once, and \
                 connects to the server meanwhile."
            }
            Self::MidspanForward => {
                "midspan-forward: clients connect to Midspan at the first proxy; the server sees \
                 the last proxy's address."
            }
            Self::Thin => {
                "thin: plain routing, and `midspan thin` thins the ACKs that leave the client's \
                 host; each connection runs from the client to the server."
            }
            Self::Overlay => {
                "overlay: clients connect to Midspan at the first overlay node, which chooses the \
                 overlay route of each session by measurements; the server sees the last overlay \
                 node's address."
            }
            Self::OverlayStatic(_) => {
                "overlay-static: as overlay, and the name of the case has the overlay nodes after \
                 the first one."
            }
            Self::Oracle => {
                "oracle: for each flow of each repetition, the best of the cases overlay-static."
            }
        }
    }
}

impl fmt::Display for CaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CaseKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(route) = StaticRoute::of_case(text) {
            return Ok(Self::OverlayStatic(route));
        }
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("unknown case \"{text}\": there are {names}, overlay-static=ROUTE")
            })
    }
}

impl TryFrom<String> for CaseKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CaseKind> for String {
    fn from(kind: CaseKind) -> Self {
        kind.name().to_owned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kind(name: &str) -> CaseKind {
        name.parse().unwrap()
    }

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let names = CaseKind::ALL.map(CaseKind::name);
        for name in names.into_iter().chain(["overlay-static=fra/sin"]) {
            assert_eq!(kind(name).name(), name);
            let text = serde_json::to_string(&kind(name)).unwrap();
            assert_eq!(text, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<CaseKind>(&text).unwrap(), kind(name));
        }
        let error = "overlay-static=".parse::<CaseKind>().unwrap_err();
        assert!(error.contains("overlay-static=ROUTE"), "{error}");
    }

    #[test]
    fn the_oracle_runs_every_overlay_route_once() {
        let path = Path::load("triangle").unwrap();
        let names = |kinds: &[&str]| -> Vec<&'static str> {
            let kinds: Vec<CaseKind> = kinds.iter().map(|name| kind(name)).collect();
            let cases = Case::of_kinds(&kinds, &path, Duration::from_secs(1)).unwrap();
            cases.iter().map(|case| case.name).collect()
        };
        let routes = [
            "overlay-static=here",
            "overlay-static=sin",
            "overlay-static=fra/sin",
        ];
        assert_eq!(names(&["oracle"]), routes);
        assert_eq!(names(&["overlay-static=all"]), routes);
        assert_eq!(
            names(&["direct", "overlay-static=sin", "oracle", "overlay"]),
            ["direct", routes[1], routes[0], routes[2], "overlay"]
        );
        let refused = Case::of_kinds(&[kind("overlay-static=fra")], &path, Duration::ZERO);
        assert!(refused.is_err());
        let geo = Path::load("geo").unwrap();
        for name in ["overlay", "oracle"] {
            assert!(Case::of_kinds(&[kind(name)], &geo, Duration::ZERO).is_err());
        }
    }

    #[test]
    fn the_nodes_of_a_route_carry_its_flows() {
        let path = Path::load("triangle").unwrap();
        let carriers = |name: &str| -> Vec<String> {
            let nodes = kind(name).carriers(&path, &path.flows[0]).into_iter();
            nodes.map(|node| path.node(node).name.clone()).collect()
        };
        assert_eq!(carriers("direct"), [""; 0]);
        assert_eq!(carriers("midspan"), ["ams", "sin"]);
        assert_eq!(carriers("overlay"), ["ams"]);
        assert_eq!(carriers("overlay-static=here"), ["ams"]);
        assert_eq!(carriers("overlay-static=fra/sin"), ["ams", "fra", "sin"]);
    }
}
