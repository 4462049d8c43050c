//! Finished runs of `midspan lab PATH` in a file.

use midspan_records::RunKind;

use crate::Measurement;

/// The runs of `midspan lab PATH` in a [`Store`](midspan_records::Store). Increase the version if the
/// lab or the meaning of a [`Measurement`] changes.
pub const RUNS: RunKind = RunKind {
    name: "lab path",
    version: 1,
    before: None,
};

/// A stored run: each flow of a case once, or all flows together.
pub type StoredRun = Vec<Measurement>;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use midspan_link::Histogram;
    use midspan_records::Store;
    use midspan_units::TimeSpan;

    use super::*;
    use crate::emulator::{LinkReport, Second};
    use crate::validity::{Disturbance, judge};
    use crate::{Case, CaseKind, FlowMeasurement, FlowResult, Purpose};

    fn measurement(case: CaseKind) -> Measurement {
        let mut bursts = Histogram::default();
        bursts.add(3);
        bursts.add(17);
        let mut link = LinkReport::default();
        link.up.pure_acks = 12;
        link.up.seconds.push(Second {
            bursts,
            queue_full: 2,
        });
        link.down.delivered = vec![0, 1_448];
        link.kernel_drops = 7;
        let disturbance = Disturbance {
            round_trip: TimeSpan::from_milliseconds(600),
            links: vec![("satellite", &link)],
            load_before: 0.9,
            stolen: 0.01,
            not_carried: vec!["the proxy \"a\" carried 1 connections of 2".to_owned()],
        };
        let validity = judge(Purpose::Measurement, &disturbance);
        Measurement {
            case,
            repetition: 3,
            seed: u64::MAX,
            flows: vec![
                FlowMeasurement {
                    flow: 1,
                    result: FlowResult::File {
                        first_byte: TimeSpan::from_nanoseconds(1_200_000_001),
                        completion: TimeSpan::from_nanoseconds(4_853_000_009),
                    },
                },
                FlowMeasurement {
                    flow: 2,
                    result: FlowResult::Bulk {
                        goodput: 0.1 + 0.2,
                        round_trip: None,
                    },
                },
            ],
            links: vec![link],
            retransmissions: 5,
            timeouts: 1,
            validity,
        }
    }

    #[test]
    fn a_run_is_the_same_after_it_was_stored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.jsonl");
        let path = midspan_path::Path::load("geo").unwrap();
        for kind in CaseKind::ALL {
            let case = Case::new("case", path.clone(), kind, 0.0);
            let key = case.run_key(3).unwrap();
            let run = vec![measurement(kind)];
            let mut store: Store<StoredRun> = Store::open(&file, RUNS).unwrap();
            store.put(&key, run.clone()).unwrap();
            let again: Store<StoredRun> = Store::open(&file, RUNS).unwrap();
            assert_eq!(again.note(), None);
            let found = again.get(&key).unwrap();
            assert_eq!(format!("{found:?}"), format!("{run:?}"));
        }
    }
}
