//! Measures data packets per CPU second on one core: Midspan's simulator with 1, 100 and 1,000 flows,
//! compared with ns-2 (1 and 100 flows) and ns-3 (1 flow) over the same three links, in alternating
//! runs. Prints medians with their intervals.
//!
//! `cargo run --release -p simulator-speed`
//!
//! ns-2 and ns-3 are measured if they are installed (`apt-get install ns2 libns3-dev g++`).

mod midspan;
mod others;

use clap::Parser;
use midspan_records::{Bound, By, Record, Records, Spread};
use midspan_sim::Packet;
use midspan_sim::tcp::{Receiver, Sender};
use midspan_units::Time;
use others::Program;

type Error = Box<dyn std::error::Error>;

/// Data packets per CPU second: Midspan's simulator compared with ns-2 and ns-3
///
/// Example: `cargo run --release -p simulator-speed -- --flows 100 --repetitions 9`
#[derive(Debug, Parser)]
struct Arguments {
    /// Leave ns-2 and ns-3 out
    #[arg(long)]
    alone: bool,
    /// Only the case with this number of flows: 1, 100 or 1000
    #[arg(long, value_parser = case_of)]
    flows: Option<u64>,
    /// Repetitions, each with a ratio of its own
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: u16,
    /// Runs of each simulator in a repetition, alternating: their packets and times are added, so that short
    /// disturbances of the machine matter less
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Only run Midspan once over this number of virtual seconds of each case, and print the number
    /// of data packets: for a profiler that counts the instructions of a packet
    #[arg(long, conflicts_with = "json")]
    seconds: Option<u64>,
    /// Print JSON records instead of lines
    #[arg(long)]
    json: bool,
}

fn case_of(text: &str) -> Result<u64, String> {
    let flows = text.parse().ok();
    let case = CASES.iter().find(|case| Some(case.flows) == flows);
    case.map(|case| case.flows)
        .ok_or_else(|| "there are cases of 1, 100 and 1000 flows".to_owned())
}

/// Packets and CPU time of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    packets: u64,
    cpu: f64,
}

impl Run {
    const NONE: Self = Self {
        packets: 0,
        cpu: 0.0,
    };

    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.cpu += other.cpu;
    }

    /// Millions of packets per second.
    fn rate(self) -> f64 {
        self.packets as f64 / self.cpu / 1e6
    }
}

/// A number of flows, the virtual seconds of each simulator, and the required ratio to the other
/// simulators.
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
    // With this number of flows, ns-2's start takes longer than its run.
    Case {
        flows: 1000,
        midspan: 2000,
        ns2: None,
        ns3: None,
    },
];

fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    let cases = CASES
        .iter()
        .filter(|case| arguments.flows.is_none_or(|flows| flows == case.flows));
    if let Some(seconds) = arguments.seconds {
        for case in cases {
            let packets = midspan::run_untimed(case.flows, seconds)?;
            println!("{} flows, {seconds} s: {packets} data packets", case.flows);
        }
        return Ok(());
    }
    let (ns2, ns3) = if arguments.alone {
        (None, None)
    } else {
        (Program::ns2(), Program::ns3()?)
    };
    let mut records = memory();
    for case in cases {
        measure(
            case,
            (arguments.repetitions, arguments.runs),
            ns2.as_ref(),
            ns3.as_ref(),
            &mut records,
        )?;
    }
    if arguments.json {
        println!("{}", records.to_json());
    } else {
        print(&records);
    }
    Ok(())
}

/// The memory of a flow and of a packet.
fn memory() -> Records {
    let mut records = Records::default();
    let sizes = [
        ("a flow", size_of::<Sender>() + size_of::<Receiver>()),
        ("a packet in flight", size_of::<(Time, Packet)>()),
    ];
    for (case, bytes) in sizes {
        let bytes = bytes as f64;
        let by = By::Measurement;
        records.push(Record::new(ITEM, case, "memory", "bytes", by, bytes));
    }
    records
}

fn measure(
    case: &Case,
    (repetitions, runs): (u16, u16),
    ns2: Option<&Program>,
    ns3: Option<&Program>,
    records: &mut Records,
) -> Result<(), Error> {
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
    // The simulators alternate, so that disturbances of the machine affect all of them.
    for _ in 0..repetitions {
        let mut own = Run::NONE;
        let mut of_others = vec![Run::NONE; others.len()];
        for _ in 0..runs {
            own.add(midspan::run(flows, case.midspan)?);
            for ((program, seconds, _), sum) in others.iter().zip(&mut of_others) {
                sum.add(program.run(flows, *seconds)?);
            }
        }
        ours.push(own.rate());
        for (run, rates) in of_others.iter().zip(&mut theirs) {
            rates.push(run.rate());
        }
    }
    records.push(rate(flows, "Midspan", &ours)?);
    for ((program, _, wanted), rates) in others.iter().zip(&theirs) {
        records.push(rate(flows, program.name(), rates)?);
        // The ratio is computed for each turn, because the host's speed changes with time.
        let turns = ours.iter().zip(rates);
        let ratios: Vec<f64> = turns.map(|(ours, theirs)| ours / theirs).collect();
        let spread = Spread::of(&ratios).ok_or("no run")?;
        let case = format!("{flows} flows, Midspan over {}", program.name());
        records.push(
            Record::new(ITEM, &case, RATIO, "", By::Measurement, spread.median)
                .with_interval(&spread)
                .with_ok(Bound::AtLeast(*wanted).is_met(spread.median, None))
                .with_note(format!("required: {wanted}")),
        );
    }
    Ok(())
}

const ITEM: &str = "simulator speed";
const RATIO: &str = "ratio of the rates";

fn rate(flows: u64, name: &str, rates: &[f64]) -> Result<Record, Error> {
    let spread = Spread::of(rates).ok_or("no run")?;
    let case = format!("{flows} flows, {name}");
    let (quantity, unit) = ("data packets per CPU second", "packets/s");
    let record = Record::new(
        ITEM,
        &case,
        quantity,
        unit,
        By::Measurement,
        1e6 * spread.median,
    );
    Ok(record.with_spread(1e6 * spread.low, 1e6 * spread.high))
}

fn print(records: &Records) {
    for record in &records.records {
        let (scale, digits, unit) = match record.unit.as_str() {
            "packets/s" => (1e-6, 3, " million/s"),
            "bytes" => (1.0, 0, " bytes"),
            _ => (1.0, 1, " times"),
        };
        let number = |value: f64| format!("{:.digits$}", scale * value);
        let spread = match (record.low, record.high) {
            (Some(low), Some(high)) => format!(" ({} to {})", number(low), number(high)),
            _ => String::new(),
        };
        let note = record.note.as_deref().map(|note| format!(", {note}"));
        println!(
            "{}: {}{unit}{spread}{}",
            record.case,
            number(record.value),
            note.unwrap_or_default()
        );
    }
}
