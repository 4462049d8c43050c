//! Runs of the three cases in turn, medians, table, verdict.

use std::time::{Duration, Instant};

use midspan_records::statistics::quantile;
use midspan_records::{By, Record, Records, Spread};

use crate::sites::{CASES, NODES, Sites};
use crate::{Failure, Plan};

/// Time between two connections, in which a node opens another warm connection.
const PAUSE: Duration = Duration::from_millis(4);
/// Each case follows each one equally often, itself included: processors that have just worked wake up sooner, and
/// a session over the overlay leaves work to the nodes.
const ORDER: [usize; CASES.len() * CASES.len()] = [0, 0, 1, 0, 2, 1, 1, 2, 2];
/// Connections of each case before the first round, which make the connections between nodes warm.
const FIRST_CONNECTIONS: u64 = 200;
/// Most time that a hop may add to the set-up of a session.
const SET_UP_LIMIT: Duration = Duration::from_micros(250);
/// A node takes at most this multiple of a forward listener's CPU time.
const CPU_LIMIT: f64 = 1.05;

/// A quantity: its name, its unit, its values, and its bound.
struct Quantity {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
    bound: Option<f64>,
}

/// The results of one round.
struct Round {
    /// The median time until the first byte, in seconds, by case.
    set_up: [f64; CASES.len()],
    /// Bytes per second by case.
    rate: [f64; CASES.len()],
    /// Seconds of CPU time for a gigabyte, by case and node.
    cpu: [Vec<f64>; CASES.len()],
}

/// Measures, prints, and returns whether all bounds are met.
pub fn run(plan: &Plan) -> Result<bool, Failure> {
    let cases = CASES.len() as u64;
    let connecting = plan.connections as f64 * cases as f64 * PAUSE.as_secs_f64() * 1.2;
    eprintln!(
        "{} rounds of {} connections and a transfer of {} s for each of {cases} cases: about {:.1} minutes",
        plan.rounds,
        plan.connections,
        plan.seconds,
        plan.rounds as f64 * (connecting + (plan.seconds * cases) as f64) / 60.0
    );
    let start = Instant::now();
    let sites = Sites::start(plan)?;
    set_up(&sites, FIRST_CONNECTIONS)?;
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        let round = one(&sites, plan, number)?;
        let microseconds = round.set_up.map(|seconds| (seconds * 1e6).round());
        eprintln!(
            "round {} of {}: first byte after {microseconds:?} us, {:.1?} Gbit/s",
            number + 1,
            plan.rounds,
            round.rate.map(|rate| rate * 8.0 / 1e9)
        );
        rounds.push(round);
    }
    let mut quantities = quantities(&rounds);
    if plan.tls {
        // The bounds are those of plain hops.
        quantities
            .iter_mut()
            .for_each(|quantity| quantity.bound = None);
    }
    let mut is_met = true;
    for quantity in &quantities {
        let median = quantile(&quantity.values, 0.5).ok_or("no value")?;
        is_met &= quantity.bound.is_none_or(|bound| median <= bound);
    }
    if plan.json {
        println!("{}", records(&quantities)?.to_json());
        return Ok(is_met);
    }
    print(&quantities)?;
    println!(
        "\n{} rounds; {:.0} s in all; all hosts have {}; median (95 % interval of the median), ratios within rounds{}",
        plan.rounds,
        start.elapsed().as_secs_f64(),
        plan.congestion_control,
        match (plan.tls, is_met) {
            (true, _) => "; with TLS, no bound applies",
            (false, true) => "; bounds met",
            (false, false) => "; bounds MISSED",
        }
    );
    Ok(is_met)
}

fn one(sites: &Sites, plan: &Plan, number: u64) -> Result<Round, Failure> {
    let set_up = set_up(sites, plan.connections)?;
    let mut rate = [0.0; CASES.len()];
    let mut cpu: [Vec<f64>; CASES.len()] = Default::default();
    for turn in 0..CASES.len() {
        // Each case is first equally often.
        let case = (turn + number as usize) % CASES.len();
        let (_, port) = CASES[case];
        let before = sites.cpu_seconds()?;
        let begin = Instant::now();
        let bytes = sites.download(port, Duration::from_secs(plan.seconds))?;
        rate[case] = bytes as f64 / begin.elapsed().as_secs_f64();
        let after = sites.cpu_seconds()?;
        let spent = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        cpu[case] = spent.map(|seconds| seconds * 1e9 / bytes as f64).collect();
    }
    Ok(Round { set_up, rate, cpu })
}

