//! Data packets per CPU second on one core: Midspan's simulator beside ns-2 and ns-3, the same
//! three hops, in alternating runs; medians with their intervals.
//!
//! `cargo run --release -p simulator-speed`
//!
//! `--alone` measures Midspan only, `--flows N` only the case of so many flows. ns-2 and ns-3 are measured where they are installed (`apt-get install ns2 libns3-dev g++`).
//!
//! `--seconds N` does no more than run Midspan once over so many virtual seconds of each case, and
//! says how many data packets were sent: for a profiler that counts what a packet takes.

mod midspan;
mod others;

use midspan_records::statistics::median;
use midspan_sim::Packet;
use midspan_sim::tcp::{Receiver, Sender};
use midspan_units::Time;
use others::Program;

type Error = Box<dyn std::error::Error>;

/// How often each runs.
const REPETITIONS: usize = 5;

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    packets: u64,
    cpu: f64,
}

impl Run {
    /// In millions per second.
    #[allow(clippy::cast_precision_loss)]
    fn rate(self) -> f64 {
        self.packets as f64 / self.cpu / 1e6
    }
}

/// So many flows, the virtual seconds of each program, and what is asked for against it.
struct Case {
    flows: u64,
    midspan: u64,
    ns2: Option<(u64, f64)>,
    ns3: Option<(u64, f64)>,
}

const CASES: [Case; 3] = [
    Case {
        flows: 1,
        midspan: 4000,
        ns2: Some((2000, 5.0)),
        ns3: Some((200, 50.0)),
    },
    Case {
        flows: 100,
        midspan: 2000,
        ns2: Some((500, 10.0)),
        ns3: None,
    },
    // ns-2's start takes longer than its run.
    Case {
        flows: 1000,
        midspan: 2000,
        ns2: None,
        ns3: None,
    },
];

fn main() -> Result<(), Error> {
    println!(
        "a flow's sender and receiver take {} bytes, each packet on its way {}",
        size_of::<Sender>() + size_of::<Receiver>(),
        size_of::<(Time, Packet)>()
    );
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let alone = arguments.iter().any(|argument| argument == "--alone");
    let number = |option: &str| {
        let given = arguments.iter().skip_while(|argument| *argument != option);
        given
            .skip(1)
            .map(|number| number.parse::<u64>())
            .next()
            .transpose()
    };
    let (flows, seconds) = (number("--flows")?, number("--seconds")?);
    let (ns2, ns3) = if alone || seconds.is_some() {
        (None, None)
    } else {
        (Program::ns2(), Program::ns3()?)
    };
    for case in CASES {
        if flows.is_some_and(|flows| flows != case.flows) {
            continue;
        }
        if let Some(seconds) = seconds {
            let packets = midspan::run_untimed(case.flows, seconds)?;
            println!("{} flows, {seconds} s: {packets} data packets", case.flows);
            continue;
        }
        measure(&case, ns2.as_ref(), ns3.as_ref())?;
    }
    Ok(())
}

fn measure(case: &Case, ns2: Option<&Program>, ns3: Option<&Program>) -> Result<(), Error> {
    let flows = case.flows;
    let others: Vec<(&Program, u64, f64)> = [(ns2, case.ns2), (ns3, case.ns3)]
        .into_iter()
        .filter_map(|(program, plan)| {
            let (seconds, wanted) = plan?;
            Some((program?, seconds, wanted))
        })
        .collect();
    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); others.len()];
    // In turns, so that what disturbs the machine disturbs all.
    for _ in 0..REPETITIONS {
        ours.push(midspan::run(flows, case.midspan)?.rate());
        for ((program, seconds, _), rates) in others.iter().zip(&mut theirs) {
            rates.push(program.run(flows, *seconds)?.rate());
        }
    }
    let midspan = print(flows, "Midspan", &ours)?;
    for ((program, _, wanted), rates) in others.iter().zip(&theirs) {
        let rate = print(flows, program.name(), rates)?;
        let ratio = midspan / rate;
        println!(
            "{flows:>5} flows: {ratio:.1} times {} (asked: {wanted})",
            program.name()
        );
    }
    Ok(())
}

fn print(flows: u64, name: &str, rates: &[f64]) -> Result<f64, Error> {
    let median = median(rates).ok_or("no run")?;
    println!(
        "{flows:>5} flows, {name}: {:.3} million data packets per CPU second ({:.3} to {:.3})",
        median.value, median.low, median.high
    );
    Ok(median.value)
}
