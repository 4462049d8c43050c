//! Cable networks, for the simulator.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use midspan_document::{Located, Spanned};
use midspan_link::PolledConfiguration;
use midspan_units::TimeSpan;

use super::Check;
use crate::file::CableTable;
use crate::{Cable, Link, LinkIndex};

/// Times of the channel: above zero, and plausible.
const SPAN: RangeInclusive<TimeSpan> =
    TimeSpan::from_nanoseconds(1_000)..=TimeSpan::from_seconds(10);
const POLLED_FOR: RangeInclusive<TimeSpan> =
    TimeSpan::from_milliseconds(1)..=TimeSpan::from_seconds(3_600);
const ROUNDS: RangeInclusive<u32> = 1..=1000;

/// The cables, with names of links resolved.
pub fn resolve(
    check: &Check<'_>,
    tables: &[CableTable],
    links: &[Link],
) -> Result<Vec<Cable>, Located> {
    let mut names = BTreeSet::new();
    let mut used = BTreeSet::new();
    let mut cables = Vec::with_capacity(tables.len());
    for table in tables {
        let name = check.name(&table.name)?;
        if !names.insert(name) {
            return Err(check.taken(&table.name, "cable"));
        }
        cables.push(Cable {
            name: name.to_owned(),
            links: members(check, table, links, &mut used)?,
            configuration: configuration(check, table)?,
        });
    }
    Ok(cables)
}

fn members(
    check: &Check<'_>,
    table: &CableTable,
    links: &[Link],
    used: &mut BTreeSet<LinkIndex>,
) -> Result<Vec<LinkIndex>, Located> {
    let mut members: Vec<LinkIndex> = Vec::new();
    let mut router = None;
    for given in table.links.get_ref() {
        let name = given.get_ref();
        let Some(index) = links.iter().position(|link| link.name == *name) else {
            return Err(check
                .error(given, format_args!("no link is called `{name}`"))
                .with_nearest(name, links.iter().map(|link| link.name.as_str())));
        };
        let link = &links[index];
        if !used.insert(LinkIndex(index)) {
            return Err(check.error(given, "a link stands in one cable, and once"));
        }
        if link.up.state.rate.is_some() {
            return Err(check
                .error(
                    given,
                    format_args!("`{name}` has a rate upwards: that is the cable's"),
                )
                .with_help("give the link a `rate` in `down` only"));
        }
        if !link.up.suits_a_shared_medium() {
            let message = "a link of a cable neither changes upwards nor compresses headers";
            return Err(check.error(given, message));
        }
        if *router.get_or_insert(link.between[1]) != link.between[1] {
            let message = "the links of a cable lead up to the same node";
            return Err(check.error(given, message));
        }
        members.push(LinkIndex(index));
    }
    if members.is_empty() {
        return Err(check.error(&table.links, "a cable has at least one link"));
    }
    Ok(members)
}

fn configuration(check: &Check<'_>, table: &CableTable) -> Result<PolledConfiguration, Located> {
    let span = |what: &str, given: &Option<Spanned<TimeSpan>>, default: u64| match given {
        Some(given) => check.within(what, given, SPAN),
        None => Ok(TimeSpan::from_milliseconds(default)),
    };
    Ok(PolledConfiguration {
        rate: check.rate(&table.rate)?,
        poll: span("`poll`", &table.poll, 1)?,
        slot: span("`slot`", &table.slot, 2)?,
        contention_interval: span("`contention_interval`", &table.contention_interval, 100)?,
        confirmation: span("`confirmation`", &table.confirmation, 5)?,
        polled_for: match &table.polled_for {
            Some(given) => check.within("`polled_for`", given, POLLED_FOR)?,
            None => TimeSpan::from_seconds(5),
        },
        rounds: match &table.rounds {
            Some(given) => check.within("`rounds`", given, ROUNDS)?,
            None => 10,
        },
    })
}
