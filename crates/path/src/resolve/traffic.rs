//! Traffic without TCP, for the simulator.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use midspan_document::Located;
use midspan_units::{ByteSize, TimeSpan};

use super::Check;
use super::limits::{DURATION_LIMIT, FLOW_LIMIT};
use super::nodes::NodeNames;
use crate::file::TrafficTable;
use crate::{OnOff, Traffic};

/// Sizes of packets in bytes, headers included: what IP can carry.
const PACKET: RangeInclusive<ByteSize> = ByteSize::from_bytes(20)..=ByteSize::from_bytes(65_535);
const PACKET_DEFAULT: ByteSize = ByteSize::from_bytes(1500);
/// Number of sources of one traffic.
const SOURCES: RangeInclusive<u32> = 1..=10_000;
/// Mean durations of on and off phases.
const TURN: RangeInclusive<TimeSpan> = TimeSpan::from_milliseconds(1)..=DURATION_LIMIT;
/// Shapes of the Pareto distribution: it has a mean only if its shape is above 1.
const SHAPE: RangeInclusive<f64> = 1.01..=100.0;
const SHAPE_DEFAULT: f64 = 1.5;

/// The traffic, with names of nodes resolved.
pub fn resolve(
    check: &Check<'_>,
    tables: &[TrafficTable],
    names: &NodeNames,
) -> Result<Vec<Traffic>, Located> {
    if let Some(first_too_many) = tables.get(FLOW_LIMIT) {
        let message = format!("too much traffic: a path has at most {FLOW_LIMIT} of it");
        return Err(check.error(&first_too_many.name, message));
    }
    let mut taken = BTreeSet::new();
    let mut traffic = Vec::with_capacity(tables.len());
    for table in tables {
        let name = check.title(&table.name)?;
        if !taken.insert(name) {
            return Err(check.taken(&table.name, "traffic"));
        }
        let from = names.find(check, &table.from)?;
        let to = names.find(check, &table.to)?;
        if from == to {
            return Err(check.error(&table.to, "traffic goes from one node to another"));
        }
        traffic.push(Traffic {
            name: name.to_owned(),
            from,
            to,
            rate: check.rate(&table.rate)?,
            packet_size: match &table.packet_size {
                Some(given) => check.within("a packet", given, PACKET)?,
                None => PACKET_DEFAULT,
            },
            sources: match &table.sources {
                Some(given) => check.within("`sources`", given, SOURCES)?,
                None => 1,
            },
            on_off: on_off(check, table)?,
            start: match &table.start {
                Some(given) => check.point("a start", given)?,
                None => TimeSpan::ZERO,
            },
            duration: match &table.duration {
                Some(given) => Some(check.within("`duration`", given, TURN)?),
                None => None,
            },
        });
    }
    Ok(traffic)
}

fn on_off(check: &Check<'_>, table: &TrafficTable) -> Result<Option<OnOff>, Located> {
    match (&table.on, &table.off, &table.shape) {
        (None, None, None) => Ok(None),
        (None, None, Some(given)) => Err(check
            .error(given, "a `shape` belongs to times on and off")
            .with_help("give it `on` and `off`")),
        (Some(given), None, _) | (None, Some(given), _) => {
            Err(check.error(given, "`on` and `off` come together"))
        }
        (Some(on), Some(off), shape) => Ok(Some(OnOff {
            on: check.within("`on`", on, TURN)?,
            off: check.within("`off`", off, TURN)?,
            shape: match shape {
                Some(given) => check.within("`shape`", given, SHAPE)?,
                None => SHAPE_DEFAULT,
            },
        })),
    }
}
