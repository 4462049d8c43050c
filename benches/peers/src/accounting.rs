//! The time of all cores while connections are opened, by the threads and states in which it was spent,
//! and the counters of TCP and connection tracking in the same time.
//!
//! The run time of a thread contains the interrupts and softirqs that ran while the thread was on a
//! core; kernels without `CONFIG_IRQ_TIME_ACCOUNTING` do not separate them. The part of all time that
//! softirqs took comes from `/proc/stat`, which samples it at each clock tick.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use midspan_linux::namespace::NetworkNamespace;
use rustix::param::clock_ticks_per_second;
use rustix::time::ClockId;

use crate::Failure;
use crate::network::Network;
use crate::usage;

/// An account: its name, and its value per connection.
pub type Account = (String, f64);

/// Accounts of time are in seconds per connection; all others are numbers per connection.
pub const TIME: &str = "time: ";
/// The time for which a thread was ready and waited for a core.
pub const WAIT: &str = "waiting: ";
/// Counts.
pub const COUNT: &str = "count: ";

/// A reading of all counters.
pub struct Reading {
    at: Instant,
    /// Seconds, by account.
    times: BTreeMap<String, f64>,
    waits: BTreeMap<String, f64>,
    counts: BTreeMap<String, f64>,
    cores: usize,
}

impl Reading {
    /// Reads all counters. `peer` is the first process of the peer.
    pub fn now(peer: Option<u32>, network: &Network) -> Result<Self, Failure> {
        let mut reading = Self {
            at: Instant::now(),
            times: BTreeMap::new(),
            waits: BTreeMap::new(),
            counts: BTreeMap::new(),
            cores: std::thread::available_parallelism()?.get(),
        };
        reading.read_threads(peer)?;
        reading.read_machine()?;
        let gateway = count_in(&network.gateway, "/proc/thread-self/net/stat/nf_conntrack")?;
        reading.read_connection_tracking(&gateway);
        for (host, namespace, names) in [
            ("client", &network.client, &["TCPSynRetrans", "TCPTimeouts"]),
            (
                "gateway",
                &network.gateway,
                &["ListenOverflows", "TCPTimeouts"],
            ),
        ] {
            let text = count_in(namespace, "/proc/thread-self/net/netstat")?;
            for name in names {
                let value = extension(&text, name).unwrap_or(0.0);
                reading.count(&format!("{host} {name}"), value);
            }
        }
        Ok(reading)
    }

    /// The accounts of the time since `before`, for this number of connections.
    pub fn since(&self, before: &Self, connections: f64) -> Vec<Account> {
        let elapsed = self.at.duration_since(before.at).as_secs_f64();
        let difference = |after: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>| {
            let of = |(name, value): (&String, &f64)| {
                let earlier = before.get(name).copied().unwrap_or(0.0);
                (name.clone(), (value - earlier).max(0.0))
            };
            after.iter().map(of).collect::<BTreeMap<String, f64>>()
        };
        let mut times = difference(&self.times, &before.times);
        let softirq = times.remove(SOFTIRQ).unwrap_or(0.0);
        let known: f64 = times.values().sum();
        let all = elapsed * self.cores as f64;
        times.insert("unaccounted".to_owned(), all - known);
        let mut accounts = Vec::new();
        let mut add = |kind: &str, values: BTreeMap<String, f64>| {
            for (name, value) in values {
                accounts.push((format!("{kind}{name}"), value / connections));
            }
        };
        add(TIME, times);
        add(TIME, BTreeMap::from([("all cores".to_owned(), all)]));
        add(
            TIME,
            BTreeMap::from([("softirqs, within the others".to_owned(), softirq)]),
        );
        add(WAIT, difference(&self.waits, &before.waits));
        add(COUNT, difference(&self.counts, &before.counts));
        accounts
    }

    fn count(&mut self, name: &str, value: f64) {
        *self.counts.entry(name.to_owned()).or_insert(0.0) += value;
    }

    /// The run time of every thread of the machine.
    fn read_threads(&mut self, peer: Option<u32>) -> Result<(), Failure> {
        let family = peer.map(usage::family).unwrap_or_default();
        let own = std::process::id();
        for process in numbers("/proc")? {
            let is_peer = family.contains(&process);
            let folder = format!("/proc/{process}");
            let is_kernel = fs::read(format!("{folder}/cmdline")).is_ok_and(|it| it.is_empty());
            // A process may end meanwhile.
            for thread in numbers(&format!("{folder}/task")).unwrap_or_default() {
                let task = format!("{folder}/task/{thread}");
                let Some((run, wait)) = usage::schedule(&task) else {
                    continue;
                };
                let name = fs::read_to_string(format!("{task}/comm")).unwrap_or_default();
                let name = name.trim();
                let account = match (process == own, is_peer, is_kernel) {
                    // The clients' threads have ended before the next reading.
                    (true, ..) if name != SERVER => continue,
                    (true, ..) => "servers".to_owned(),
                    (_, true, _) => format!("peer, {name}"),
                    (_, _, true) => format!("kernel, {}", family_of(name)),
                    _ => "other programs".to_owned(),
                };
                if is_peer {
                    *self.waits.entry(account.clone()).or_insert(0.0) += wait;
                }
                *self.times.entry(account).or_insert(0.0) += run;
            }
            if is_peer {
                let ended = ended_children(process).unwrap_or(0.0);
                *self.times.entry(CHILDREN.to_owned()).or_insert(0.0) += ended;
            }
        }
        let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        let servers = self.times.get("servers").copied().unwrap_or(0.0);
        self.times.insert("clients".to_owned(), used - servers);
        Ok(())
    }

