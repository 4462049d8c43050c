//! Runs with each number of threads, in turn.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use midspan_policy::SamplingPace;
use midspan_relay::SharedKnowledge;
use midspan_units::{Time, TimeSpan};
use rustix::time::{ClockId, clock_gettime};

use crate::sessions::Sessions;
use crate::sockets::Sockets;
use crate::{Arguments, Failure};

/// The results of one run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The number of the round, from 0.
    pub round: usize,
    /// The number of threads.
    pub threads: usize,
    /// Samples of all threads in the virtual seconds that count.
    pub samples: u64,
    /// Real time of the slowest thread for them.
    pub elapsed: Duration,
    /// CPU time of all threads for them.
    pub cpu: Duration,
    /// The virtual time that counts, in seconds.
    pub seconds: u64,
    /// Real time of the whole run.
    pub took: Duration,
}

/// All runs.
pub fn measure(arguments: &Arguments) -> Result<Vec<Run>, Failure> {
    let sockets = Sockets::connect(arguments.connections)?;
    let mut runs = Vec::new();
    for round in 0..arguments.rounds {
        let mut order = arguments.threads.clone();
        order.rotate_left(round % arguments.threads.len().max(1));
        for threads in order {
            let run = run(round, threads.max(1), arguments, &sockets)?;
            eprintln!(
                "round {} of {}, {threads} threads: {} samples, {:.2} s of CPU time",
                round + 1,
                arguments.rounds,
                run.samples,
                run.cpu.as_secs_f64()
            );
            runs.push(run);
        }
    }
    Ok(runs)
}

fn run(
    round: usize,
    threads: usize,
    arguments: &Arguments,
    sockets: &Sockets,
) -> Result<Run, Failure> {
    let start = Instant::now();
    let knowledge = match arguments.parts {
        Some(parts) => SharedKnowledge::with_parts(parts),
        None => SharedKnowledge::default(),
    };
    let seconds = arguments.seconds.max(1);
    let together = Barrier::new(threads);
    let one = |thread: usize| -> Result<(u64, Duration, Duration), Failure> {
        let share = |number: usize| arguments.sessions * number / threads;
        let numbers = share(thread)..share(thread + 1);
        let pace = (!arguments.unbounded).then(|| SamplingPace::new(threads));
        let mut sessions = Sessions::new(numbers, pace, knowledge.clone(), sockets)?;
        // All threads reach this, also if the sessions of one fail.
        let warm = sessions.run_until(Time::ZERO + TimeSpan::from_seconds(seconds));
        together.wait();
        warm?;
        let (begun, cpu) = (Instant::now(), cpu_time());
        let samples = sessions.run_until(Time::ZERO + TimeSpan::from_seconds(2 * seconds))?;
        Ok((samples, begun.elapsed(), cpu_time().saturating_sub(cpu)))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread has panicked")?)
            .collect()
    });
    let results = results.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    Ok(Run {
        round,
        threads,
        samples: results.iter().map(|(samples, ..)| samples).sum(),
        elapsed: results
            .iter()
            .map(|(_, elapsed, _)| *elapsed)
            .max()
            .unwrap_or_default(),
        cpu: results.iter().map(|(.., cpu)| *cpu).sum(),
        seconds,
        took: start.elapsed(),
    })
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
