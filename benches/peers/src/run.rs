//! One run: starts a peer, loads it, and reads its use of CPU and memory.

use std::time::{Duration, Instant};

use midspan_records::statistics::quantile;
use midspan_testbed::program::Program;
use serde::{Deserialize, Serialize};

use crate::accounting::{Account, Reading};
use crate::network::Network;
use crate::peer::Peer;
use crate::server::{ECHO, HOLD, SINK, Services};
use crate::{Arguments, Failure, load, usage};

/// Number of flows of the larger bulk transfer.
pub const MANY_FLOWS: usize = 16;
/// Sessions opened before memory is first read.
const WARM_UP_SESSIONS: usize = 64;
/// Duration of load before each measurement, which is not counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// A measured quantity.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Bit/s of one flow.
    Bulk1,
    /// The peer's CPU seconds per byte, one flow.
    BulkCpu1,
    /// Bit/s of [`MANY_FLOWS`] flows.
    Bulk16,
    /// The peer's CPU seconds per byte, [`MANY_FLOWS`] flows.
    BulkCpu16,
    /// Connections a second.
    Connections,
    /// The peer's CPU seconds per connection.
    ConnectionCpu,
    /// 99th percentile of the time from `connect` to the first byte of the answer.
    SetUpP99,
    /// Median of this time.
    SetUpMedian,
    /// Median round trip of one byte.
    RoundTrip,
    /// Bytes of the peer's own memory per idle session.
    IdleMemory,
    /// The peer's CPU seconds per second while all sessions are idle: a share of a core.
    IdleCpu,
}

/// One measured value.
pub type Value = (Quantity, f64);

/// The results of one run.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The measured quantities.
    pub values: Vec<Value>,
    /// Where the time went while connections were opened.
    pub accounts: Vec<Account>,
}

/// Measures `peer` once; if `memory`, also the memory and the CPU time of idle sessions.
pub fn measure(
    peer: Peer,
    network: &Network,
    services: &Services,
    arguments: &Arguments,
    memory: bool,
) -> Result<Measured, Failure> {
    let folder = tempfile::tempdir()?;
    let program = peer.start(network, arguments, folder.path())?;
    let process = program.as_ref().map(Program::id);
    let cpu = || process.map_or(Duration::ZERO, usage::cpu_time);
    let mut values = Vec::new();
    std::thread::sleep(Duration::from_secs_f64(arguments.settle_seconds));

    let span = Duration::from_secs_f64(arguments.bulk_seconds);
    for (flows, rate, cost) in [
        (1, Quantity::Bulk1, Quantity::BulkCpu1),
        (MANY_FLOWS, Quantity::Bulk16, Quantity::BulkCpu16),
    ] {
        let target = peer.target(SINK);
        load::bulk(&network.client, target, flows, WARM_UP).map_err(during("bulk"))?;
        let before = cpu();
        let (bytes, elapsed) =
            load::bulk(&network.client, target, flows, span).map_err(during("bulk"))?;
        let bytes = bytes as f64;
        values.push((rate, 8.0 * bytes / elapsed));
        values.push((cost, (cpu() - before).as_secs_f64() / bytes));
    }

    let target = peer.target(ECHO);
    let clients = arguments.clients;
    load::connections(&network.client, target, clients, WARM_UP).map_err(during("connections"))?;
    let accounts_before = Reading::now(process, network)?;
    let before = cpu();
    let span = Duration::from_secs_f64(arguments.connection_seconds);
    let made =
        load::connections(&network.client, target, clients, span).map_err(during("connections"))?;
    let spent = (cpu() - before).as_secs_f64();
    let count = made.set_up.len() as f64;
    let accounts = Reading::now(process, network)?.since(&accounts_before, count.max(1.0));
    let quantile = |fraction| quantile(&made.set_up, fraction).ok_or("no connections");
    values.push((Quantity::Connections, count / made.elapsed));
    values.push((Quantity::ConnectionCpu, spent / count));
    values.push((Quantity::SetUpMedian, quantile(0.5)?));
    values.push((Quantity::SetUpP99, quantile(0.99)?));

    let trip = load::round_trip(&network.client, target, arguments.round_trips)
        .map_err(during("round trips"))?;
    values.push((Quantity::RoundTrip, trip));

    if let Some(process) = process.filter(|_| memory) {
        let target = peer.target(HOLD);
        let warm = load::idle_sessions(&network.client, target, WARM_UP_SESSIONS)?;
        let before = usage::memory(process)?;
        let sessions = arguments.sessions.saturating_sub(WARM_UP_SESSIONS).max(1);
        let idle = load::idle_sessions(&network.client, target, sessions)?;
        let growth = usage::memory(process)?.saturating_sub(before);
        let span = Duration::from_secs_f64(arguments.idle_seconds);
        std::thread::sleep(span);
        let (start, before) = (Instant::now(), usage::cpu_time(process));
        std::thread::sleep(span);
        let spent = usage::cpu_time(process).saturating_sub(before);
        let elapsed = start.elapsed();
        services.release();
        drop((warm, idle));
        values.push((Quantity::IdleMemory, growth as f64 / sessions as f64));
        if span > Duration::ZERO {
            let share = spent.as_secs_f64() / elapsed.as_secs_f64();
            values.push((Quantity::IdleCpu, share));
        }
    }
    Ok(Measured { values, accounts })
}

fn during(what: &str) -> impl Fn(Failure) -> Failure {
    move |failure| format!("{what}: {failure}").into()
}
