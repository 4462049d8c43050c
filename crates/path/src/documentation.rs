//! Tests that `docs/path-file.md` describes every key, and no key that does not exist.

use std::fmt;

use midspan_document::Source;
use midspan_policy::{AccessLink, LegSettings};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::file::{
    CableTable, File, FlowTable, HostTable, ProxyTable, RouterTable, RunTable, TrafficTable,
};
use crate::link_table::{
    AqmTable, DirectionTable, LinkTable, ReorderTable, ReplayTable, ScheduleTable, StepTable,
    TwoStatesTable,
};
use crate::{Direction, Order, OverlayRole, Path, built_in};

const PAGE: &str = include_str!("../../../docs/path-file.md");

/// A deserializer that only collects the keys of a table.
struct Keys;

#[derive(Debug)]
struct Found(Vec<&'static str>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Found {}

impl de::Error for Found {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self(Vec::new())
    }
}

impl<'de> Deserializer<'de> for Keys {
    type Error = Found;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Found> {
        Err(Found(Vec::new()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Found> {
        Err(Found(fields.to_vec()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn keys<'de, T: Deserialize<'de> + fmt::Debug>() -> Vec<&'static str> {
    let mut keys = T::deserialize(Keys).unwrap_err().0;
    assert!(!keys.is_empty());
    keys.sort_unstable();
    keys
}

/// The text from a heading to the next one.
fn section(heading: &str) -> &'static str {
    let start = format!("\n### {heading}\n");
    let (_, rest) = PAGE
        .split_once(start.as_str())
        .unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n#").next().unwrap_or(rest)
}

/// The first column of a section's first table.
fn documented(heading: &str) -> Vec<&'static str> {
    let mut keys: Vec<&str> = section(heading)
        .lines()
        .skip_while(|line| !line.starts_with("| key"))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .filter_map(|line| line.split('`').nth(1))
        .collect();
    keys.sort_unstable();
    keys
}

#[test]
fn every_key_is_described_in_its_section() {
    assert_eq!(documented("The file"), keys::<File>());
    assert_eq!(documented("`[[host]]`"), keys::<HostTable>());
    assert_eq!(documented("`[[router]]`"), keys::<RouterTable>());
    assert_eq!(documented("`[[proxy]]`"), keys::<ProxyTable>());
    assert_eq!(documented("A leg"), keys::<LegSettings>());
    assert_eq!(documented("An access link"), keys::<AccessLink>());
    assert_eq!(documented("An overlay node"), keys::<OverlayRole>());
    assert_eq!(documented("`[[link]]`"), keys::<LinkTable>());
    assert_eq!(documented("A direction"), keys::<DirectionTable>());
    assert_eq!(documented("Two states of loss"), keys::<TwoStatesTable>());
    assert_eq!(documented("A managed queue"), keys::<AqmTable>());
    assert_eq!(documented("Reordering"), keys::<ReorderTable>());
    assert_eq!(documented("A recorded trace"), keys::<ReplayTable>());
    assert_eq!(documented("A schedule"), keys::<ScheduleTable>());
    assert_eq!(documented("A step"), keys::<StepTable>());
    assert_eq!(documented("`[[flow]]`"), keys::<FlowTable>());
    assert_eq!(documented("`[[traffic]]`"), keys::<TrafficTable>());
    assert_eq!(documented("`[[cable]]`"), keys::<CableTable>());
    assert_eq!(documented("`[run]`"), keys::<RunTable>());
}

#[test]
fn the_example_uses_every_key_and_is_read() {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let path = Path::read(&Source::new("example.toml", example)).unwrap();
    assert_eq!(path.order, Order::Together);
    assert_eq!(path.proxies_of(&path.flows[0]).len(), 2);
    let uplink = &path.links[2];
    // 0.01 % + 0.1 % / 10.1 % · (30 % − 0.01 %)
    let mean = path.links[3].down.mean_loss(1500).as_f64();
    assert!((mean - 0.003_069_307).abs() < 1e-7, "{mean}");
    assert_eq!(uplink.direction(Direction::Down).schedule.steps.len(), 3);
    assert!(uplink.direction(Direction::Up).schedule.steps.is_empty());
    let unused: Vec<&str> = [
        keys::<File>(),
        keys::<HostTable>(),
        keys::<FlowTable>(),
        keys::<DirectionTable>(),
        keys::<LinkTable>(),
        keys::<TrafficTable>(),
        keys::<CableTable>(),
    ]
    .concat()
    .into_iter()
    .filter(|key| !example.contains(key))
    .collect();
    assert_eq!(unused, Vec::<&str>::new());
}

#[test]
fn every_built_in_path_is_listed() {
    for path in built_in() {
        let row = format!("\n| `{}` | {} |\n", path.name, path.description);
        assert!(PAGE.contains(&row), "no row {row}");
    }
}
