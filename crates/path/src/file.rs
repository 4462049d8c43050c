//! The file as written: tables and keys.
//!
//! Every value that is checked after reading keeps its place. Each key is described in
//! `docs/path-file.md`; a test compares the two.

use std::fmt;

use midspan_document::Spanned;
use midspan_link::{Configuration, LossPattern, QueueLimit};
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{AccessLink, LegSettings, PolicyName};
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::acknowledge::{AckQueueing, Acknowledge};
use crate::{Family, Order, Window};

/// A value that may be left out, with its place.
pub type Given<T> = Option<Spanned<T>>;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub description: Given<String>,
    pub seed: Option<u64>,
    #[serde(default)]
    pub family: Family,
    #[serde(default)]
    pub host: Vec<HostTable>,
    #[serde(default)]
    pub router: Vec<RouterTable>,
    #[serde(default)]
    pub proxy: Vec<ProxyTable>,
    #[serde(default)]
    pub link: Vec<LinkTable>,
    #[serde(default)]
    pub flow: Vec<FlowTable>,
    #[serde(default)]
    pub traffic: Vec<TrafficTable>,
    #[serde(default)]
    pub cable: Vec<CableTable>,
    #[serde(default)]
    pub run: RunTable,
}

/// `[[host]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTable {
    pub name: Spanned<String>,
    pub congestion_control: Given<String>,
    pub initial_window: Given<u32>,
    pub receive_buffer: Given<ByteSize>,
    pub send_buffer: Given<ByteSize>,
    pub sack: Given<bool>,
    pub window: Given<Window>,
    pub acknowledge: Given<Acknowledge>,
}

/// `[[router]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterTable {
    pub name: Spanned<String>,
}

/// `[[proxy]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTable {
    pub name: Spanned<String>,
    #[serde(default)]
    pub policy: PolicyName,
    pub client_leg: Given<LegSettings>,
    pub server_leg: Given<LegSettings>,
    pub access: Given<AccessLink>,
    #[serde(default)]
    pub oversized_start: OversizedStart,
}

/// Defines `[[link]]`, and `up` and `down` of a link, which have the keys of a direction in common:
/// serde's `flatten` would lose the place of errors.
macro_rules! link_tables {
    ($($key:ident: $value:ty,)*) => {
        /// `[[link]]`
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct LinkTable {
            pub name: Spanned<String>,
            /// Two names; other numbers are refused later, with a better message than serde's.
            pub between: Spanned<Vec<Spanned<String>>>,
            $(pub $key: Given<$value>,)*
            pub mtu: Given<ByteSize>,
            #[serde(default)]
            pub drop_fragments: bool,
            #[serde(default)]
            pub up: DirectionTable,
            #[serde(default)]
            pub down: DirectionTable,
        }

        /// `up` and `down` of a link.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct DirectionTable {
            $(pub $key: Given<$value>,)*
        }

        /// The keys that apply to one direction.
        pub struct DirectionKeys<'a> {
            $(pub $key: Option<&'a Spanned<$value>>,)*
        }

        impl LinkTable {
            /// The direction's own keys, otherwise those of the link.
            pub fn keys<'a>(&'a self, own: &'a DirectionTable) -> DirectionKeys<'a> {
                DirectionKeys {
                    $($key: own.$key.as_ref().or(self.$key.as_ref()),)*
                }
            }
        }
    };
}

link_tables! {
    rate: BitRate,
    delay: TimeSpan,
    loss: Losses,
    queue: Queue,
    overhead: ByteSize,
    schedule: ScheduleTable,
    ack_queue: AckQueueing,
    header_compression: bool,
    jitter: Jitter,
}

impl DirectionKeys<'_> {
    /// The effects whose keys are checked when they are read; all others are left out.
    pub fn effects(&self) -> Configuration {
        Configuration {
            losses: given(self.loss).pattern,
            queue_discipline: given(self.ack_queue).discipline(),
            header_compression: given(self.header_compression),
            jitter: given(self.jitter).0,
            ..Configuration::default()
        }
    }
}

