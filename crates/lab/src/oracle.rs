//! The best overlay route of each run.

use std::collections::BTreeMap;

use midspan_path::Path;

use crate::measurement::FlowMeasurement;
use crate::{CaseKind, Measurement};

/// The runs of the oracle: for each repetition and each group of flows that ran together, the results of each
/// flow on the overlay route on which it took the least time, or got the most in the same time. Void runs count
/// only where every run of a group is void; the result is then void, too. Links and counters are those of the run in which the group's first flow was best.
#[must_use]
pub fn oracle(path: &Path, measurements: &[Measurement]) -> Vec<Measurement> {
    let mut groups: BTreeMap<(u32, Vec<usize>), Vec<&Measurement>> = BTreeMap::new();
    for run in measurements {
        if matches!(run.case, CaseKind::OverlayStatic(_)) {
            let flows = run.flows.iter().map(|one| one.flow).collect();
            groups.entry((run.repetition, flows)).or_default().push(run);
        }
    }
    groups
        .into_values()
        .filter_map(|runs| best(path, &runs))
        .collect()
}

fn best(path: &Path, all: &[&Measurement]) -> Option<Measurement> {
    let first = all.first()?;
    let counting = all.iter().copied().filter(|run| run.validity.counts());
    let counting: Vec<&Measurement> = counting.collect();
    let runs = match counting.is_empty() {
        true => all,
        false => &counting[..],
    };
    let best_for = |place: usize| {
        let time = |run: &&&Measurement| {
            let measured = run.flows.get(place);
            let time = measured
                .and_then(|measured| measured.time_per_work(path.flows.get(measured.flow)?));
            time.unwrap_or(f64::INFINITY)
        };
        runs.iter()
            .min_by(|one, other| time(one).total_cmp(&time(other)))
    };
    let flows: Vec<FlowMeasurement> = (0..first.flows.len())
        .filter_map(|place| best_for(place)?.flows.get(place).cloned())
        .collect();
    Some(Measurement {
        case: CaseKind::Oracle,
        flows,
        ..(*best_for(0)?).clone()
    })
}

#[cfg(test)]
mod tests {
    use midspan_units::TimeSpan;

    use super::*;
    use crate::FlowResult;
    use crate::validity::{Disturbance, Purpose, judge};

    fn run(case: &str, repetition: u32, milliseconds: [u64; 2]) -> Measurement {
        let calm = Disturbance {
            round_trip: TimeSpan::from_milliseconds(100),
            links: Vec::new(),
            load_before: 0.0,
            stolen: 0.0,
            not_carried: Vec::new(),
        };
        let flow = |(flow, milliseconds)| FlowMeasurement {
            flow,
            result: FlowResult::Page {
                completion: TimeSpan::from_milliseconds(milliseconds),
            },
        };
        Measurement {
            case: case.parse().unwrap(),
            repetition,
            seed: 1,
            flows: (0..).zip(milliseconds).map(flow).collect(),
            links: Vec::new(),
            retransmissions: milliseconds[0],
            timeouts: 0,
            validity: judge(Purpose::Measurement, &calm),
        }
    }

    #[test]
    fn each_flow_of_each_repetition_has_its_best_route() {
        let path = Path::load("triangle").unwrap();
        let runs = [
            run("direct", 0, [1, 1]),
            run("overlay-static=here", 0, [50, 70]),
            run("overlay-static=sin", 0, [60, 40]),
            run("overlay-static=here", 1, [30, 30]),
            run("overlay", 1, [2, 2]),
        ];
        let found = oracle(&path, &runs);
        let times: Vec<(u32, u64, Vec<u64>)> = found
            .iter()
            .map(|run| {
                assert_eq!(run.case, CaseKind::Oracle);
                let times = run.flows.iter().map(|flow| {
                    let completion = flow.completion().unwrap();
                    completion.nanoseconds() / 1_000_000
                });
                (run.repetition, run.retransmissions, times.collect())
            })
            .collect();
        assert_eq!(times, [(0, 50, vec![50, 40]), (1, 30, vec![30, 30])]);
        assert!(oracle(&path, &runs[..1]).is_empty());
    }

    /// As with other cases, the result of a busy machine is shown and marked.
    #[test]
    fn void_runs_count_only_where_all_are_void() {
        let path = Path::load("triangle").unwrap();
        let busy = Disturbance {
            round_trip: TimeSpan::from_milliseconds(100),
            links: Vec::new(),
            load_before: 0.9,
            stolen: 0.0,
            not_carried: Vec::new(),
        };
        let void = |case, milliseconds| Measurement {
            validity: judge(Purpose::Measurement, &busy),
            ..run(case, 0, milliseconds)
        };
        let runs = [
            void("overlay-static=here", [50, 50]),
            void("overlay-static=sin", [30, 30]),
        ];
        let found = oracle(&path, &runs);
        assert!(!found[0].validity.counts());
        assert_eq!(found[0].retransmissions, 30);
        let runs = [runs[1].clone(), run("overlay-static=here", 0, [70, 70])];
        let found = oracle(&path, &runs);
        assert!(found[0].validity.counts());
        assert_eq!(found[0].retransmissions, 70);
    }
}
