//! The highest rate of an emulated link, measured by a TCP transfer.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Check, Measured};
use crate::LabError;
use crate::load::{Ticks, other_load};
use crate::validity::{Disturbance, Purpose, judge};
use crate::verify::two_hosts::{CLIENT, SERVER, TwoHosts};
use crate::workload::iperf3::{self, BulkServer};

/// Share of data in a full packet, with TCP timestamps.
const DATA_SHARE: f64 = 1448.0 / 1500.0;
/// The transfer must reach this share of the rate; slow start may cost the rest.
const BOUND: f64 = 0.95;

pub(super) fn check(check: &Check, megabits: u64, seconds: u64) -> Result<Measured, LabError> {
    let hosts = TwoHosts::build(&format!(
        "rate = \"{megabits} Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"1000 packets\""
    ))?;
    let topology = hosts.topology();
    let to = SocketAddr::new(topology.address(SERVER), iperf3::PORT);
    let _server = BulkServer::start(topology.node(SERVER), to, hosts.folder())?;
    let load = other_load();
    let ticks = Ticks::now();
    hosts.reset(1)?;
    let goodput = iperf3::transfer(
        topology.node(CLIENT),
        to,
        iperf3::Direction::Download,
        Duration::from_secs(seconds),
    )?
    .goodput;
    let stolen = Ticks::now().stolen_since(ticks);
    let report = hosts.report()?;
    let disturbance = Disturbance::of_link(&report, load, stolen);
    let validity = judge(Purpose::Measurement, &disturbance);
    let full = megabits as f64 * 1e6 * DATA_SHARE;
    let records = vec![check.judged(
        ("goodput", "bit/s"),
        goodput,
        goodput >= BOUND * full,
        "at least 95 % of what the headers leave",
        &validity,
    )];
    Ok(Measured { records, validity })
}
