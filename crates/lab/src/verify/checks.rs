//! What is checked, and against which bound.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use midspan_path::Direction;
use midspan_records::statistics::quantile;
use midspan_records::{By, Record};
use midspan_units::BitRate;

use super::probe::{self, Probe};
use super::two_hosts::{CLIENT, SERVER, TwoHosts};
use crate::LabError;
use crate::programs::Program;
use crate::workload::iperf3;

/// One check of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The rate, within 1 %, by overload.
    Rate {
        /// In Mbit/s.
        megabits: u64,
        /// Which way.
        direction: Direction,
        /// For how long.
        seconds: u64,
    },
    /// The delay each way, within 0.5 ms at the median and the 99th percentile.
    Delay {
        /// One way, in ms.
        milliseconds: u64,
        /// Pings.
        count: u32,
    },
    /// The loss, within its binomial bound, the same for the same seed.
    Loss {
        /// Which way.
        direction: Direction,
        /// Packets sent.
        packets: u64,
    },
    /// The queue's limit, exact, by a burst.
    Queue {
        /// In packets.
        limit: u64,
    },
    /// One fast link, by a TCP transfer.
    Capacity {
        /// In Mbit/s.
        megabits: u64,
        /// For how long.
        seconds: u64,
    },
}

/// All checks; the quick ones are for tests.
#[must_use]
pub fn checks(quick: bool) -> Vec<Check> {
    let both = [Direction::Up, Direction::Down];
    let mut checks = Vec::new();
    let rates: &[(u64, u64)] = if quick {
        &[(2, 3), (50, 1)]
    } else {
        &[(2, 10), (10, 6), (50, 4), (200, 4)]
    };
    for &(megabits, seconds) in rates {
        checks.extend(both.map(|direction| Check::Rate {
            megabits,
            direction,
            seconds,
        }));
    }
    let delays: &[u64] = if quick { &[20] } else { &[1, 20, 280] };
    checks.extend(delays.iter().map(|&milliseconds| Check::Delay {
        milliseconds,
        count: if quick { 100 } else { 500 },
    }));
    let packets = if quick { 5_000 } else { 20_000 };
    checks.extend(both.map(|direction| Check::Loss { direction, packets }));
    checks.push(Check::Queue { limit: 50 });
    if !quick {
        checks.push(Check::Capacity {
            megabits: 400,
            seconds: 6,
        });
    }
    checks
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate {
                megabits,
                direction,
                ..
            } => write!(f, "rate {megabits} Mbit/s {}", way(*direction)),
            Self::Delay { milliseconds, .. } => write!(f, "delay {milliseconds} ms"),
            Self::Loss { direction, .. } => write!(f, "loss 1 % {}", way(*direction)),
            Self::Queue { limit } => write!(f, "queue {limit} packets"),
            Self::Capacity { megabits, .. } => write!(f, "TCP through {megabits} Mbit/s"),
        }
    }
}

const fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

const ITEM: &str = "lab verify";
/// Bytes of a full packet at the network layer.
const FULL: usize = 1500;

impl Check {
    /// Carries it out.
    pub fn run(&self) -> Result<Vec<Record>, LabError> {
        match *self {
            Self::Rate {
                megabits,
                direction,
                seconds,
            } => self.rate(megabits, direction, seconds),
            Self::Delay {
                milliseconds,
                count,
            } => self.delay(milliseconds, count),
            Self::Loss { direction, packets } => self.loss(direction, packets),
            Self::Queue { limit } => self.queue(limit),
            Self::Capacity { megabits, seconds } => self.capacity(megabits, seconds),
        }
    }

    fn record(&self, quantity: &str, unit: &str, value: f64) -> Record {
        Record::new(ITEM, &self.to_string(), quantity, unit, By::Lab, value)
    }

