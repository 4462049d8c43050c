//! Links, and the properties of each direction.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use midspan_document::{Located, Spanned};
use midspan_link::{Configuration, QueueLimit, Schedule, Shift, State, Step};
use midspan_units::{ByteSize, Probability, TimeSpan};

use super::Check;
use super::limits::{DURATION_LIMIT, LINK_LIMIT, SCHEDULE_LIMIT};
use super::nodes::NodeNames;
use super::replay;
use crate::link_table::{
    DirectionKeys, DirectionTable, LinkTable, Losses, Queue, ScheduleTable, StepTable,
};
use crate::{Link, NodeIndex};

/// Largest number of packets in a queue, so that it fits into a machine's memory.
const QUEUE_PACKETS: u32 = 1_000_000;
/// Largest number of bytes in a queue.
const QUEUE_BYTES: ByteSize = ByteSize::from_bytes(1 << 30);
/// Bytes of framing of one packet.
const OVERHEAD: RangeInclusive<ByteSize> = ByteSize::from_bytes(0)..=ByteSize::from_bytes(1000);
/// Size of the largest packet, in bytes (RFC 791: every link carries 68).
const MTU: RangeInclusive<ByteSize> = ByteSize::from_bytes(68)..=ByteSize::from_bytes(65_535);
/// Size of the largest IP packet, in bytes.
const LARGEST: u32 = 65_535;
/// The shortest repetition: a shorter one would cost too much computing time.
const REPEAT: RangeInclusive<TimeSpan> = TimeSpan::from_milliseconds(1)..=DURATION_LIMIT;

/// The links, with names of nodes resolved and both directions complete.
pub fn resolve(
    check: &Check<'_>,
    tables: &[LinkTable],
    nodes: &NodeNames,
) -> Result<Vec<Link>, Located> {
    if let Some(first_too_many) = tables.get(LINK_LIMIT) {
        let message = format!("too many links: a path has at most {LINK_LIMIT}");
        return Err(check.error(&first_too_many.name, message));
    }
    let mut names = BTreeSet::new();
    let mut links = Vec::with_capacity(tables.len());
    for table in tables {
        let name = check.name(&table.name)?;
        if !names.insert(name) {
            return Err(check.taken(&table.name, "link"));
        }
        links.push(link(check, name, table, nodes)?);
    }
    Ok(links)
}

fn link(
    check: &Check<'_>,
    name: &str,
    table: &LinkTable,
    nodes: &NodeNames,
) -> Result<Link, Located> {
    Ok(Link {
        name: name.to_owned(),
        between: ends(check, table, nodes)?,
        up: direction(check, table, &table.up)?,
        down: direction(check, table, &table.down)?,
    })
}

/// The keys of a direction that fit only some others.
fn check_effects(
    check: &Check<'_>,
    configuration: &Configuration,
    keys: &DirectionKeys<'_>,
) -> Result<(), Located> {
    if let (Some(given), QueueLimit::Bytes(_)) = (keys.ack_queue, configuration.queue)
        && !configuration.queue_discipline.is_plain()
    {
        let message = "this queue counts bytes, and one for ACKs counts packets";
        return Err(check
            .error(given, message)
            .with_help("write its `queue` in packets"));
    }
    if let Some(given) = keys.aqm
        && !configuration.queue_discipline.is_plain()
    {
        let message = "a queue is managed actively, or treats ACKs differently from data";
        return Err(check
            .error(given, message)
            .with_help("leave out `aqm` or `ack_queue`"));
    }
    if let Some(given) = keys.reorder
        && let Shift::Earlier(span) = given.get_ref().0.shift
    {
        let delays = configuration
            .schedule
            .steps
            .iter()
            .filter_map(|step| step.delay);
        let shortest = delays.fold(configuration.state.delay, TimeSpan::min);
        if span > shortest {
            let message = format!("a packet cannot arrive {span} earlier after {shortest}");
            return Err(check
                .error(given, message)
                .with_help("`earlier` is at most the shortest `delay` of the link"));
        }
    }
    if let Some(given) = keys.header_compression
        && configuration.header_compression
        && !configuration.is_fixed()
    {
        let message = "headers are compressed behind a plain queue, on a link without a schedule, \
                       a recorded trace or another change of the delay";
        return Err(check.error(given, message));
    }
    Ok(())
}

fn ends(
    check: &Check<'_>,
    table: &LinkTable,
    nodes: &NodeNames,
) -> Result<[NodeIndex; 2], Located> {
    let [first, second] = &table.between.get_ref()[..] else {
        let message = "a link joins two nodes, as in [\"client\", \"gateway\"]";
        return Err(check.error(&table.between, message));
    };
    let ends = [nodes.find(check, first)?, nodes.find(check, second)?];
    if ends[0] == ends[1] {
        return Err(check.error(second, "a link joins two different nodes"));
    }
    Ok(ends)
}

