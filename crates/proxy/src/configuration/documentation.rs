//! Tests that `docs/configuration.md` contains every key and no other, and the example most of them.

use std::collections::BTreeSet;

use midspan_policy::LegSettings;
use midspan_service::logging::LogSettings;
use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

use super::admin::AdminTable;
use super::control::ControlTable;
use super::file::{File, ListenerTable, MarksTable, RelayTable};
use super::limits::LimitsTable;
use super::members::NodeTable;
use super::overlay::{OverlayTable, RouteTable};
use super::profile::ProfileTable;
use super::transparent::InterceptionTable;

/// A deserializer that reads nothing and records the fields of a struct.
struct Recorder<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("recorded"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn keys<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
    let mut fields: &'static [&'static str] = &[];
    let result = T::deserialize(Recorder(&mut fields));
    assert!(result.is_err() && !fields.is_empty());
    fields.iter().copied().collect()
}

const DOCUMENTATION: &str = include_str!("../../../../docs/configuration.md");
const EXAMPLE: &str = include_str!("../../../../deploy/midspan.toml");

/// The keys in the first column of the table under `heading`, with their other columns.
fn documented(heading: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let (_, section) = DOCUMENTATION
        .split_once(&format!("\n## {heading}"))
        .unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap_or(section);
    section
        .lines()
        .filter_map(|line| {
            let (key, rest) = line.strip_prefix("| `")?.split_once("` |")?;
            Some((key, rest.split('|').map(str::trim).collect()))
        })
        .collect()
}

#[test]
fn every_key_is_documented() {
    for (heading, keys) in [
        ("`[relay]`", keys::<RelayTable>()),
        ("`[limits]`", keys::<LimitsTable>()),
        ("`[log]`", keys::<LogSettings>()),
        ("`[marks]`", keys::<MarksTable>()),
        ("`[interception]`", keys::<InterceptionTable>()),
        ("`[control]`", keys::<ControlTable>()),
        ("`[admin]`", keys::<AdminTable>()),
        ("`[profile.NAME]`", keys::<ProfileTable>()),
        ("`[overlay]`", keys::<OverlayTable>()),
        ("`[[overlay.route]]`", keys::<RouteTable>()),
        ("`[[node]]`", keys::<NodeTable>()),
        ("`[[listener]]`", keys::<ListenerTable>()),
        ("A leg", keys::<LegSettings>()),
    ] {
        let rows = documented(heading);
        let names: BTreeSet<&str> = rows.iter().map(|(key, _)| *key).collect();
        assert_eq!(names, keys, "section {heading}");
        for (key, columns) in rows {
            let [meaning, value, default, ""] = columns[..] else {
                panic!("{key} has the columns {columns:?}");
            };
            assert!(
                !meaning.is_empty() && !value.is_empty() && !default.is_empty(),
                "{key}"
            );
        }
    }
    for table in keys::<File>() {
        assert!(DOCUMENTATION.contains(&format!("[{table}]")), "{table}");
    }
}

/// The example shows each mode of a listener. Only the reference has all keys of a listener, because
/// most serve special cases.
#[test]
fn every_key_apart_from_those_of_a_listener_is_in_the_example() {
    let is_there = |key: &str| {
        EXAMPLE.lines().any(|line| {
            let line = line.trim_start_matches("# ");
            line.split_once(" = ").is_some_and(|(name, _)| name == key)
                || line
                    .trim_matches(['[', ']'])
                    .split('.')
                    .any(|part| part == key)
        })
    };
    let all = [
        keys::<File>(),
        keys::<RelayTable>(),
        keys::<LimitsTable>(),
        keys::<LogSettings>(),
        keys::<MarksTable>(),
        keys::<InterceptionTable>(),
        keys::<ControlTable>(),
        keys::<AdminTable>(),
        keys::<ProfileTable>(),
        keys::<OverlayTable>(),
        keys::<RouteTable>(),
        keys::<LegSettings>(),
    ];
    for key in all.into_iter().flatten() {
        assert!(is_there(key), "{key}");
    }
}

#[test]
fn the_smallest_file_of_the_documentation_works() {
    let (_, rest) = DOCUMENTATION.split_once("```toml\n").expect("an example");
    let (text, _) = rest.split_once("```").expect("its end");
    let source = midspan_document::Source::new("example", text);
    assert!(super::Configuration::read(&source).is_ok());
}
