//! What §5 says, with runs of 200 s, and the records.

use midspan_sim::Results;

use super::bursts::Summary;
use super::*;

const LONG: TimeSpan = TimeSpan::from_seconds(200);

fn run(scheme: Scheme, loss: &str, queue: u32) -> (Results, Bursts) {
    let setting = Setting {
        scheme,
        loss: loss.parse().unwrap(),
        queue,
        duration: LONG,
    };
    setting.run(1).unwrap()
}

fn summary(bursts: &mut Bursts) -> Summary {
    bursts.summary().unwrap()
}

fn throughput(results: &Results) -> u64 {
    results.flows[0].delivered
}

/// Packets that found the queue of n2 full.
fn overflows(results: &Results) -> u64 {
    results.links[NARROW.0].up.queue_full.packets
}

#[test]
fn an_unpaced_proxy_sends_bursts_up_to_the_wireless_window() {
    // §5.1: 64 KB are 43 segments; fewer losses make larger bursts.
    let (_, mut rare) = run(Scheme::B, "0.001", AMPLE);
    let (_, mut often) = run(Scheme::B, "0.01", AMPLE);
    let (longest, forward_data) = (summary(&mut rare).longest, rare.largest_forward_data);
    assert_eq!((longest, forward_data), (43, 43));
    let (rare, often) = (summary(&mut rare), summary(&mut often));
    assert!(often.most < rare.most, "{often:?} {rare:?}");
}

#[test]
fn pacing_ends_bursts_and_overflows() {
    for loss in ["0.0001", "0.001", "0.01", "0.05"] {
        let (small, mut bursts) = run(Scheme::A, loss, 20);
        let (large, _) = run(Scheme::A, loss, 50);
        assert!(bursts.largest_forward_data > 30, "{bursts:?}");
        let summary = summary(&mut bursts);
        assert!(summary.most <= 2, "{loss}: {summary:?}");
        // All in the first slow start.
        assert!(overflows(&small) <= 3, "{loss}: {}", overflows(&small));
        assert_eq!(bursts.late_drops, 0, "{loss}");
        // A does not depend on the queue of n2.
        let (small, large) = (throughput(&small), throughput(&large));
        assert!(
            small.abs_diff(large) * 200 <= large,
            "{loss}: {small} {large}"
        );
    }
}

#[test]
fn the_paced_proxy_is_best_and_the_unpaced_one_may_be_worse_than_none() {
    for loss in ["0.0001", "0.001", "0.01", "0.05"] {
        let [a, b, c] = SCHEMES.map(|scheme| run(scheme, loss, 20).0);
        // Within 0.5 %.
        let best = throughput(&a) * 201 / 200;
        assert!(best >= throughput(&b) && best >= throughput(&c), "{loss}");
        if loss == "0.0001" {
            assert!(throughput(&b) < throughput(&c));
            assert!(overflows(&b) > 50 && overflows(&c) == 0);
        }
    }
}

#[test]
fn every_figure_is_there_and_its_bounds_hold() {
    let records = records(true, &mut |_| {}).unwrap();
    let count = |item: &str, quantity: &str| {
        let of = |record: &&Record| record.item == item && record.quantity == quantity;
        records.iter().filter(of).count()
    };
    for item in ["figure 7", "figure 8"] {
        assert_eq!(count(item, "largest forward data"), 2);
        assert_eq!(count(item, "largest burst"), 2);
        assert_eq!(count(item, "p99.9 burst"), 2);
    }
    for (throughput, loss) in [("figure 10", "figure 11"), ("figure 12", "figure 13")] {
        assert_eq!(count(throughput, "throughput"), 21);
        assert_eq!(count(throughput, "throughput of A against B"), 7);
        assert_eq!(count(loss, "wired drops"), 21);
        assert_eq!(count(loss, "wired loss"), 21);
    }
    // Not of C, where nothing is handed on.
    assert_eq!(count("section 5.1", "p99.9 burst"), 28);
    let verdicts = |ok| records.iter().filter(|record| record.ok == ok).count();
    assert_eq!(verdicts(Some(false)), 0);
    assert!(verdicts(Some(true)) > 80);
}

#[test]
fn a_full_run_keeps_the_bound_on_wired_loss() {
    let effort = Effort {
        runs: 1,
        ..Effort::PAPER
    };
    let measured = measure(Scheme::A, "0.001", 20, effort).unwrap();
    let [drops, after, loss] = measured.drops("figure 11", "", Scheme::A, 20);
    assert_eq!((drops.value, drops.paper), (2.0, Some(0.0)));
    assert_eq!((after.value, after.ok), (0.0, Some(true)));
    assert_eq!(loss.ok, Some(true), "{loss:?}");
}
