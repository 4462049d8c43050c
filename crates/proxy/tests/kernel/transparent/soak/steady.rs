//! Sessions at a steady rate: the relay's own memory and its descriptors neither grow nor shrink.
//!
//! `make steady` runs an hour, with time-outs of a sixth, so that it counts for six hours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{FORWARD, callers, lossy_network};
use crate::soaking::resources::Use;
use crate::soaking::traffic::{Outcomes, hold, serve, short};
use crate::transparent::support::*;

/// How many minutes the test takes; without it, a few seconds, of which no growth is judged.
const MINUTES: &str = "MIDSPAN_STEADY";
/// Short sessions a second.
const RATE: u32 = 200;
/// Threads that open them. A session takes some round trips, and half a second if a packet is lost.
const THREADS: usize = 64;
const LONG: usize = 200;
const QUICK: Duration = Duration::from_secs(8);
const MINUTE: Duration = Duration::from_secs(60);
/// Of each 60 minutes, the first 10 are not judged.
const WARM_UP: f64 = 1.0 / 6.0;
/// The permitted slope in an hour, as a share of the mean.
const MOST: f64 = 0.01;
/// Of Student's t with at least 40 degrees of freedom, both sides, 95 %.
const QUANTILE: f64 = 2.02;

#[kernel_test]
fn memory_and_descriptors_stay_the_same() {
    let minutes: Option<u32> = std::env::var(MINUTES)
        .ok()
        .map(|text| text.parse().unwrap());
    let time = minutes.map_or(QUICK, |minutes| MINUTE * minutes);
    let network = lossy_network();
    let stop = Arc::new(AtomicBool::new(false));
    let server = serve(network.listen(PORT), &stop);
    let midspan = Midspan::ready(&network.gateway, &configuration());
    let outcomes = Arc::new(Outcomes::default());
    let long = hold(callers(&network), LONG, &outcomes, &stop);
    let callers = call_steadily(&network, &outcomes, &stop);
    let relay = midspan.relay().as_raw_nonzero().get();
    let start = Instant::now();
    let (mut memory, mut descriptors) = (Vec::new(), Vec::new());
    while start.elapsed() < time {
        let (mut sums, mut samples) = ((0.0, 0.0), 0.0);
        let until = start.elapsed().min(time - MINUTE.min(time)) + MINUTE.min(time);
        while start.elapsed() < until {
            thread::sleep(Duration::from_secs(1));
            let now = Use::of(relay, &network.gateway);
            sums = (
                sums.0 + now.memory_kb as f64,
                sums.1 + now.descriptors as f64,
            );
            samples += 1.0;
        }
        memory.push(sums.0 / samples);
        descriptors.push(sums.1 / samples);
        println!(
            "  {:.0?}: {:.0} kB, {:.1} descriptors; {}",
            start.elapsed(),
            sums.0 / samples,
            sums.1 / samples,
            outcomes.shown()
        );
    }
    stop.store(true, Ordering::Relaxed);
    callers.join().unwrap();
    long.join().unwrap();
    server.join().unwrap();
    midspan.stop();
    let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert_eq!((read(&outcomes.short), read(&outcomes.wrong)), (0, 0));
    assert!(read(&outcomes.complete) > 0);
    let mut beyond = Vec::new();
    for (what, means) in [("own memory", memory), ("descriptors", descriptors)] {
        // Without enough minutes, there is no slope.
        let first = (means.len() as f64 * WARM_UP).round() as usize;
        let Some((low, high)) = slope(&means[first..]) else {
            continue;
        };
        println!(
            "  {what}: {:+.2} % to {:+.2} % an hour (95 %), over {} minutes",
            low * 100.0,
            high * 100.0,
            means.len() - first
        );
        if low < -MOST || MOST < high {
            beyond.push((what, means));
        }
    }
    assert!(beyond.is_empty(), "{beyond:?}");
}

/// The interval of the slope in an hour, as a share of the mean, of means of a minute; `None` for fewer than 42.
fn slope(means: &[f64]) -> Option<(f64, f64)> {
    if means.len() < 42 {
        return None;
    }
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let places = (0..means.len()).map(|place| place as f64 - middle);
    let spread: f64 = places.clone().map(|place| place * place).sum();
    let slope: f64 = places
        .clone()
        .zip(means)
        .map(|(place, of)| place * (of - mean))
        .sum::<f64>()
        / spread;
    let residues = places
        .zip(means)
        .map(|(place, of)| (of - mean - slope * place).powi(2));
    let error = (residues.sum::<f64>() / (count - 2.0) / spread).sqrt();
    let share = |slope: f64| slope * 60.0 / mean;
    Some((
        share(slope - QUANTILE * error),
        share(slope + QUANTILE * error),
    ))
}

/// Opens short sessions at a steady rate until it is stopped.
fn call_steadily(
    network: &Network,
    outcomes: &Arc<Outcomes>,
    stop: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let (outcomes, stop) = (Arc::clone(outcomes), Arc::clone(stop));
    let targets = callers(network).targets;
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let call = move || {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let due = Duration::from_secs(1) * number as u32 / RATE;
                        thread::sleep(due.saturating_sub(start.elapsed()));
                        if let Err(error) = short(targets, number, &outcomes) {
                            outcomes.fail(&error);
                        }
                    }
                });
            }
        });
    };
    network.client.run(move || thread::spawn(call)).unwrap()
}

/// Both handshakes, with a sixth of the time-outs that are usual.
fn configuration() -> String {
    format!(
        "[log]\nlevel = \"warn\"\n[limits]\nidle_timeout = \"20 h\"\nhalf_closed_timeout = \"10 min\"\n\
         [relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\nreset_timeout = \"5 s\"\n\
         {TRANSPARENT_LISTENER}connect_timeout = \"5 s\"\n\
         [[listener]]\nname = \"forward\"\nlisten = \"{FORWARD}\"\nto = \"{SERVER}:{PORT}\"\n\
         connect_timeout = \"5 s\"\n"
    )
}

/// A line that grows by 1 % an hour, with noise, has this slope within its interval; a line without noise exactly.
#[kernel_test]
fn a_slope_has_an_interval() {
    let noise = |place: usize| ((place * 7919) % 101) as f64 / 101.0 - 0.5;
    let line = |place: usize| 1000.0 + 10.0 * place as f64 / 60.0;
    let exact: Vec<f64> = (0..50).map(line).collect();
    let (low, high) = slope(&exact).unwrap();
    assert!(
        (low - high).abs() < 1e-9 && (low - 0.01).abs() < 1e-4,
        "{low} {high}"
    );
    let noisy: Vec<f64> = (0..50).map(|place| line(place) + noise(place)).collect();
    let (low, high) = slope(&noisy).unwrap();
    assert!(
        low < 0.01 && 0.009 < high && high - low > 1e-4,
        "{low} {high}"
    );
    assert!(slope(&exact[..10]).is_none());
}