    /// Idle and stolen time of all cores.
    fn read_machine(&mut self) -> Result<(), Failure> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().ok_or("/proc/stat is empty")?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        let seconds = |place: usize| {
            ticks.get(place).copied().unwrap_or(0.0) / clock_ticks_per_second() as f64
        };
        // user nice system idle iowait irq softirq steal
        self.times
            .insert("idle".to_owned(), seconds(3) + seconds(4));
        self.times.insert("steal".to_owned(), seconds(7));
        self.times.insert(SOFTIRQ.to_owned(), seconds(6));
        Ok(())
    }

    /// The sums over all cores of what connection tracking counts, in hexadecimal.
    fn read_connection_tracking(&mut self, text: &str) {
        let mut lines = text.lines();
        let names: Vec<&str> = lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        for line in lines {
            for (name, value) in names.iter().zip(line.split_whitespace()) {
                // "entries" is a state, not a counter.
                if let Ok(value) = u64::from_str_radix(value, 16)
                    && *name != "entries"
                {
                    self.count(&format!("conntrack {name}"), value as f64);
                }
            }
        }
    }
}

/// The name of the servers' threads.
pub const SERVER: &str = "server";
const SOFTIRQ: &str = "softirq";
const CHILDREN: &str = "peer, programs that have ended (nft)";

/// The kind of a kernel thread: its name up to the first number, slash or colon.
fn family_of(name: &str) -> &str {
    let end = name.find(|c: char| c == '/' || c == ':' || c.is_ascii_digit());
    end.map_or(name, |end| &name[..end])
}

/// Seconds of the children of a process that have ended and were waited for.
fn ended_children(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may contain spaces, and ends with the last parenthesis.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    // proc_pid_stat(5): cutime and cstime are fields 16 and 17, and `rest` begins with field 3.
    let ticks: f64 = [13, 14]
        .iter()
        .filter_map(|place| fields.get(*place)?.parse::<f64>().ok())
        .sum();
    Some(ticks / clock_ticks_per_second() as f64)
}

fn numbers(folder: &str) -> std::io::Result<Vec<u32>> {
    let names =
        fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

fn count_in(namespace: &NetworkNamespace, file: &'static str) -> Result<String, Failure> {
    Ok(namespace.run(move || fs::read_to_string(file).unwrap_or_default())?)
}

/// A counter of `TcpExt` in the text of `/proc/net/netstat`.
fn extension(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let place = lines
        .next()?
        .split_whitespace()
        .position(|field| field == name)?;
    let values = lines.next()?;
    values.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant, times: &[(&str, f64)], counts: &[(&str, f64)]) -> Reading {
        let map = |values: &[(&str, f64)]| {
            let owned = values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value));
            owned.collect::<BTreeMap<String, f64>>()
        };
        Reading {
            at,
            times: map(times),
            waits: BTreeMap::new(),
            counts: map(counts),
            cores: 2,
        }
    }

    #[test]
    fn what_no_thread_has_used_is_unaccounted() {
        let start = Instant::now();
        let before = reading(start, &[("idle", 1.0), (SOFTIRQ, 0.5)], &[("a", 7.0)]);
        let after = reading(
            start + std::time::Duration::from_secs(10),
            &[("idle", 3.0), (SOFTIRQ, 1.5), ("peer, relay", 16.0)],
            &[("a", 9.0)],
        );
        let accounts: BTreeMap<String, f64> = after.since(&before, 2.0).into_iter().collect();
        assert_eq!(accounts["time: all cores"], 10.0);
        assert_eq!(accounts["time: idle"], 1.0);
        assert_eq!(accounts["time: peer, relay"], 8.0);
        assert_eq!(accounts["time: unaccounted"], 1.0);
        assert_eq!(accounts["time: softirqs, within the others"], 0.5);
        assert_eq!(accounts["count: a"], 1.0);
    }

    #[test]
    fn counters_are_read() {
        let text = "TcpExt: A TCPSynRetrans\nTcpExt: 1 23\nIpExt: A\nIpExt: 5\n";
        assert_eq!(extension(text, "TCPSynRetrans"), Some(23.0));
        assert_eq!(extension(text, "B"), None);
        assert_eq!(family_of("kworker/0:1-events"), "kworker");
        assert_eq!(family_of("rcu_preempt"), "rcu_preempt");
        assert!(ended_children(std::process::id()).is_some());
    }
}
