//! A measurement of a path.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use midspan_linux::netlink::RouteMetrics;
use midspan_path::{Flow, NodeIndex, Order, Path, ProxySettings, Workload};
use midspan_policy::{Handshake, LegSettings};
use midspan_units::TimeSpan;
use tempfile::TempDir;

use crate::awake::Awake;
use crate::carried;
use crate::emulator::LinkReport;
use crate::error::at;
use crate::load::{Ticks, other_load};
use crate::measurement::{FlowMeasurement, FlowResult, Measurement};
use crate::proxies::midspan::Carried;
use crate::proxies::thin::{self, ThinOptions};
use crate::proxies::{Forward, Running, haproxy, midspan, pepsal};
use crate::supported;
use crate::tcp_counters::TcpCounters;
use crate::topology::{Topology, interface};
use crate::validity::{self, Disturbance};
use crate::workload::web_server::{Files, WebServer};
use crate::workload::{curl, iperf3, web_server};
use crate::{Case, CaseKind, LabError, Purpose, Validity};

/// The progress of a measurement, for display.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// The measurement begins.
    Ready {
        /// Number of runs that follow.
        runs: u64,
    },
    /// A run begins.
    Begin {
        /// The case.
        case: &'a Case,
        /// The flow; `None` if all flows run together.
        flow: Option<&'a Flow>,
        /// The number of the repetition, from 0.
        repetition: u32,
    },
    /// A run was void and is repeated.
    Again(&'a Validity),
    /// A run has ended.
    End(&'a Measurement),
}

/// Pause after a transfer that is not measured, for the last ACKs and FINs: some round trips of a
/// satellite path.
const REST: Duration = Duration::from_secs(2);

/// Builds the network, runs every flow of every case (the cases alternate), and returns all
/// measurements. Consecutive runs on one path use the same network. `repetitions` are the numbers
/// of the repetitions, from 0. `purpose` decides how much may disturb the runs: in a measurement, a
/// void run is repeated. If the third attempt is void, its measurement is returned nevertheless.
pub fn run(
    cases: &[Case],
    repetitions: Range<u32>,
    purpose: Purpose,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Measurement>, LabError> {
    for case in cases {
        supported::check(&case.path)?;
    }
    let runs: Vec<(&Case, Vec<usize>)> = alternating(cases);
    let mut built: Option<Lab<'_>> = None;
    let count = runs.len() as u64 * repetitions.clone().count() as u64;
    progress(Progress::Ready { runs: count });
    let mut measurements = Vec::new();
    for repetition in repetitions {
        for (case, group) in &runs {
            let lab = match built.take() {
                Some(same) if *same.path == case.path => built.insert(same),
                // The network of another path ends before the next one begins.
                other => {
                    drop(other);
                    built.insert(Lab::build(&case.path, cases, purpose)?)
                }
            };
            progress(Progress::Begin {
                case,
                flow: single(group).map(|index| &case.path.flows[index]),
                repetition,
            });
            let mut measurement = lab.measure(case, group, repetition)?;
            for _ in 1..purpose.attempts() {
                if measurement.validity.counts() {
                    break;
                }
                progress(Progress::Again(&measurement.validity));
                measurement = lab.measure(case, group, repetition)?;
            }
            progress(Progress::End(&measurement));
            measurements.push(measurement);
        }
    }
    Ok(measurements)
}

/// Each case with each of its groups of flows, the cases one after another for each group.
fn alternating(cases: &[Case]) -> Vec<(&Case, Vec<usize>)> {
    let mut runs = Vec::new();
    let groups: Vec<_> = cases.iter().map(|case| groups(&case.path)).collect();
    for place in 0..groups.iter().map(Vec::len).max().unwrap_or(0) {
        let of_case = cases.iter().zip(&groups);
        runs.extend(of_case.filter_map(|(case, groups)| Some((case, groups.get(place)?.clone()))));
    }
    runs
}

/// The groups of flows that run at the same time, by position in the path file.
fn groups(path: &Path) -> Vec<Vec<usize>> {
    let all = 0..path.flows.len();
    match path.order {
        Order::InTurn => all.map(|flow| vec![flow]).collect(),
        Order::Together => vec![all.collect()],
    }
}

fn single(group: &[usize]) -> Option<usize> {
    match group {
        [flow] => Some(*flow),
        _ => None,
    }
}

/// The network with its servers.
struct Lab<'a> {
    path: &'a Path,
    purpose: Purpose,
    topology: Topology,
    files: Files,
    // Dropped in this order: servers end before their files are removed.
    _servers: Vec<(WebServer, Option<iperf3::BulkServer>)>,
    folder: TempDir,
}

impl<'a> Lab<'a> {
    /// The network of `path`, for those of `cases` that have this path.
    fn build(path: &'a Path, cases: &[Case], purpose: Purpose) -> Result<Self, LabError> {
        let folder = tempfile::Builder::new()
            .prefix("midspan-lab-")
            .tempdir()
            .map_err(at(&std::env::temp_dir()))?;
        let topology = Topology::build(path)?;
        let files = Files::write(folder.path().join("files"), &sizes(path, cases))?;
        let bulk = path.flows.iter().any(|flow| {
            matches!(
                flow.workload,
                Workload::BulkDownload { .. } | Workload::BulkUpload { .. }
            )
        });
        let hosts: BTreeSet<NodeIndex> = path.flows.iter().map(|flow| flow.to).collect();
        let mut servers = Vec::new();
        for host in hosts {
            let node = topology.node(host);
            let address = topology.address(host);
            let own = folder.path().join(format!("server-{}", host.0));
            let web = WebServer::start(node, address, &files, &own)?;
            let bulk = bulk
                .then(|| {
                    iperf3::BulkServer::start(node, SocketAddr::new(address, iperf3::PORT), &own)
                })
                .transpose()?;
            servers.push((web, bulk));
        }
        Ok(Self {
            path,
            purpose,
            topology,
            files,
            _servers: servers,
            folder,
        })
    }

    /// One run of the flows `group` under `case`.
    fn measure(
        &self,
        case: &Case,
        group: &[usize],
        repetition: u32,
    ) -> Result<Measurement, LabError> {
        let path = self.path;
        self.set_proxy_routes(case)?;
        let proxies = self.start_proxies(case)?;
        // Every case of a repetition has the same losses; the next repetition has others.
        let seed = path.seed.wrapping_add(u64::from(repetition));
        self.discard(case, group, seed)?;
        let load_before = other_load();
        let awake = Awake::begin();
        self.topology.reset_links(path, seed)?;
        let counters = self.tcp_counters()?;
        let ticks = Ticks::now();
        let flows = thread::scope(|scope| {
            let running: Vec<_> = group
                .iter()
                .map(|&index| {
                    scope.spawn(move || {
                        let result = self.run_flow(case, index, &path.flows[index])?;
                        Ok(FlowMeasurement {
                            flow: index,
                            result,
                        })
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|flow| {
                    flow.join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect::<Result<Vec<_>, LabError>>()
        })?;
        let stolen = Ticks::now().stolen_since(ticks);
        drop(awake);
        let links = self
            .topology
            .links()
            .map(crate::emulator::LinkEmulator::report)
            .collect::<Result<Vec<LinkReport>, _>>()?;
        let counted: Vec<TcpCounters> = self
            .tcp_counters()?
            .iter()
            .zip(&counters)
            .map(|(now, before)| now.since(*before))
            .collect();
        let retransmissions = counted.iter().map(|node| node.segments_retransmitted).sum();
        let timeouts = counted.iter().map(|node| node.timeouts).sum();
        drop(proxies);
        let not_carried = if case.kind.is_without_proxy() {
            Vec::new()
        } else {
            carried::missed(path, group, &counted)
        };
        let names = path.links.iter().map(|link| link.name.as_str());
        let disturbance = Disturbance {
            round_trip: validity::round_trip(path, group),
            links: names.zip(&links).collect(),
            load_before,
            stolen,
            not_carried,
        };
        let validity = validity::judge(self.purpose, &disturbance);
        Ok(Measurement {
            case: case.kind,
            repetition,
            seed,
            flows,
            links,
            retransmissions,
            timeouts,
            validity,
        })
    }

    fn tcp_counters(&self) -> Result<Vec<TcpCounters>, LabError> {
        self.topology.nodes().map(TcpCounters::read).collect()
    }

    /// Runs the transfer that is not measured, over links with the same seed.
    fn discard(&self, case: &Case, group: &[usize], seed: u64) -> Result<(), LabError> {
        let (Some(workload), Some(&index)) = (case.discarded, group.first()) else {
            return Ok(());
        };
        let path = self.path;
        let flow = Flow {
            workload,
            start: TimeSpan::ZERO,
            ..path.flows[index].clone()
        };
        self.topology.reset_links(path, seed)?;
        self.run_flow(case, index, &flow)?;
        thread::sleep(REST);
        Ok(())
    }

    fn run_flow(&self, case: &Case, index: usize, flow: &Flow) -> Result<FlowResult, LabError> {
        thread::sleep(flow.start.into());
        let client = self.topology.node(flow.from);
        let web = self.target(case, flow, Service::Web);
        let bulk = self.target(case, flow, Service::Bulk);
        let limit = case.limit();
        let scratch = self.folder.path().join(format!("flow-{index}"));
        fs::create_dir_all(&scratch).map_err(at(&scratch))?;
        Ok(match flow.workload {
            Workload::Download { size } => {
                curl::download(client, web, size.bytes(), &self.files, &scratch, limit)?.into()
            }
            Workload::Upload { size } => {
                let stored = web_server::stored(&self.server_folder(flow), index);
                curl::upload(client, web, size.bytes(), &self.files, &stored, limit)?.into()
            }
            Workload::Page {
                objects,
                size,
                parallel,
            } => FlowResult::Page {
                completion: curl::page(client, web, size.bytes(), objects, parallel, limit)?,
            },
            Workload::RequestResponse { count, size } => FlowResult::RequestResponse {
                times: curl::request_response(client, web, size.bytes(), count, limit)?,
            },
            Workload::BulkDownload { duration } => {
                let direction = iperf3::Direction::Download;
                iperf3::transfer(client, bulk, direction, duration.into())?.into()
            }
            Workload::BulkUpload { duration } => {
                let direction = iperf3::Direction::Upload;
                iperf3::transfer(client, bulk, direction, duration.into())?.into()
            }
        })
    }

    fn server_folder(&self, flow: &Flow) -> std::path::PathBuf {
        self.folder.path().join(format!("server-{}", flow.to.0))
    }

    /// The address to which a flow's client connects: the server's or, in a forward case, the first
    /// proxy's.
    fn target(&self, case: &Case, flow: &Flow, service: Service) -> SocketAddr {
        let first = self.path.proxies_of(flow).first().copied();
        match first {
            Some(proxy) if case.kind.is_forward() => {
                SocketAddr::new(self.topology.address(proxy), listen_port(flow.to, service))
            }
            _ => SocketAddr::new(self.topology.address(flow.to), service.port()),
        }
    }

    /// The forwards of one proxy: for each flow through this proxy, to the next proxy or to the
    /// server.
    fn forwards(&self, proxy: NodeIndex) -> Vec<Forward> {
        let mut forwards: Vec<Forward> = Vec::new();
        for flow in &self.path.flows {
            let proxies = self.path.proxies_of(flow);
            let Some(place) = proxies.iter().position(|node| *node == proxy) else {
                continue;
            };
            for service in [Service::Web, Service::Bulk] {
                let to = match proxies.get(place + 1) {
                    Some(next) => {
                        SocketAddr::new(self.topology.address(*next), listen_port(flow.to, service))
                    }
                    None => SocketAddr::new(self.topology.address(flow.to), service.port()),
                };
                let listen =
                    SocketAddr::new(self.topology.address(proxy), listen_port(flow.to, service));
                let forward = Forward { listen, to };
                if !forwards.contains(&forward) {
                    forwards.push(forward);
                }
            }
        }
        forwards
    }

    /// The interfaces of a proxy at which its clients' connections arrive.
    fn client_interfaces(&self, proxy: NodeIndex) -> Vec<String> {
        let path = self.path;
        let links: BTreeSet<_> = path
            .flows
            .iter()
            .filter(|flow| path.proxies_of(flow).contains(&proxy))
            .filter_map(|flow| Some(path.next_hop(proxy, flow.from)?.link))
            .collect();
        links.into_iter().map(interface).collect()
    }

    fn start_proxies(&self, case: &Case) -> Result<Vec<Running<'_>>, LabError> {
        let mut running = Vec::new();
        for (index, settings) in self.path.proxies() {
            let forwards = self.forwards(index);
            if forwards.is_empty() {
                continue;
            }
            let node = self.topology.node(index);
            let folder = self.folder.path().join(format!("proxy-{}", index.0));
            fs::create_dir_all(&folder).map_err(at(&folder))?;
            let carried = match case.kind {
                CaseKind::Direct | CaseKind::DirectBbr | CaseKind::Thin => continue,
                CaseKind::Haproxy => {
                    let haproxy = haproxy::start(node, &forwards, &folder)?;
                    running.push(Running::Program(haproxy));
                    continue;
                }
                CaseKind::Pepsal => {
                    let interfaces = self.client_interfaces(index);
                    running.push(Running::Pepsal(pepsal::start(node, &interfaces, &folder)?));
                    continue;
                }
                CaseKind::Midspan => {
                    Carried::Interfaces(self.client_interfaces(index), Handshake::EndToEnd)
                }
                CaseKind::MidspanEarly => {
                    Carried::Interfaces(self.client_interfaces(index), Handshake::Early)
                }
                CaseKind::MidspanForward => Carried::Forwards(forwards),
            };
            let proxy = midspan::start(node, &carried, settings, &folder)?;
            running.push(Running::Program(proxy));
        }
        let default = (case.kind == CaseKind::Thin).then(ThinOptions::default);
        if let Some(options) = case.thin.or(default) {
            for (index, interface) in self.client_uplinks() {
                let folder = self.folder.path().join(format!("client-{}", index.0));
                fs::create_dir_all(&folder).map_err(at(&folder))?;
                let host = self.topology.node(index);
                let thin = thin::start(host, &interface, options, &folder)?;
                running.push(Running::Program(thin));
            }
        }
        Ok(running)
    }

    /// The clients, each with the interface by which it reaches its servers.
    fn client_uplinks(&self) -> BTreeSet<(NodeIndex, String)> {
        let path = self.path;
        path.flows
            .iter()
            .filter_map(|flow| {
                let link = path.next_hop(flow.from, flow.to)?.link;
                Some((flow.from, interface(link)))
            })
            .collect()
    }

    /// HAProxy and `PEPsal` get from their node's routes the settings that Midspan gets from its configuration;
    /// otherwise the comparison would be unfair.
    fn set_proxy_routes(&self, case: &Case) -> Result<(), LabError> {
        let path = self.path;
        for (index, settings) in path.proxies() {
            self.topology.set_routes(path, index, |destination| {
                if matches!(case.kind, CaseKind::Haproxy | CaseKind::Pepsal) {
                    leg_metrics(self.leg_towards(index, destination, settings))
                } else {
                    RouteMetrics::default()
                }
            })?;
        }
        Ok(())
    }

    /// The settings of the leg on the side of `destination`: the client leg if a flow through this
    /// proxy arrives over the link that leads to `destination`.
    fn leg_towards<'s>(
        &self,
        proxy: NodeIndex,
        destination: NodeIndex,
        settings: &'s ProxySettings,
    ) -> &'s LegSettings {
        let path = self.path;
        let link = path.next_hop(proxy, destination).map(|hop| hop.link);
        let towards_client = path.flows.iter().any(|flow| {
            path.proxies_of(flow).contains(&proxy)
                && path.next_hop(proxy, flow.from).map(|hop| hop.link) == link
        });
        if towards_client {
            &settings.client_leg
        } else {
            &settings.server_leg
        }
    }
}

fn leg_metrics(settings: &LegSettings) -> RouteMetrics {
    RouteMetrics {
        initial_window: settings.initial_window,
        congestion_control: settings.congestion_control.clone(),
        locked_mtu: None,
    }
}

impl From<iperf3::Transferred> for FlowResult {
    fn from(transferred: iperf3::Transferred) -> Self {
        let iperf3::Transferred {
            goodput,
            round_trip,
        } = transferred;
        Self::Bulk {
            goodput,
            round_trip,
        }
    }
}

impl From<curl::Transferred> for FlowResult {
    fn from(transferred: curl::Transferred) -> Self {
        Self::File {
            first_byte: transferred.first_byte,
            completion: transferred.completion,
        }
    }
}

/// The services of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Web,
    Bulk,
}

impl Service {
    const fn port(self) -> u16 {
        match self {
            Self::Web => web_server::PORT,
            Self::Bulk => iperf3::PORT,
        }
    }
}

/// The port on which proxies listen for connections to a server: two ports for each node.
fn listen_port(server: NodeIndex, service: Service) -> u16 {
    const FIRST: u16 = 8000;
    let place = u16::try_from(server.0).unwrap_or(u16::MAX / 4);
    FIRST + 2 * place + u16::from(service == Service::Bulk)
}

/// The sizes of all files that those of `cases` with this path need.
fn sizes(path: &Path, cases: &[Case]) -> BTreeSet<u64> {
    let flows = path.flows.iter().map(|flow| flow.workload);
    let here = cases.iter().filter(|case| case.path == *path);
    flows
        .chain(here.filter_map(|case| case.discarded))
        .filter_map(|workload| match workload {
            Workload::Download { size }
            | Workload::Upload { size }
            | Workload::Page { size, .. }
            | Workload::RequestResponse { size, .. } => Some(size.bytes()),
            Workload::BulkDownload { .. } | Workload::BulkUpload { .. } => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use midspan_document::Source;

    use super::*;

    #[test]
    fn the_cases_alternate_for_each_flow_and_for_flows_that_run_together() {
        let text = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nname = \"wire\"\n\
                    between = [\"a\", \"b\"]\n";
        let flow = |name| {
            format!(
                "[[flow]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"b\"\nworkload = \"download\"\n\
                 size = \"1 MB\"\n"
            )
        };
        let text = format!("{text}{}{}", flow("one"), flow("two"));
        let path = Path::read(&Source::new("wire", text)).unwrap();
        let kinds = [CaseKind::Direct, CaseKind::Midspan];
        let mut cases = Case::of_kinds(&kinds, &path, Duration::from_secs(1));
        let order = |cases: &[Case]| {
            let runs = alternating(cases);
            let of = |(case, flows): &(&Case, Vec<usize>)| (case.name, flows.clone());
            runs.iter().map(of).collect::<Vec<_>>()
        };
        let by_turns = [
            ("direct", vec![0]),
            ("midspan", vec![0]),
            ("direct", vec![1]),
            ("midspan", vec![1]),
        ];
        assert_eq!(order(&cases), by_turns);
        cases[1].path.order = Order::Together;
        let mixed = [
            ("direct", vec![0]),
            ("midspan", vec![0, 1]),
            ("direct", vec![1]),
        ];
        assert_eq!(order(&cases), mixed);
        assert_eq!(order(&[]), []);
    }
}
