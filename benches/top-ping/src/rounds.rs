//! Runs in pairs, medians, table, verdict.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use midspan_records::statistics::quantile;
use midspan_records::{By, Record, Records, Spread};
use midspan_testbed::loopback::{free_address, raise_descriptor_limit, session};
use midspan_testbed::program::{Launch, Program};

use crate::crowd::Crowd;
use crate::ping::Ping;
use crate::relay_time::{Costs, PAGES, SLICE_LIMIT, TOTAL_LIMIT, measure};
use crate::{Failure, Plan};

/// Time before each run, in which `midspan top` starts or has ended.
const SETTLE: Duration = Duration::from_secs(2);
/// The bounds: with `midspan top` the percentile is at most this multiple of that without, or at most
/// this much above it.
const RATIO_LIMIT: f64 = 1.10;
const EXCESS_LIMIT: Duration = Duration::from_millis(1);
/// Number of the client that pings; the others have smaller numbers.
const PINGING: u32 = 1_000_000;

/// One run: percentiles of the round-trip times, in seconds.
#[derive(Debug, Clone, Copy)]
struct Run {
    median: f64,
    percentile: f64,
    pings: usize,
}

/// Measures, prints, and returns whether all bounds are met.
pub fn run(plan: &Plan) -> Result<bool, Failure> {
    raise_descriptor_limit();
    let settle = SETTLE.as_secs();
    eprintln!(
        "{} runs of {} s, each after {settle} s, then {} answers a second apart: {:.1} minutes, after \
         opening {} sessions",
        2 * plan.rounds,
        plan.seconds,
        2 * plan.answers,
        (2 * plan.rounds * (plan.seconds + settle) + 2 * plan.answers) as f64 / 60.0,
        plan.sessions
    );
    let start = Instant::now();
    let server = TcpListener::bind("127.0.0.1:0")?;
    let proxy = free_address()?;
    let text = format!(
        "[relay]\ndrain_timeout = \"0 s\"\n[log]\nlevel = \"warn\"\n[[listener]]\nname = \"bench\"\nlisten = \"{proxy}\"\nto = \"{}\"\n",
        server.local_addr()?
    );
    let midspan = Launch::midspan(&plan.midspan)
        .configuration(&text)
        .ready()?;
    let socket = midspan.socket().ok_or("no control socket")?.to_owned();
    let crowd = Crowd::open(plan.sessions, plan.moving, proxy, &server)?;
    let mut ping = Ping::new(session(PINGING, proxy, &server)?);
    let mut pairs = Vec::new();
    for round in 0..plan.rounds {
        let mut pair = [None; 2];
        // Each case is first equally often.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for case in order {
            let before = crowd.pieces();
            let run = match case {
                1 => {
                    let mut top = start_top(plan, &socket)?;
                    let run = one(&mut ping, plan)?;
                    still_runs(&mut top)?;
                    run
                }
                _ => one(&mut ping, plan)?,
            };
            if plan.moving > 0 && crowd.pieces() == before {
                return Err("no data has moved: the sessions have ended".into());
            }
            pair[case] = Some(run);
        }
        if let [Some(without), Some(with)] = pair {
            eprintln!(
                "round {} of {}: {:.0} us without, {:.0} us with midspan top (99 %)",
                round + 1,
                plan.rounds,
                without.percentile * 1e6,
                with.percentile * 1e6
            );
            pairs.push((without, with));
        }
    }
    let mut costs = Vec::new();
    for page in &PAGES {
        costs.push(measure(&socket, page, plan.answers)?);
    }
    let pieces = crowd.pieces();
    drop((crowd, ping));
    midspan.end()?;
    let quantities = quantities(&pairs, &costs);
    let is_met = is_met(&pairs, &costs)?;
    if plan.json {
        println!("{}", records(&quantities)?.to_json());
    } else {
        print(&quantities)?;
        println!(
            "\n{} sessions, of which {} moved {pieces} pieces of 1000 bytes; {} pings a run; {:.0} s in all; \
             median (95 % interval of the median), ratios and differences within pairs",
            plan.sessions,
            plan.moving,
            pairs.first().map_or(0, |(without, _)| without.pings),
            start.elapsed().as_secs_f64()
        );
        let verdict = if is_met { "met" } else { "MISSED" };
        println!(
            "bounds {verdict}: ratio at most {RATIO_LIMIT} or difference at most {} ms; an answer at most \
             {} ms of relay time, in slices of at most {} ms",
            EXCESS_LIMIT.as_millis(),
            TOTAL_LIMIT.as_millis(),
            SLICE_LIMIT.as_millis()
        );
    }
    Ok(is_met)
}