/// The median time until the first byte of each case.
fn set_up(sites: &Sites, connections: u64) -> Result<[f64; CASES.len()], Failure> {
    let mut times: [Vec<f64>; CASES.len()] = Default::default();
    // Whole sequences, so that each case has as many connections as the others.
    let all = (connections as usize * CASES.len()).next_multiple_of(ORDER.len());
    for place in 0..all {
        let case = *ORDER.get(place % ORDER.len()).ok_or("no case")?;
        std::thread::sleep(PAUSE);
        let (_, seconds) = sites.open(CASES[case].1)?;
        times[case].push(seconds);
    }
    let mut medians = [0.0; CASES.len()];
    for (median, times) in medians.iter_mut().zip(&times) {
        *median = quantile(times, 0.5).ok_or("no connection")?;
    }
    Ok(medians)
}

fn quantities(rounds: &[Round]) -> Vec<Quantity> {
    let of = |name: String, unit, bound, value: &dyn Fn(&Round) -> f64| Quantity {
        name,
        unit,
        values: rounds.iter().map(value).collect(),
        bound,
    };
    let mut quantities = Vec::new();
    for (case, (name, _)) in CASES.iter().enumerate() {
        let label = format!("{name}: time until the first byte");
        quantities.push(of(label, "s", None, &|round| round.set_up[case]));
    }
    let limit = Some(SET_UP_LIMIT.as_secs_f64());
    let added = |round: &Round| (round.set_up[2] - round.set_up[0]) / 2.0;
    quantities.push(of("each hop adds".to_owned(), "s", limit, &added));
    for (case, (name, _)) in CASES.iter().enumerate() {
        let label = format!("{name}: rate");
        quantities.push(of(label, "bit/s", None, &|round| round.rate[case] * 8.0));
    }
    let forward = |round: &Round| round.cpu[0][0];
    let label = "forward: CPU time for a gigabyte".to_owned();
    quantities.push(of(label, "s", None, &forward));
    for (node, name) in NODES.iter().enumerate() {
        let label = format!("two hops, {name}: CPU time for a gigabyte");
        quantities.push(of(label, "s", None, &|round| round.cpu[2][node]));
        let label = format!("two hops, {name}: CPU time / that of forward");
        let ratio = |round: &Round| round.cpu[2][node] / forward(round);
        quantities.push(of(label, "", Some(CPU_LIMIT), &ratio));
        let label = format!("two hops, {name}: gigabytes per second of CPU time");
        quantities.push(of(label, "", None, &|round| 1.0 / round.cpu[2][node]));
    }
    // One kernel: a part of what a node's kernel does to receive is done while the node before it sends.
    let mean = |round: &Round| round.cpu[2].iter().sum::<f64>() / NODES.len() as f64;
    let label = "two hops, mean: CPU time / that of forward".to_owned();
    quantities.push(of(label, "", None, &|round| mean(round) / forward(round)));
    quantities
}

fn records(quantities: &[Quantity]) -> Result<Records, Failure> {
    let mut records = Records::default();
    for quantity in quantities {
        let spread = Spread::of(&quantity.values).ok_or("no value")?;
        let Quantity { name, unit, .. } = quantity;
        let record = Record::new(
            "overlay hops",
            "",
            name,
            unit,
            By::Measurement,
            spread.median,
        );
        records.push(record.with_interval(&spread));
    }
    Ok(records)
}

fn print(quantities: &[Quantity]) -> Result<(), Failure> {
    for quantity in quantities {
        let spread = Spread::of(&quantity.values).ok_or("no value")?;
        let (size, unit, decimals) = match quantity.unit {
            "s" if spread.median < 0.01 => (1e-6, " us", 0),
            "s" => (1.0, " s", 3),
            "bit/s" => (1e9, " Gbit/s", 2),
            _ => (1.0, "", 3),
        };
        let text = |number: f64| format!("{:.decimals$}", number / size);
        let bound = (quantity.bound).map_or_else(String::new, |bound| {
            format!(", at most {}{unit}", text(bound))
        });
        println!(
            "{:<44} {}{unit} ({} to {}){bound}",
            quantity.name,
            text(spread.median),
            text(spread.low),
            text(spread.high)
        );
    }
    Ok(())
}