    fn rate(
        &self,
        megabits: u64,
        direction: Direction,
        seconds: u64,
    ) -> Result<Vec<Record>, LabError> {
        let hosts = TwoHosts::build(&format!(
            "rate = \"{megabits} Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"1000 packets\""
        ))?;
        let offered = megabits * 1_200_000;
        let packets = offered * seconds / (FULL as u64 * 8);
        let probe = Probe {
            packets,
            size: FULL,
            rate: BitRate::from_bits_per_second(offered),
        };
        let seen = hosts.probe(direction, probe, Duration::from_millis(50))?;
        // The first packet found the link idle; the rate is that of those that followed.
        let (Some(first), Some(last)) = (seen.received.first(), seen.received.last()) else {
            return Err(nothing("the link delivered no probe"));
        };
        let bytes: u64 = seen
            .received
            .iter()
            .skip(1)
            .map(|p| u64::from(p.length))
            .sum();
        let span = last.at.saturating_sub(first.at);
        #[allow(clippy::cast_precision_loss)]
        let (rate, nominal) = (
            bytes as f64 * 8.0 / span.as_secs_f64(),
            megabits as f64 * 1e6,
        );
        let ok = (rate / nominal - 1.0).abs() <= 0.01 && seen.validity.is_valid();
        Ok(vec![
            self.record("rate", "bit/s", rate)
                .with_ok(ok)
                .with_note(format!(
                    "within 1 %, capture at the receiver; {}",
                    seen.validity
                )),
        ])
    }

