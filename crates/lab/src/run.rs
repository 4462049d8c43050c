//! A measurement of a path.

use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use midspan_path::{Flow, Order, Path, Workload};
use midspan_units::TimeSpan;

use crate::awake::Awake;
use crate::carried;
use crate::emulator::LinkReport;
use crate::error::at;
use crate::load::{Ticks, other_load};
use crate::measurement::{FlowMeasurement, FlowResult, Measurement};
use crate::network::{Network, SMALL, Service};
use crate::shell::Surroundings;
use crate::supported;
use crate::tcp_counters::TcpCounters;
use crate::trace::{RunName, RunRecording, RunTrace, Tracing};
use crate::validity::{self, Disturbance};
use crate::workload::{command, curl, iperf3, web_server};
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
    /// The traces of the run that ends.
    Traced(&'a RunTrace),
    /// A run has ended.
    End(&'a Measurement),
}

/// Pause after a transfer that is not measured, for the last ACKs and FINs: some round trips of a
/// satellite path.
const REST: Duration = Duration::from_secs(2);
/// The number of small downloads before a run in which overlay nodes choose routes.
const COMPARISONS: u32 = 3;

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
    let mut tracing = Tracing::default();
    run_with_traces(cases, repetitions, purpose, &mut tracing, progress)
}

/// As [`run`], and records `tracing` of each run.
pub fn run_with_traces(
    cases: &[Case],
    repetitions: Range<u32>,
    purpose: Purpose,
    tracing: &mut Tracing<'_>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Measurement>, LabError> {
    for case in cases {
        supported::check(&case.path)?;
    }
    let runs: Vec<(&Case, Vec<usize>)> = alternating(cases);
    let mut built: Option<Network<'_>> = None;
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
                    built.insert(Network::build(&case.path, cases)?)
                }
            };
            progress(Progress::Begin {
                case,
                flow: single(group).map(|index| &case.path.flows[index]),
                repetition,
            });
            let (mut measurement, mut trace) =
                lab.measure(case, group, repetition, purpose, tracing)?;
            for _ in 1..purpose.attempts() {
                if measurement.validity.counts() {
                    break;
                }
                progress(Progress::Again(&measurement.validity));
                (measurement, trace) = lab.measure(case, group, repetition, purpose, tracing)?;
            }
            if let Some(trace) = &trace {
                progress(Progress::Traced(trace));
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

impl Network<'_> {
    /// One run of the flows `group` under `case`.
    fn measure(
        &self,
        case: &Case,
        group: &[usize],
        repetition: u32,
        purpose: Purpose,
        tracing: &mut Tracing<'_>,
    ) -> Result<(Measurement, Option<RunTrace>), LabError> {
        let path = self.path;
        self.set_proxy_routes(case)?;
        let proxies = self.start_proxies(case)?;
        // Every case of a repetition has the same losses; the next repetition has others.
        let seed = path.seed.wrapping_add(u64::from(repetition));
        self.wait_for_overlay(case, seed)?;
        self.discard(case, group, seed)?;
        let load_before = other_load();
        let awake = Awake::begin();
        let run = RunName {
            case: case.name,
            group: groups(path)
                .iter()
                .position(|one| one == group)
                .unwrap_or_default(),
            repetition,
            seed,
        };
        let what = (path, case, group);
        let recording = RunRecording::begin(tracing, run, &self.topology, what)?;
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
        let trace = recording.finish(&self.topology, path)?;
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
            carried::missed(path, case.kind, group, &counted)
        };
        let names = path.links.iter().map(|link| link.name.as_str());
        let disturbance = Disturbance {
            round_trip: validity::round_trip(path, group),
            links: names.zip(&links).collect(),
            load_before,
            stolen,
            not_carried,
        };
        let validity = validity::judge(purpose, &disturbance);
        let measurement = Measurement {
            case: case.kind,
            repetition,
            seed,
            flows,
            links,
            retransmissions,
            timeouts,
            validity,
        };
        Ok((measurement, (!tracing.is_empty()).then_some(trace)))
    }

    fn tcp_counters(&self) -> Result<Vec<TcpCounters>, LabError> {
        self.topology.nodes().map(TcpCounters::read).collect()
    }

    /// Runs the transfer that is not measured, over links with the same seed. The nodes of an overlay that
    /// choose routes measure a transfer of the first flow in any case.
    fn discard(&self, case: &Case, group: &[usize], seed: u64) -> Result<(), LabError> {
        let path = self.path;
        let Some(&index) = group.first() else {
            return Ok(());
        };
        let of_flow = || path.flows[index].workload.clone();
        let learned = (case.kind == CaseKind::Overlay).then(of_flow);
        let Some(workload) = case.discarded.clone().or(learned) else {
            return Ok(());
        };
        let flow = Flow {
            workload,
            start: TimeSpan::ZERO,
            ..path.flows[index].clone()
        };
        self.topology.reset_links(path, seed)?;
        self.run_flow(case, index, &flow)?;
        thread::sleep(REST);
        if case.kind == CaseKind::Overlay {
            self.compare_routes(case, index)?;
        }
        Ok(())
    }

    /// Small downloads, because routes are compared when sessions begin, and a change needs two comparisons.
    fn compare_routes(&self, case: &Case, index: usize) -> Result<(), LabError> {
        let flow = Flow {
            workload: Workload::Download { size: SMALL },
            start: TimeSpan::ZERO,
            ..self.path.flows[index].clone()
        };
        for _ in 0..COMPARISONS {
            self.run_flow(case, index, &flow)?;
            thread::sleep(REST);
        }
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
            Workload::Command { ref command, .. } => {
                let surroundings = Surroundings::of(self, case, flow.from, Some(flow));
                let variables = surroundings.variables(&self.path.node(flow.from).name);
                let ended = command::run(client, command, &variables, limit)?;
                FlowResult::Command {
                    completion: ended.duration,
                    status: ended.status,
                    output: ended.output,
                }
            }
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
        let mut cases = Case::of_kinds(&kinds, &path, Duration::from_secs(1)).unwrap();
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
