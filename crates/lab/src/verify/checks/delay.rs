//! The one-way delay, measured by captures at both ends, and the round trip, measured by ping's own
//! clock.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use midspan_records::statistics::quantile;

use super::{Check, Measured, nothing};
use crate::LabError;
use crate::capture::{Captured, Filter};
use crate::programs::Program;
use crate::verify::probe;
use crate::verify::two_hosts::{CLIENT, SERVER, TwoHosts};

/// Permitted error of the one-way delay, in seconds.
const BOUND: f64 = 0.000_5;
/// From this round-trip time on, in seconds, ping prints whole milliseconds.
const COARSE_FROM: f64 = 0.1;

pub(super) fn check(check: &Check, milliseconds: u64, count: u32) -> Result<Measured, LabError> {
    let hosts = TwoHosts::build(&format!("delay = \"{milliseconds} ms\""))?;
    let is_echo: Filter = |bytes| probe::echo(bytes).is_some();
    let (round_trips, client, server, validity) =
        hosts.captured(is_echo, || ping(&hosts, count))?;
    let one = milliseconds as f64 / 1e3;
    let rounding = if 2.0 * one < COARSE_FROM { 0.0 } else { BOUND };
    let up = one_way(&client, &server, true);
    let down = one_way(&server, &client, false);
    let mut records = Vec::new();
    for (values, what, nominal, bound) in [
        (&up, "delay error up", one, BOUND),
        (&down, "delay error down", one, BOUND),
        (
            &round_trips,
            "ping's round-trip time error",
            2.0 * one,
            2.0 * BOUND + rounding,
        ),
    ] {
        for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
            let value = quantile(values, share).ok_or_else(|| nothing("no ping was answered"))?;
            let error = (value - nominal).abs();
            // Adds a billionth of a second for rounding when decimal fractions are printed and
            // read.
            records.push(check.judged(
                (&format!("{what} {name}"), "s"),
                error,
                error <= bound + 1e-9,
                &format!("at most {} ms, of {} packets", bound * 1e3, values.len()),
                &validity,
            ));
        }
    }
    Ok(Measured { records, validity })
}

fn ping(hosts: &TwoHosts, count: u32) -> Result<Vec<f64>, LabError> {
    let mut ping = Program::Ping.command()?;
    ping.args(["-n", "-i", "0.01", "-W", "2", "-c", &count.to_string()])
        .arg(hosts.topology().address(SERVER).to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = hosts
        .topology()
        .node(CLIENT)
        .spawn(ping)?
        .wait_with_output()
        .map_err(|error| nothing(&error.to_string()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let times = ping_times(&printed);
    if times.is_empty() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(nothing(&format!(
            "no ping was answered: {printed}{complaint}"
        )));
    }
    Ok(times)
}

/// One-way delays in seconds of the echo requests (or replies) that both ends saw.
fn one_way(sent: &[Captured], received: &[Captured], requests: bool) -> Vec<f64> {
    let times = |captured: &[Captured]| -> BTreeMap<u16, Duration> {
        captured
            .iter()
            .filter_map(|packet| {
                let (is_request, sequence) = probe::echo(&packet.bytes)?;
                (is_request == requests).then_some((sequence, packet.at))
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
            let time = line.split("time=").nth(1)?.split_whitespace().next()?;
            time.parse::<f64>().ok()
        })
        .map(|milliseconds| milliseconds / 1e3)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_lines_are_read() {
        let output = "PING 10.77.0.2\n\
                      64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=40.3 ms\nnoise\n";
        let times = ping_times(output);
        assert_eq!(times.len(), 1);
        assert!((times[0] - 0.0403).abs() < 1e-9);
    }
}
