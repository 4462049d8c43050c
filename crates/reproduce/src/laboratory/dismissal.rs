//! The search for the best of several cases: a case whose first run was much slower than the best one has no more runs.

use midspan_lab::Case;
use midspan_records::Store;

use super::point::Point;
use super::run::Run;

/// The first repetition, which every case has.
const FIRST: u32 = 0;

/// Whether this repetition of the case is left out, because the first one failed, or took longer than the point allows
/// ([`Point::dismissed_beyond`]). The first one itself never is: a second call repeats it if it failed.
pub(super) fn is_dismissed(
    point: &Point,
    case: &Case,
    repetition: u32,
    store: &Store<Run>,
) -> bool {
    let Some(multiple) = point.dismissed_beyond.filter(|_| repetition != FIRST) else {
        return false;
    };
    let Some(own) = first_run(case, store) else {
        return false;
    };
    if own.has_failed() {
        return true;
    }
    let shortest = (point.cases.iter())
        .filter_map(|case| first_run(case, store)?.valid_completion())
        .min_by(f64::total_cmp);
    let is_beyond = |own: f64| shortest.is_some_and(|shortest| own > multiple * shortest);
    own.valid_completion().is_some_and(is_beyond)
}

fn first_run<'a>(case: &Case, store: &'a Store<Run>) -> Option<&'a Run> {
    store.get(&case.run_key(FIRST)?)
}

#[cfg(test)]
mod tests {
    use super::super::{RUNS, Transfer, real_paths};
    use super::*;
    use crate::laboratory::LabEffort;

    fn run(point: &Point, case: &Case, completion: Option<f64>) -> Run {
        let transfers = completion.map(|time| Transfer {
            completion: Some(time),
            goodput: 0.0,
            p95: None,
        });
        Run {
            transfers: transfers.into_iter().collect(),
            void: completion.is_none().then(|| "curl: timed out".to_owned()),
            ..Run::new(&point.name, case.name, FIRST)
        }
    }

    #[test]
    fn slow_and_failed_cases_are_dismissed_after_their_first_run() {
        let mut point = real_paths::grid(&LabEffort::default()).unwrap().remove(0);
        let mut store = Store::in_memory(RUNS);
        let times = [Some(2.0), Some(2.9), Some(3.1), None];
        for (case, time) in point.cases.iter().zip(times) {
            assert!(!is_dismissed(&point, case, 1, &store));
            let key = case.run_key(FIRST).unwrap();
            store.put(&key, run(&point, case, time)).unwrap();
        }
        let dismissed = |point: &Point, store: &Store<Run>| -> Vec<bool> {
            let cases = point.cases.iter().take(times.len() + 1);
            cases
                .map(|case| is_dismissed(point, case, 1, store))
                .collect()
        };
        assert_eq!(dismissed(&point, &store), [false, false, true, true, false]);
        let mut first = point.cases.iter();
        assert!(first.all(|case| !is_dismissed(&point, case, FIRST, &store)));
        // A run that the machine made void dismisses no case.
        let case = &point.cases[2];
        let late = Run {
            void: Some("frames left late".to_owned()),
            ..run(&point, case, Some(3.1))
        };
        store.put(&case.run_key(FIRST).unwrap(), late).unwrap();
        assert!(!dismissed(&point, &store)[2]);
        point.dismissed_beyond = None;
        assert!(dismissed(&point, &store).iter().all(|one| !one));
    }
}
