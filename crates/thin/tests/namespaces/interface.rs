//! The interface goes down, or is deleted and made again.

use std::time::{Duration, Instant};

use midspan_testbed::kernel_test;
use midspan_thin::Status;
use rustix::process::Pid;

use crate::{LIMIT, Network, Thin, finish, launch};

/// CPU time of a process so far.
fn cpu_time(process: Pid) -> Duration {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    let (_, after_name) = text.rsplit_once(") ").unwrap();
    // Fields 14 and 15 of proc(5).
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// While the interface is down, the worker uses hardly any CPU time. When the interface is up again, the worker
/// sees packets again. The number of saved ACKs proves this: `ace` saves no ACK without a round trip, and
/// measures the round trip from the packets' headers.
#[kernel_test]
fn an_interface_that_goes_down() {
    let network = Network::new();
    let thin = Thin::start(&network, "ace");
    let worker = thin.worker();
    network.ip("link set dev up down");
    let (start, used) = (Instant::now(), cpu_time(worker));
    std::thread::sleep(Duration::from_secs(2));
    let used = cpu_time(worker) - used;
    assert!(used * 10 < start.elapsed(), "{used:?} of CPU time");
    network.ip("link set dev up up");
    let server = network.serve(1);
    finish(network.connect("10.1.0.1"));
    server.join().unwrap();
    thin.status_when("saved", |status| status.acks_saved > 10);
    assert_eq!(thin.worker(), worker);
    thin.end(&network);
}

/// The interface is deleted and made again, as by a modem. The test prints how long it takes until ACKs are
/// thinned again.
#[kernel_test]
fn an_interface_that_is_made_again() {
    let network = Network::new();
    let thin = Thin::of(launch(&network, &["ace"]));
    for round in 1..=5 {
        let worker = thin.worker();
        network.ip("link delete dev up");
        // With and without time for the helper to notice.
        if round % 2 == 0 {
            let start = Instant::now();
            while !network.tables().is_empty() {
                assert!(start.elapsed() < LIMIT, "the rules stay");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        network.make_link();
        let start = Instant::now();
        while network.tables() != ["midspan_thin_up"; 2] || thin.worker() == worker {
            assert!(start.elapsed() < LIMIT, "not thinned again");
            std::thread::sleep(Duration::from_millis(5));
        }
        println!("round {round}: thinned again after {:?}", start.elapsed());
        // The counters of the new worker, not the last report of the one before.
        *thin.status.lock().unwrap() = Status::default();
        network.narrow();
        let server = network.serve(1);
        finish(network.connect("10.1.0.1"));
        server.join().unwrap();
        thin.status_when("saved", |status| status.acks_saved > 10);
    }
    let log = thin.program.log();
    assert_eq!(log.matches("the interface up is gone").count(), 5, "{log}");
    thin.end(&network);
}

/// The queue in which ACKs go first belongs to the interface, so it is set again as well.
#[kernel_test]
fn acks_go_first_at_an_interface_that_is_made_again() {
    let network = Network::new();
    network.tc("qdisc del dev up root");
    let thin = Thin::of(launch(&network, &["fda:2", "first"]));
    network.ip("link delete dev up");
    network.make_link();
    let start = Instant::now();
    while !network.tc("qdisc show dev up root").contains("htb") {
        assert!(start.elapsed() < LIMIT, "the queue is not set again");
        std::thread::sleep(Duration::from_millis(20));
    }
    while network.tables().is_empty() {
        assert!(start.elapsed() < LIMIT, "not thinned again");
        std::thread::sleep(Duration::from_millis(20));
    }
    let server = network.serve(1);
    finish(network.connect("10.1.0.1"));
    server.join().unwrap();
    assert!(
        network
            .tc("-s class show dev up")
            .contains("class htb 5317:10")
    );
    thin.end(&network);
}
