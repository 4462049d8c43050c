//! What is compared: a path, and what runs on it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use midspan_path::{NodeKind, Path, Workload};
use midspan_records::RunKey;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::programs::Program;
use crate::proxies::thin::ThinOptions;

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

    /// A case of each kind on the same path, with the kind's name and a time limit of one transfer.
    #[must_use]
    pub fn of_kinds(kinds: &[CaseKind], path: &Path, limit: Duration) -> Vec<Self> {
        let of = |kind: &CaseKind| Self {
            limit: Some(limit),
            ..Self::new(kind.name(), kind.path_from(path), *kind, 0.0)
        };
        kinds.iter().map(of).collect()
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
#[serde(rename_all = "kebab-case")]
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
}

impl CaseKind {
    /// All kinds, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Direct,
        Self::DirectBbr,
        Self::Haproxy,
        Self::Pepsal,
        Self::Midspan,
        Self::MidspanEarly,
        Self::MidspanForward,
        Self::Thin,
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
        }
    }

    /// Whether clients connect to the first proxy; otherwise they connect to the server.
    #[must_use]
    pub const fn is_forward(self) -> bool {
        matches!(self, Self::Haproxy | Self::MidspanForward)
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
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("unknown case \"{text}\": there are {names}")
            })
    }
}
