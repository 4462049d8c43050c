//! Rounds, medians, table, records.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use midspan_records::{By, Record, Records, Spread};

use crate::relay_process::RelayProcess;
use crate::servers::Server;
use crate::{Failure, Plan, Shell, load};

/// Flows of the bulk transfer with several flows.
const MANY_FLOWS: usize = 16;
/// Sessions opened before memory is first read.
const WARM_UP: usize = 64;

/// The measured quantities: name and unit in records; unit, size of this unit and decimals in the
/// table.
const QUANTITIES: [(&str, &str, &str, f64, usize); 6] = [
    ("connection rate", "1/s", "1/s", 1.0, 0),
    ("CPU time per connection", "s", "us", 1e-6, 1),
    ("memory per idle session", "bytes", "bytes", 1.0, 0),
    ("CPU time per byte, 1 flow", "s/byte", "s/GB", 1e-9, 3),
    ("CPU time per byte, 16 flows", "s/byte", "s/GB", 1e-9, 3),
    ("added round trip of one byte", "s", "us", 1e-6, 1),
];

struct Bench<'a> {
    plan: &'a Plan,
    echo: Server,
    hold: Server,
    sink: Server,
}

/// Measures both loops and prints the comparison.
pub fn run(plan: &Plan) -> Result<(), Failure> {
    let bench = Bench {
        plan,
        echo: Server::echo(plan.clients.max(2))?,
        hold: Server::hold()?,
        sink: Server::sink(MANY_FLOWS)?,
    };
    let shells = [Shell::Epoll, Shell::Tokio];
    let start = Instant::now();
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..plan.rounds {
        // The order alternates too, so that neither loop is always second.
        for index in [round % 2, 1 - round % 2] {
            runs[index].push(bench.measure(shells[index])?);
            eprintln!(
                "round {} of {}: {:?}",
                round + 1,
                plan.rounds,
                shells[index]
            );
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let records = records(&runs)?;
    if plan.json {
        println!("{}", records.to_json());
    } else {
        print_table(&records);
        let count = 2 * plan.rounds;
        let each = seconds / count as f64;
        println!("\n{count} runs of {each:.1} s, {seconds:.0} s in all; median (low … high)");
    }
    Ok(())
}

impl Bench<'_> {
    /// One run of one loop: a value for each of [`QUANTITIES`].
    fn measure(&self, shell: Shell) -> Result<[f64; 6], Failure> {
        let (rate, cpu) = self.connections(shell)?;
        Ok([
            rate,
            cpu,
            self.memory(shell)?,
            self.bulk(shell, 1)?,
            self.bulk(shell, MANY_FLOWS)?,
            self.round_trip(shell)?,
        ])
    }

    fn connections(&self, shell: Shell) -> Result<(f64, f64), Failure> {
        let relay = RelayProcess::start(shell, &self.echo.addresses)?;
        load::connections(relay.port, self.plan.clients, Duration::from_millis(200))?;
        let before = relay.cpu_time()?;
        let start = Instant::now();
        let span = Duration::from_secs_f64(self.plan.connection_seconds);
        let count = load::connections(relay.port, self.plan.clients, span)? as f64;
        let elapsed = start.elapsed().as_secs_f64();
        let cpu = (relay.cpu_time()? - before).as_secs_f64();
        Ok((count / elapsed, cpu / count))
    }

    fn memory(&self, shell: Shell) -> Result<f64, Failure> {
        let relay = RelayProcess::start(shell, &self.hold.addresses)?;
        let warm = load::idle_sessions(relay.port, WARM_UP)?;
        let before = relay.resident()?;
        let idle = load::idle_sessions(relay.port, self.plan.sessions)?;
        let growth = relay.resident()?.saturating_sub(before);
        self.hold.release();
        drop((warm, idle));
        Ok(growth as f64 / self.plan.sessions as f64)
    }

    fn bulk(&self, shell: Shell, flows: usize) -> Result<f64, Failure> {
        let relay = RelayProcess::start(shell, &self.sink.addresses)?;
        load::bulk(relay.port, flows, 1_000_000)?;
        let before = relay.cpu_time()?;
        let each = self.plan.bulk / flows as u64;
        load::bulk(relay.port, flows, each)?;
        let cpu = (relay.cpu_time()? - before).as_secs_f64();
        Ok(cpu / (each * flows as u64) as f64)
    }

    fn round_trip(&self, shell: Shell) -> Result<f64, Failure> {
        let relay = RelayProcess::start(shell, &self.echo.addresses)?;
        let through = SocketAddr::from(([127, 0, 0, 1], relay.port));
        let direct = load::round_trip(self.echo.addresses[0], self.plan.round_trips)?;
        Ok(load::round_trip(through, self.plan.round_trips)? - direct)
    }
}

fn records(runs: &[Vec<[f64; 6]>; 2]) -> Result<Records, Failure> {
    let mut records = Records::default();
    for (index, (quantity, unit, ..)) in QUANTITIES.iter().enumerate() {
        for (case, runs) in ["epoll", "tokio"].into_iter().zip(runs) {
            let values: Vec<f64> = runs.iter().map(|run| run[index]).collect();
            let spread = Spread::of(&values).ok_or("no runs")?;
            records.push(
                Record::new(
                    "relay loop",
                    case,
                    quantity,
                    unit,
                    By::Measurement,
                    spread.median,
                )
                .with_interval(&spread),
            );
        }
    }
    Ok(records)
}

fn print_table(records: &Records) {
    println!("{:<36} {:>26} {:>26}", "", "epoll", "tokio");
    for (pair, (quantity, _, unit, size, decimals)) in records.records.chunks(2).zip(QUANTITIES) {
        print!("{:<36}", format!("{quantity} ({unit})"));
        for record in pair {
            let text = |number: f64| format!("{:.decimals$}", number / size);
            let low = text(record.low.unwrap_or(record.value));
            let high = text(record.high.unwrap_or(record.value));
            print!(
                " {:>26}",
                format!("{} ({low} … {high})", text(record.value))
            );
        }
        println!();
    }
}