    fn delay(&self, milliseconds: u64, count: u32) -> Result<Vec<Record>, LabError> {
        let hosts = TwoHosts::build(&format!("delay = \"{milliseconds} ms\""))?;
        let target = hosts.topology().address(SERVER).to_string();
        let node = hosts.topology().node(CLIENT);
        let (round_trips, client, server, validity) = hosts.captured("icmp", || {
            let mut ping = Program::Ping.command()?;
            ping.args([
                "-n",
                "-i",
                "0.01",
                "-c",
                &count.to_string(),
                "-W",
                "2",
                &target,
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
            let output = node
                .spawn(ping)?
                .wait_with_output()
                .map_err(|error| nothing(&error.to_string()))?;
            let said = String::from_utf8_lossy(&output.stdout);
            let times = ping_times(&said);
            if times.is_empty() {
                let complaint = String::from_utf8_lossy(&output.stderr);
                return Err(nothing(&format!("no ping came back: {said}{complaint}")));
            }
            Ok(times)
        })?;
        #[allow(clippy::cast_precision_loss)]
        let nominal = milliseconds as f64 / 1e3;
        let up = one_way(&client, &server, true);
        let down = one_way(&server, &client, false);
        let mut records = Vec::new();
        for (values, what, nominal, bound) in [
            (&up, "delay up", nominal, 0.0005),
            (&down, "delay down", nominal, 0.0005),
            (
                &round_trips,
                "round-trip time by ping",
                2.0 * nominal,
                0.001,
            ),
        ] {
            for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
                let value = quantile(values, share).ok_or_else(|| nothing("no ping came back"))?;
                let ok = (value - nominal).abs() <= bound && validity.is_valid();
                let bound = bound * 1e3;
                let record = self
                    .record(&format!("{what} {name}"), "s", value)
                    .with_ok(ok)
                    .with_note(format!(
                        "within {bound} ms; {} packets; {validity}",
                        values.len()
                    ));
                records.push(record);
            }
        }
        Ok(records)
    }

    fn loss(&self, direction: Direction, packets: u64) -> Result<Vec<Record>, LabError> {
        const LOSS: f64 = 0.01;
        let hosts = TwoHosts::build("delay = \"5 ms\"\nloss = \"1 %\"")?;
        let probe = Probe {
            packets,
            size: 100,
            rate: BitRate::from_bits_per_second(8_000_000),
        };
        let mut lost = Vec::new();
        let mut validity = crate::Validity::default();
        for _ in 0..2 {
            hosts.reset(1)?;
            let seen = hosts.probe(direction, probe, Duration::from_millis(100))?;
            validity = seen.validity;
            let mut missing: BTreeMap<u64, ()> = seen
                .sent
                .iter()
                .filter_map(probe::number)
                .map(|n| (n, ()))
                .collect();
            for number in seen.received.iter().filter_map(probe::number) {
                missing.remove(&number);
            }
            lost.push(missing.into_keys().collect::<Vec<_>>());
        }
        #[allow(clippy::cast_precision_loss)]
        let (count, n) = (lost[0].len() as f64, packets as f64);
        // 99.9 % of binomial draws lie within 3.29 standard deviations.
        let bound = 3.29 * (LOSS * (1.0 - LOSS) / n).sqrt();
        let within = (count / n - LOSS).abs() <= bound;
        Ok(vec![
            self.record("loss", "", count / n)
                .with_ok(within && validity.is_valid())
                .with_note(format!("within ±{:.2} % of 1 % (99.9 % of binomial draws); {packets} packets; {validity}", bound * 100.0)),
            self.record("same losses for the same seed", "", f64::from(u8::from(lost[0] == lost[1])))
                .with_ok(lost[0] == lost[1] && !lost[0].is_empty()),
        ])
    }

    fn queue(&self, limit: u64) -> Result<Vec<Record>, LabError> {
        // At 1 Mbit/s a full packet takes 12 ms: the burst is over before the first one has gone.
        let hosts = TwoHosts::build(&format!(
            "rate = \"1 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"{limit} packets\""
        ))?;
        let probe = Probe {
            packets: 4 * limit,
            size: FULL,
            rate: None,
        };
        let drain = Duration::from_millis(limit * 12 + 200);
        let seen = hosts.probe(Direction::Up, probe, drain)?;
        let burst = match (seen.sent.first(), seen.sent.last()) {
            (Some(first), Some(last)) => last.at.saturating_sub(first.at),
            _ => return Err(nothing("no probe was sent")),
        };
        // One more than the limit: the packet being sent does not wait.
        let ok = seen.received.len() as u64 == limit + 1
            && burst < Duration::from_millis(12)
            && seen.validity.is_valid();
        #[allow(clippy::cast_precision_loss)]
        let value = seen.received.len() as f64 - 1.0;
        Ok(vec![
            self.record("queue limit", "packets", value)
                .with_ok(ok)
                .with_note(format!(
                    "exact; burst of {} packets in {burst:?}; {}",
                    seen.sent.len(),
                    seen.validity
                )),
        ])
    }

    fn capacity(&self, megabits: u64, seconds: u64) -> Result<Vec<Record>, LabError> {
        let hosts = TwoHosts::build(&format!(
            "rate = \"{megabits} Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"1000 packets\""
        ))?;
        let topology = hosts.topology();
        let to = SocketAddr::new(topology.address(SERVER), iperf3::PORT);
        let _server = iperf3::BulkServer::start(topology.node(SERVER), to, hosts.folder())?;
        let load = crate::load::other_load();
        let ticks = crate::load::Ticks::now();
        hosts.reset(1)?;
        let goodput = iperf3::transfer(
            topology.node(CLIENT),
            to,
            iperf3::Direction::Download,
            Duration::from_secs(seconds),
        )?;
        let stolen = crate::load::Ticks::now().stolen_since(ticks);
        let validity = crate::Validity::judge([("link", &hosts.report()?)], load, stolen);
        // 1,448 bytes of data in a packet of 1,500; slow start costs the rest.
        #[allow(clippy::cast_precision_loss)]
        let full = megabits as f64 * 1e6 * 1448.0 / 1500.0;
        Ok(vec![
            self.record("goodput", "bit/s", goodput)
                .with_ok(goodput >= 0.95 * full && validity.is_valid())
                .with_note(format!(
                    "at least 95 % of what the headers leave; {validity}"
                )),
        ])
    }
}

/// One-way delays in seconds of the echo requests (or replies) that both ends saw.
fn one_way(
    sent: &[crate::capture::Captured],
    received: &[crate::capture::Captured],
    request: bool,
) -> Vec<f64> {
    let times = |captured: &[crate::capture::Captured]| -> BTreeMap<u16, Duration> {
        captured
            .iter()
            .filter_map(|packet| {
                let (is_request, sequence) = probe::echo(packet)?;
                (is_request == request).then_some((sequence, packet.at))
            })
            .collect()
    };
    let sent = times(sent);
    times(received)
        .into_iter()
        .filter_map(|(sequence, at)| Some(at.saturating_sub(*sent.get(&sequence)?).as_secs_f64()))
        .collect()
}

/// Round-trip times in seconds from ping's lines ("… time=560 ms").
fn ping_times(output: &str) -> Vec<f64> {
    output
        .lines()
        .filter_map(|line| {
            line.split("time=")
                .nth(1)?
                .split_whitespace()
                .next()?
                .parse::<f64>()
                .ok()
        })
        .map(|milliseconds| milliseconds / 1e3)
        .collect()
}

fn nothing(reason: &str) -> LabError {
    LabError::Program {
        program: "lab verify".into(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_lines_are_read() {
        let output =
            "PING 10.77.0.2\n64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=40.3 ms\nnoise\n";
        let times = ping_times(output);
        assert_eq!(times.len(), 1);
        assert!((times[0] - 0.0403).abs() < 1e-9);
    }
}