/// The keys of [`DirectionKeys::effects`] with their values; without those that have no effect.
pub fn effect_keys(configuration: &Configuration) -> Vec<(&'static str, toml::Value)> {
    let Configuration {
        state,
        losses,
        queue_discipline,
        header_compression,
        jitter,
        queue: _,
        overhead: _,
        schedule: _,
        mtu: _,
        drops_fragments: _,
    } = configuration;
    let text = |value: &dyn fmt::Display| toml::Value::String(value.to_string());
    let loss = match losses {
        LossPattern::GilbertElliott {
            to_bad,
            to_good,
            good,
            bad,
        } => Some(toml::Value::Table(toml::Table::from_iter([
            ("bad".to_owned(), text(bad)),
            ("good".to_owned(), text(good)),
            ("to_bad".to_owned(), text(to_bad)),
            ("to_good".to_owned(), text(to_good)),
        ]))),
        // No path file has the other patterns.
        _ => (state.loss != Probability::ZERO).then(|| text(&state.loss)),
    };
    let queueing = [
        (AckQueueing::Filtered, "filtered"),
        (AckQueueing::First, "first"),
        (AckQueueing::Marked, "marked"),
    ];
    let queueing = queueing
        .iter()
        .find(|(queueing, _)| queueing.discipline() == *queue_discipline);
    [
        ("loss", loss),
        ("ack_queue", queueing.map(|(_, name)| text(name))),
        (
            "header_compression",
            header_compression.then_some(toml::Value::Boolean(true)),
        ),
        ("jitter", (*jitter > TimeSpan::ZERO).then(|| text(jitter))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}

/// The value of a key, or its default.
fn given<T: Clone + Default>(key: Option<&Spanned<T>>) -> T {
    key.map(|key| key.get_ref().clone()).unwrap_or_default()
}

/// `schedule` of a direction.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleTable {
    pub repeat: Given<TimeSpan>,
    pub steps: Vec<Spanned<StepTable>>,
}

/// One of the `steps` of a schedule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTable {
    pub at: Spanned<TimeSpan>,
    pub rate: Given<BitRate>,
    pub delay: Given<TimeSpan>,
    pub loss: Given<Probability>,
}

/// `[[flow]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowTable {
    pub name: Spanned<String>,
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub workload: Spanned<WorkloadName>,
    pub size: Given<ByteSize>,
    pub duration: Given<TimeSpan>,
    pub count: Given<u32>,
    pub objects: Given<u32>,
    pub parallel: Given<u32>,
    pub start: Given<TimeSpan>,
}

/// `[[traffic]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficTable {
    pub name: Spanned<String>,
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub rate: Spanned<BitRate>,
    pub packet_size: Given<ByteSize>,
    pub sources: Given<u32>,
    pub on: Given<TimeSpan>,
    pub off: Given<TimeSpan>,
    pub shape: Given<f64>,
    pub start: Given<TimeSpan>,
    pub duration: Given<TimeSpan>,
}

/// `[[cable]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CableTable {
    pub name: Spanned<String>,
    pub links: Spanned<Vec<Spanned<String>>>,
    pub rate: Spanned<BitRate>,
    pub poll: Given<TimeSpan>,
    pub slot: Given<TimeSpan>,
    pub contention_interval: Given<TimeSpan>,
    pub confirmation: Given<TimeSpan>,
    pub polled_for: Given<TimeSpan>,
    pub rounds: Given<u32>,
}

/// The values of `workload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadName {
    Download,
    Upload,
    BulkDownload,
    BulkUpload,
    RequestResponse,
    Page,
}

/// `[run]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunTable {
    #[serde(default)]
    pub flows: Order,
}

/// How packets are lost: with one probability, or as in [`TwoStatesTable`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Losses {
    /// The probability at the start, which a schedule may change.
    pub start: Probability,
    pub pattern: LossPattern,
}

impl<'de> Deserialize<'de> for Losses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrTwo;
        impl<'de> Visitor<'de> for OneOrTwo {
            type Value = Losses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a probability in quotes, such as \"0.1 %\", or two states, such as \
                     { bad = \"30 %\", to_bad = \"0.1 %\", to_good = \"10 %\" }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Losses, E> {
                Ok(Losses {
                    start: text.parse().map_err(E::custom)?,
                    pattern: LossPattern::Independent,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Losses, A::Error> {
                let table = TwoStatesTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Losses {
                    start: Probability::ZERO,
                    pattern: LossPattern::GilbertElliott {
                        to_bad: table.to_bad,
                        to_good: table.to_good,
                        good: table.good,
                        bad: table.bad,
                    },
                })
            }
        }
        deserializer.deserialize_any(OneOrTwo)
    }
}

/// `loss` of a direction as a table: two states (Gilbert, Elliott).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoStatesTable {
    #[serde(default)]
    pub good: Probability,
    pub bad: Probability,
    pub to_bad: Probability,
    pub to_good: Probability,
}

/// The largest additional delay of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter(pub TimeSpan);

/// The longest jitter; that of a real link is far below.
const JITTER_LIMIT: TimeSpan = TimeSpan::from_seconds(10);

impl<'de> Deserialize<'de> for Jitter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let most = TimeSpan::deserialize(deserializer)?;
        if most > JITTER_LIMIT {
            return Err(de::Error::custom(format_args!(
                "{most} is too large for a jitter: at most {JITTER_LIMIT}"
            )));
        }
        Ok(Self(most))
    }
}

/// A queue limit as text: "1000 packets" or "64 KiB".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue(pub QueueLimit);

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let packets = ["packets", "packet"]
            .iter()
            .find_map(|unit| text.trim().strip_suffix(unit))
            .map(|number| number.trim().parse().map(QueueLimit::Packets));
        let limit = match packets {
            Some(Ok(packets)) => Some(packets),
            Some(Err(_)) => None,
            None => text.parse().ok().map(QueueLimit::Bytes),
        };
        limit.map(Self).ok_or_else(|| {
            de::Error::custom(format_args!(
                "\"{text}\" is not a queue: write packets, as in \"1000 packets\", or a size, \
                 as in \"64 KiB\""
            ))
        })
    }
}
