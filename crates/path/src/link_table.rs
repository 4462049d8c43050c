//! `[[link]]` of a path file as written, and the effects of a link: the values of their keys are
//! checked when they are read.

use std::fmt;

use midspan_document::Spanned;
use midspan_link::{
    Configuration, LossPattern, Management, QueueLimit, QueueManagement, Reordering, Shift, Trace,
};
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, Visitor};

use crate::Given;
use crate::acknowledge::AckQueueing;

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
    replay: Replay,
    aqm: Aqm,
    reorder: Reorder,
}

impl DirectionKeys<'_> {
    /// The effects whose keys are checked when they are read; all others are left out.
    pub fn effects(&self) -> Configuration {
        Configuration {
            losses: given(self.loss).pattern,
            queue_discipline: given(self.ack_queue).discipline(),
            header_compression: given(self.header_compression),
            jitter: given(self.jitter).0,
            queue_management: self.aqm.map(|given| given.get_ref().0),
            reordering: self.reorder.map(|given| given.get_ref().0),
            ..Configuration::default()
        }
    }
}

/// The value of a key, or its default.
fn given<T: Clone + Default>(key: Option<&Spanned<T>>) -> T {
    key.map(|key| key.get_ref().clone()).unwrap_or_default()
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
        trace,
        queue_management,
        reordering,
    } = configuration;
    let text = |value: &dyn fmt::Display| toml::Value::String(value.to_string());
    let loss = match losses {
        LossPattern::GilbertElliott {
            to_bad,
            to_good,
            good,
            bad,
        } => Some(table(&[
            ("bad", bad),
            ("good", good),
            ("to_bad", to_bad),
            ("to_good", to_good),
        ])),
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
        ("replay", trace.as_ref().map(replay)),
        ("aqm", queue_management.as_ref().map(aqm)),
        ("reorder", reordering.as_ref().map(reorder)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}

/// A table of texts.
fn table(keys: &[(&str, &dyn fmt::Display)]) -> toml::Value {
    let texts = keys
        .iter()
        .map(|(key, value)| ((*key).to_owned(), toml::Value::String(value.to_string())));
    toml::Value::Table(texts.collect())
}

/// The table of a recorded trace: another content of its file is another trace.
fn replay(trace: &Trace) -> toml::Value {
    table(&[("file", &trace.file), ("sha256", &trace.sha256)])
}

/// The table of a managed queue. The largest packet follows from another key.
fn aqm(management: &QueueManagement) -> toml::Value {
    let QueueManagement {
        method,
        target,
        interval,
        largest_packet: _,
    } = management;
    table(&[
        ("method", method),
        ("target", target),
        ("interval", interval),
    ])
}

fn reorder(reordering: &Reordering) -> toml::Value {
    let Reordering {
        share,
        correlation,
        shift,
    } = reordering;
    let (key, span) = match shift {
        Shift::Earlier(span) => ("earlier", span),
        Shift::Later(span) => ("later", span),
    };
    table(&[("share", share), ("correlation", correlation), (key, span)])
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

/// The file of a recorded trace: its name, or a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    pub file: String,
    /// SHA-256 of the file's content; another content is refused.
    pub sha256: Option<String>,
}

impl<'de> Deserialize<'de> for Replay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Replay;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a file in quotes, such as \"drive.csv\"")
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<Replay, E> {
                Ok(Replay {
                    file: file.to_owned(),
                    sha256: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Replay, A::Error> {
                let table = ReplayTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Replay {
                    file: table.file,
                    sha256: table.sha256,
                })
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

/// `replay` of a direction as a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayTable {
    pub file: String,
    pub sha256: Option<String>,
}

/// How the queue is managed actively: a method, or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aqm(pub QueueManagement);

/// The values of `aqm`, and of `method` in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AqmMethod {
    Codel,
    FqCodel,
}

impl AqmMethod {
    const fn management(self) -> QueueManagement {
        QueueManagement::new(match self {
            Self::Codel => Management::CoDel,
            Self::FqCodel => Management::FqCoDel,
        })
    }
}

/// `aqm` of a direction as a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AqmTable {
    pub method: AqmMethod,
    pub target: Option<TimeSpan>,
    pub interval: Option<TimeSpan>,
}

/// The longest target and interval.
const AQM_LIMIT: TimeSpan = TimeSpan::from_seconds(60);

impl AqmTable {
    fn management<E: de::Error>(&self) -> Result<QueueManagement, E> {
        let default = self.method.management();
        let management = QueueManagement {
            target: self.target.unwrap_or(default.target),
            interval: self.interval.unwrap_or(default.interval),
            ..default
        };
        let QueueManagement {
            target, interval, ..
        } = management;
        if target == TimeSpan::ZERO || target > interval || interval > AQM_LIMIT {
            return Err(E::custom(format_args!(
                "a target of {target} and an interval of {interval}: the target is above zero and \
                 at most as long as the interval, which has at most {AQM_LIMIT}"
            )));
        }
        Ok(management)
    }
}

impl<'de> Deserialize<'de> for Aqm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MethodOrTable;
        impl<'de> Visitor<'de> for MethodOrTable {
            type Value = Aqm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a method in quotes, \"codel\" or \"fq_codel\", or a table, such as \
                     { method = \"codel\", target = \"5 ms\", interval = \"100 ms\" }",
                )
            }

            fn visit_str<E: de::Error>(self, method: &str) -> Result<Aqm, E> {
                let text: StrDeserializer<'_, E> = method.into_deserializer();
                Ok(Aqm(AqmMethod::deserialize(text)?.management()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Aqm, A::Error> {
                let table = AqmTable::deserialize(MapAccessDeserializer::new(map))?;
                table.management().map(Aqm)
            }
        }
        deserializer.deserialize_any(MethodOrTable)
    }
}

/// Which packets leave their place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reorder(pub Reordering);

/// `reorder` of a direction.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReorderTable {
    pub share: Probability,
    #[serde(default)]
    pub correlation: Probability,
    pub earlier: Option<TimeSpan>,
    pub later: Option<TimeSpan>,
}

impl<'de> Deserialize<'de> for Reorder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = ReorderTable::deserialize(deserializer)?;
        let shift = match (table.earlier, table.later) {
            (Some(span), None) => Shift::Earlier(span),
            (None, Some(span)) if span <= JITTER_LIMIT => Shift::Later(span),
            (None, Some(span)) => {
                return Err(de::Error::custom(format_args!(
                    "{span} is too late for a packet: at most {JITTER_LIMIT}"
                )));
            }
            _ => {
                let problem = "packets arrive either `earlier` or `later`: write one of both";
                return Err(de::Error::custom(problem));
            }
        };
        Ok(Self(Reordering {
            share: table.share,
            correlation: table.correlation,
            shift,
        }))
    }
}

/// The largest additional delay of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter(pub TimeSpan);

/// The longest additional delay of a packet; that of a real link is far below.
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