fn start_top(plan: &Plan, socket: &Path) -> Result<Program, Failure> {
    let launch = Launch::new(&plan.midspan)
        .args(["top", "--batch", "1000000", "--by", "session", "--interval"])
        .arg(plan.interval.to_string())
        .arg("--socket")
        .arg(socket);
    Ok(launch.without_output().start()?)
}

/// Fails if `midspan top` has ended before the end of the run.
fn still_runs(top: &mut Program) -> Result<(), Failure> {
    match top.is_running() {
        true => Ok(()),
        false => Err(format!("midspan top has ended: {}", top.log()).into()),
    }
}

fn one(ping: &mut Ping, plan: &Plan) -> Result<Run, Failure> {
    std::thread::sleep(SETTLE);
    let times = ping.measure(Duration::from_secs(plan.seconds))?;
    let of = |share| quantile(&times, share).ok_or("no ping");
    Ok(Run {
        median: of(0.5)?,
        percentile: of(0.99)?,
        pings: times.len(),
    })
}

/// Names of the quantities that are judged.
const RATIO: &str = "round trip, 99 % below: with top / without";
const EXCESS: &str = "round trip, 99 % below: with top - without";

/// A quantity: its name, its unit, and its values.
type Quantity = (String, &'static str, Vec<f64>);

fn quantities(pairs: &[(Run, Run)], costs: &[Costs]) -> Vec<Quantity> {
    let of = |name: &str, unit, value: fn(&(Run, Run)) -> f64| {
        (name.to_owned(), unit, pairs.iter().map(value).collect())
    };
    let mut quantities = vec![
        of("round trip, median: without", "s", |pair| pair.0.median),
        of("round trip, median: with top", "s", |pair| pair.1.median),
        of("round trip, 99 % below: without", "s", |pair| {
            pair.0.percentile
        }),
        of("round trip, 99 % below: with top", "s", |pair| {
            pair.1.percentile
        }),
        of(RATIO, "", |pair| pair.1.percentile / pair.0.percentile),
        of(EXCESS, "s", |pair| pair.1.percentile - pair.0.percentile),
    ];
    for (page, costs) in PAGES.iter().zip(costs) {
        let name = page.name;
        quantities.extend([
            (
                format!("{name}: relay time of an answer"),
                "s",
                costs.totals.clone(),
            ),
            (format!("{name}: longest slice"), "s", costs.longest.clone()),
            (format!("{name}: slices"), "", costs.slices.clone()),
        ]);
    }
    quantities
}

/// Whether the medians are within the bounds. (A slice in which the system ran another program lasts
/// longer; the table has the greatest value.)
fn is_met(pairs: &[(Run, Run)], costs: &[Costs]) -> Result<bool, Failure> {
    let median = |values: &[f64]| quantile(values, 0.5).ok_or("no value");
    let ratios: Vec<f64> = (pairs.iter())
        .map(|(without, with)| with.percentile / without.percentile)
        .collect();
    let excesses: Vec<f64> = (pairs.iter())
        .map(|(without, with)| with.percentile - without.percentile)
        .collect();
    let mut is_met =
        median(&ratios)? <= RATIO_LIMIT || median(&excesses)? <= EXCESS_LIMIT.as_secs_f64();
    for costs in costs {
        is_met &= median(&costs.totals)? <= TOTAL_LIMIT.as_secs_f64();
        is_met &= median(&costs.longest)? <= SLICE_LIMIT.as_secs_f64();
    }
    Ok(is_met)
}

fn records(quantities: &[Quantity]) -> Result<Records, Failure> {
    let mut records = Records::default();
    for (name, unit, values) in quantities {
        let spread = Spread::of(values).ok_or("no value")?;
        let by = By::Measurement;
        let record = Record::new("midspan top", "", name, unit, by, spread.median);
        records.push(record.with_interval(&spread));
    }
    Ok(records)
}

fn print(quantities: &[Quantity]) -> Result<(), Failure> {
    for (name, unit, values) in quantities {
        let spread = Spread::of(values).ok_or("no value")?;
        let (size, unit, decimals) = match *unit {
            "s" => (1e-6, " us", 0),
            _ => (1.0, "", 2),
        };
        let text = |number: f64| format!("{:.decimals$}", number / size);
        println!(
            "{name:<44} {}{unit} ({} to {}), greatest {}",
            text(spread.median),
            text(spread.low),
            text(spread.high),
            text(spread.greatest)
        );
    }
    Ok(())
}