/// One direction: its own keys, otherwise those of the link, otherwise the defaults.
fn direction(
    check: &Check<'_>,
    shared: &LinkTable,
    own: &DirectionTable,
) -> Result<Configuration, Located> {
    let keys = shared.keys(own);
    let mut configuration = Configuration {
        state: State {
            rate: keys.rate.map(|given| check.rate(given)).transpose()?,
            delay: keys
                .delay
                .map(|given| check.delay(given))
                .transpose()?
                .unwrap_or_default(),
            loss: keys
                .loss
                .map(|given| lasting_loss(check, given))
                .transpose()?
                .unwrap_or_default(),
        },
        queue: keys
            .queue
            .map(|given| queue_limit(check, given))
            .transpose()?
            .unwrap_or_default(),
        overhead: keys
            .overhead
            .map(|given| framing(check, given))
            .transpose()?
            .unwrap_or_default(),
        schedule: keys
            .schedule
            .map(|given| changes(check, given))
            .transpose()?
            .unwrap_or_default(),
        mtu: shared
            .mtu
            .as_ref()
            .map(|given| mtu(check, given))
            .transpose()?,
        drops_fragments: shared.drop_fragments,
        ..keys.effects()
    };
    if let (Some(management), Some(mtu)) = (&mut configuration.queue_management, configuration.mtu)
    {
        management.largest_packet = mtu;
    }
    replay::apply(check, &keys, &mut configuration)?;
    check_effects(check, &configuration, &keys)?;
    Ok(configuration)
}

fn mtu(check: &Check<'_>, given: &Spanned<ByteSize>) -> Result<u32, Located> {
    let bytes = check.within("an MTU", given, MTU)?.bytes();
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// A loss of 100 % is an outage, and an outage ends.
fn lasting_loss(check: &Check<'_>, given: &Spanned<Losses>) -> Result<Probability, Located> {
    let Losses { start, pattern } = given.get_ref();
    if pattern.mean(*start, LARGEST) == Probability::ONE {
        return Err(check
            .error(given, "nothing passes a link that loses 100 %")
            .with_help("for an outage, write a step with `loss = \"100 %\"` in its `schedule`"));
    }
    Ok(*start)
}

fn queue_limit(check: &Check<'_>, given: &Spanned<Queue>) -> Result<QueueLimit, Located> {
    let Queue(limit) = *given.get_ref();
    match limit {
        QueueLimit::Packets(packets) => {
            let packets = Spanned::new(given.span(), packets);
            check.within("a queue in packets", &packets, 0..=QUEUE_PACKETS)?;
        }
        QueueLimit::Bytes(bytes) => {
            let bytes = Spanned::new(given.span(), bytes);
            check.within("a queue", &bytes, ByteSize::default()..=QUEUE_BYTES)?;
        }
    }
    Ok(limit)
}

fn framing(check: &Check<'_>, given: &Spanned<ByteSize>) -> Result<u32, Located> {
    let bytes = check
        .within("the overhead of a packet", given, OVERHEAD)?
        .bytes();
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

fn changes(check: &Check<'_>, given: &Spanned<ScheduleTable>) -> Result<Schedule, Located> {
    let table = given.get_ref();
    if let Some(first_too_many) = table.steps.get(SCHEDULE_LIMIT) {
        let message = format!("too many steps: a schedule has at most {SCHEDULE_LIMIT}");
        return Err(check.error(first_too_many, message));
    }
    let mut steps: Vec<Step> = Vec::with_capacity(table.steps.len());
    for given in &table.steps {
        let step = change(check, given)?;
        if let Some(before) = steps.last().filter(|before| before.at >= step.at) {
            let message = format!("a step is later than the one before it, at {}", before.at);
            return Err(check.error(&given.get_ref().at, message));
        }
        steps.push(step);
    }
    let Some(last) = steps.last() else {
        return Err(check.error(given, "a schedule has at least one step"));
    };
    let repeat = table
        .repeat
        .as_ref()
        .map(|repeat| {
            let span = check.within("a repetition", repeat, REPEAT)?;
            if span > last.at {
                return Ok(span);
            }
            let message = format!("a repetition is longer than its last step, at {}", last.at);
            Err(check.error(repeat, message))
        })
        .transpose()?;
    Ok(Schedule { steps, repeat })
}

fn change(check: &Check<'_>, given: &Spanned<StepTable>) -> Result<Step, Located> {
    let table = given.get_ref();
    let step = Step {
        at: check.point("a step", &table.at)?,
        rate: table
            .rate
            .as_ref()
            .map(|given| check.rate(given))
            .transpose()?,
        delay: table
            .delay
            .as_ref()
            .map(|given| check.delay(given))
            .transpose()?,
        loss: table.loss.as_ref().map(|given| *given.get_ref()),
    };
    if step.rate.is_none() && step.delay.is_none() && step.loss.is_none() {
        let message = "a step changes something: give it a `rate`, a `delay` or a `loss`";
        return Err(check.error(given, message));
    }
    Ok(step)
}
