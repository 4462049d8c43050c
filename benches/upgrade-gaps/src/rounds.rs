//! Runs in pairs, upgrades, table, verdict.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use midspan_proxy::command::{Request, ask, upgrade as upgrade_proxy};
use midspan_records::statistics::quantile;
use midspan_records::{By, Record, Records, Spread};
use midspan_testbed::loopback::{free_address, raise_descriptor_limit, session};
use midspan_testbed::program::Launch;

use crate::messages::{Gaps, Messages};
use crate::opening::Opening;
use crate::{Failure, Plan};

/// Sessions of one client.
const SESSIONS_OF_CLIENT: u64 = 10;
/// Time before each run.
const SETTLE: Duration = Duration::from_secs(1);
/// How long an upgrade may take.
const UPGRADE_LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
/// The bounds of what upgrades add: to the gap that only a thousandth of all gaps exceeds, and to the longest one.
const MOST_PERCENTILE: Duration = Duration::from_millis(50);
const MOST_LONGEST: Duration = Duration::from_millis(150);

/// One run: gaps in seconds.
#[derive(Debug, Clone, Copy)]
struct Run {
    percentile: f64,
    longest: f64,
    messages: u64,
}

impl From<Gaps> for Run {
    fn from(gaps: Gaps) -> Self {
        Self {
            percentile: gaps.value_at_quantile(0.999) as f64 / 1e6,
            longest: gaps.max() as f64 / 1e6,
            messages: gaps.len(),
        }
    }
}

/// Measures, prints, and returns whether all bounds are met.
pub fn run(plan: &Plan) -> Result<bool, Failure> {
    raise_descriptor_limit();
    eprintln!(
        "{} runs of {} s: {:.1} minutes, after opening {} sessions",
        2 * plan.rounds,
        plan.seconds,
        (2 * plan.rounds * (plan.seconds + SETTLE.as_secs())) as f64 / 60.0,
        plan.sessions
    );
    let (server, other) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let (proxy, proxy_of_new) = (free_address()?, free_address()?);
    let text = format!(
        "[relay]\ndrain_timeout = \"5 s\"\n[log]\nlevel = \"warn\"\n\
         [[listener]]\nname = \"old\"\nlisten = \"{proxy}\"\nto = \"{}\"\n\
         [[listener]]\nname = \"new\"\nlisten = \"{proxy_of_new}\"\nto = \"{}\"\n",
        server.local_addr()?,
        other.local_addr()?
    );
    let midspan = Launch::midspan(&plan.midspan)
        .configuration(&text)
        .ready()?;
    let socket = midspan.socket().ok_or("no control socket")?.to_owned();
    let mut sessions = Vec::new();
    for number in 0..plan.sessions {
        let client = u32::try_from(number / SESSIONS_OF_CLIENT)?;
        sessions.push(session(client, proxy, &server)?);
    }
    let moving = sessions.split_off(usize::try_from(plan.sessions.saturating_sub(plan.moving))?);
    let messages = Messages::start(moving, Duration::from_millis(plan.interval))?;
    let opening = Opening::start(proxy_of_new, other);
    let mut pairs = Vec::new();
    let mut upgrades = 0;
    for round in 0..plan.rounds {
        let mut pair = [None; 2];
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for case in order {
            std::thread::sleep(SETTLE);
            let time = Duration::from_secs(plan.seconds);
            let gaps = messages.during(time, || {
                for number in 0..plan.upgrades * case {
                    std::thread::sleep(time / u32::try_from(plan.upgrades * 2)?);
                    let program = match (upgrades + number) % 2 {
                        0 => plan.other.as_deref().unwrap_or(&plan.midspan),
                        _ => &plan.midspan,
                    };
                    upgrade(&socket, program)?;
                }
                Ok(())
            })?;
            upgrades += plan.upgrades * case;
            pair[usize::try_from(case)?] = Some(Run::from(gaps));
        }
        if let [Some(without), Some(with)] = pair {
            eprintln!(
                "round {} of {}: longest gap {:.1} ms without, {:.1} ms with {} upgrades",
                round + 1,
                plan.rounds,
                without.longest * 1e3,
                with.longest * 1e3,
                plan.upgrades
            );
            pairs.push((without, with));
        }
    }
    let opened = opening.end()?;
    drop((messages, sessions));
    midspan.end()?;
    report(plan, &pairs, upgrades, opened)
}

/// Upgrades, and returns when the new program runs and the former relay has ended.
fn upgrade(socket: &Path, program: &Path) -> Result<(), Failure> {
    let program = std::path::absolute(program)?;
    let program = Some(program.to_string_lossy().into_owned());
    let (_, done) = upgrade_proxy(socket, program, UPGRADE_LIMIT)?;
    if let Some(error) = done.error {
        return Err(format!("an upgrade failed: {error}").into());
    }
    let until = Instant::now() + UPGRADE_LIMIT;
    while Instant::now() < until {
        let status = ask(socket, &Request::Status)?.status;
        if status.is_some_and(|status| status.former_relay_pids.is_empty()) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err("the former relay has not ended".into())
}

fn report(plan: &Plan, pairs: &[(Run, Run)], upgrades: u64, opened: u64) -> Result<bool, Failure> {
    let of = |value: fn(&(Run, Run)) -> f64| -> Result<Spread, Failure> {
        let values: Vec<f64> = pairs.iter().map(value).collect();
        Ok(Spread::of(&values).ok_or("no value")?)
    };
    let rows = [
        (
            "gap, 99.9 % below: without",
            of(|pair| pair.0.percentile)?,
            None,
        ),
        (
            "gap, 99.9 % below: with upgrades",
            of(|pair| pair.1.percentile)?,
            None,
        ),
        (
            "gap, 99.9 % below: with - without",
            of(|pair| pair.1.percentile - pair.0.percentile)?,
            Some(MOST_PERCENTILE),
        ),
        ("longest gap: without", of(|pair| pair.0.longest)?, None),
        (
            "longest gap: with upgrades",
            of(|pair| pair.1.longest)?,
            None,
        ),
        (
            "longest gap: with - without",
            of(|pair| pair.1.longest - pair.0.longest)?,
            Some(MOST_LONGEST),
        ),
    ];
    let is_met = rows
        .iter()
        .all(|(_, spread, bound)| bound.is_none_or(|bound| spread.median <= bound.as_secs_f64()));
    if plan.json {
        let mut records = Records::default();
        for (name, spread, _) in &rows {
            let record = Record::new("upgrades", "", name, "s", By::Measurement, spread.median);
            records.push(record.with_interval(spread));
        }
        println!("{}", records.to_json());
        return Ok(is_met);
    }
    for (name, spread, bound) in &rows {
        let bound = bound.map(|bound| format!(", at most {} ms", bound.as_millis()));
        println!(
            "{name:<36} {:.1} ms ({:.1} to {:.1}){}",
            spread.median * 1e3,
            spread.low * 1e3,
            spread.high * 1e3,
            bound.unwrap_or_default()
        );
    }
    let messages: Vec<f64> = pairs.iter().map(|pair| pair.1.messages as f64).collect();
    println!(
        "\n{upgrades} upgrades; {} sessions, {} with a message every {} ms ({:.0} arrivals a run); no session ended, no \
         byte was wrong; {opened} new connections, none refused; medians (95 % interval), differences within pairs",
        plan.sessions,
        plan.moving,
        plan.interval,
        quantile(&messages, 0.5).unwrap_or_default()
    );
    println!("bounds {}", if is_met { "met" } else { "MISSED" });
    Ok(is_met)
}
