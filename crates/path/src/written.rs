//! A path as the text of a path file.

use std::fmt::Write as _;

use midspan_document::Source;
use midspan_link::{Configuration, QueueLimit, Schedule};
use midspan_policy::{AccessLink, LegSettings};
use midspan_units::{ByteSize, Probability, TimeSpan};
use serde::Serialize;
use toml::Value;

use crate::acknowledge::Acknowledge;
use crate::link_table::effect_keys;
use crate::{
    Cable, Family, Flow, HostSettings, Link, LinkIndex, NodeIndex, NodeKind, Order, OverlayRole,
    Path, ProxySettings, Traffic, Window, Workload,
};

/// Keys and values of a table, the values as TOML.
type Keys = Vec<(&'static str, String)>;

impl Path {
    /// The path as the text of a path file, from which [`Path::read`] reads an equal path.
    ///
    /// Equal paths have the same text: keys are in a fixed order, and a key with the default value
    /// is left out. The keys are those of `docs/path-file.md`, so the text does not depend on names
    /// in the program. The name of the path is not part of it. A recorded trace is written as the
    /// name of its file and the SHA-256 of its content.
    ///
    /// `None` for a path that was built in code with something that no path file can have, such as
    /// a loss pattern.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        // A text that is not from a file cannot name the file of a recorded trace.
        let mut plain = self.clone();
        for link in &mut plain.links {
            for direction in [&mut link.up, &mut link.down] {
                *direction = without_recorded(direction);
                direction.trace = None;
            }
        }
        let source = Source::new(format!("{}.toml", self.name), plain.write());
        let mut read = Self::read(&source).ok()?;
        read.name.clone_from(&self.name);
        (read == plain).then(|| self.write())
    }

    fn write(&self) -> String {
        let Self {
            name: _,
            description,
            seed,
            family,
            nodes,
            links,
            flows,
            traffic,
            cables,
            order,
        } = self;
        let mut text = String::new();
        let mut head = Keys::new();
        push(&mut head, "description", description, &String::new());
        head.push(("seed", seed.to_string()));
        if *family == Family::Ipv6 {
            head.push(("family", quoted("ipv6")));
        }
        add(&mut text, "", head);
        for node in nodes {
            let (heading, more) = match &node.kind {
                NodeKind::Host(settings) => ("[[host]]", host(settings)),
                NodeKind::Router => ("[[router]]", Keys::new()),
                NodeKind::Proxy(settings) => ("[[proxy]]", proxy(settings)),
            };
            let mut keys = vec![("name", quoted(&node.name))];
            keys.extend(more);
            add(&mut text, heading, keys);
        }
        for link in links {
            add(&mut text, "[[link]]", self.link_keys(link));
        }
        for cable in cables {
            add(&mut text, "[[cable]]", self.cable_keys(cable));
        }
        for flow in flows {
            add(&mut text, "[[flow]]", self.flow_keys(flow));
        }
        for one in traffic {
            add(&mut text, "[[traffic]]", self.traffic_keys(one));
        }
        if *order == Order::Together {
            add(&mut text, "[run]", vec![("flows", quoted("together"))]);
        }
        text
    }

    /// A node's name; empty for an index that does not exist, which no path file can have.
    fn name_of(&self, node: NodeIndex) -> String {
        let node = self.nodes.get(node.0);
        quoted(node.map_or("", |node| node.name.as_str()))
    }

    fn link_keys(&self, link: &Link) -> Keys {
        let Link {
            name,
            between: [first, second],
            up,
            down,
        } = link;
        let between = format!("[{}, {}]", self.name_of(*first), self.name_of(*second));
        let mut keys = vec![("name", quoted(name)), ("between", between)];
        // Both directions have these from the link.
        if let Some(mtu) = up.mtu {
            keys.push(("mtu", shown(ByteSize::from_bytes(u64::from(mtu)))));
        }
        if up.drops_fragments {
            keys.push(("drop_fragments", "true".to_owned()));
        }
        for (key, configuration) in [("up", up), ("down", down)] {
            let table = direction(configuration);
            if !table.is_empty() {
                keys.push((key, inline(&table)));
            }
        }
        keys
    }

    fn cable_keys(&self, cable: &Cable) -> Keys {
        let Cable {
            name,
            links,
            configuration,
        } = cable;
        let link = |index: &LinkIndex| {
            let link = self.links.get(index.0);
            quoted(link.map_or("", |link| link.name.as_str()))
        };
        let links: Vec<String> = links.iter().map(link).collect();
        vec![
            ("name", quoted(name)),
            ("links", format!("[{}]", links.join(", "))),
            ("rate", shown(configuration.rate)),
            ("poll", shown(configuration.poll)),
            ("slot", shown(configuration.slot)),
            (
                "contention_interval",
                shown(configuration.contention_interval),
            ),
            ("confirmation", shown(configuration.confirmation)),
            ("polled_for", shown(configuration.polled_for)),
            ("rounds", configuration.rounds.to_string()),
        ]
    }

    fn flow_keys(&self, flow: &Flow) -> Keys {
        let Flow {
            name,
            from,
            to,
            workload,
            start,
        } = flow;
        let mut keys = vec![
            ("name", quoted(name)),
            ("from", self.name_of(*from)),
            ("to", self.name_of(*to)),
        ];
        keys.extend(workload.keys());
        push(&mut keys, "start", start, &TimeSpan::ZERO);
        keys
    }

    fn traffic_keys(&self, traffic: &Traffic) -> Keys {
        let Traffic {
            name,
            from,
            to,
            rate,
            packet_size,
            sources,
            on_off,
            start,
            duration,
        } = traffic;
        let mut keys = vec![
            ("name", quoted(name)),
            ("from", self.name_of(*from)),
            ("to", self.name_of(*to)),
            ("rate", shown(rate)),
            ("packet_size", shown(packet_size)),
            ("sources", sources.to_string()),
        ];
        if let Some(on_off) = on_off {
            keys.extend([
                ("on", shown(on_off.on)),
                ("off", shown(on_off.off)),
                ("shape", Value::Float(on_off.shape).to_string()),
            ]);
        }
        push(&mut keys, "start", start, &TimeSpan::ZERO);
        keys.extend(duration.map(|duration| ("duration", shown(duration))));
        keys
    }
}

impl Workload {
    /// The keys of a flow that describe the workload, as lines of a path file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        add(&mut text, "", self.keys());
        text
    }

    fn keys(&self) -> Keys {
        let (name, more) = match self {
            Self::Command { command, size } => {
                let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
                let mut keys = vec![("command", format!("[{}]", words.join(", ")))];
                keys.extend(size.map(|size| ("size", shown(size))));
                ("command", keys)
            }
            Self::Download { size } => ("download", vec![("size", shown(size))]),
            Self::Upload { size } => ("upload", vec![("size", shown(size))]),
            Self::BulkDownload { duration } => {
                ("bulk-download", vec![("duration", shown(duration))])
            }
            Self::BulkUpload { duration } => ("bulk-upload", vec![("duration", shown(duration))]),
            Self::RequestResponse { count, size } => (
                "request-response",
                vec![("count", count.to_string()), ("size", shown(size))],
            ),
            Self::Page {
                objects,
                size,
                parallel,
            } => (
                "page",
                vec![
                    ("objects", objects.to_string()),
                    ("size", shown(size)),
                    ("parallel", parallel.to_string()),
                ],
            ),
        };
        let mut keys = vec![("workload", quoted(name))];
        keys.extend(more);
        keys
    }
}

fn host(settings: &HostSettings) -> Keys {
    let HostSettings {
        congestion_control,
        initial_window,
        receive_buffer,
        send_buffer,
        without_sack,
        window,
        acknowledge,
    } = settings;
    let mut keys = Keys::new();
    keys.extend(
        congestion_control
            .as_ref()
            .map(|name| ("congestion_control", quoted(name))),
    );
    keys.extend(initial_window.map(|window| ("initial_window", window.to_string())));
    keys.extend(receive_buffer.map(|size| ("receive_buffer", shown(size))));
    keys.extend(send_buffer.map(|size| ("send_buffer", shown(size))));
    if *without_sack {
        keys.push(("sack", "false".to_owned()));
    }
    match window {
        Window::Autotuned => {}
        Window::Fixed => keys.push(("window", quoted("fixed"))),
        Window::Linux24 => keys.push(("window", quoted("linux-2.4"))),
    }
    let acknowledge = match acknowledge {
        Acknowledge::Delayed => return keys,
        Acknowledge::Every => "every".to_owned(),
        Acknowledge::FixedDelay(packets) => format!("fda({packets})"),
        Acknowledge::Ace(packets) => format!("ace({packets})"),
        Acknowledge::Thin(None) => "thin".to_owned(),
        Acknowledge::Thin(Some(packets)) => format!("thin({packets})"),
        Acknowledge::ExplicitWindow => "ecwa".to_owned(),
        Acknowledge::WindowPrediction => "window-prediction".to_owned(),
        Acknowledge::CongestionControl => "acc".to_owned(),
    };
    keys.push(("acknowledge", quoted(&acknowledge)));
    keys
}

fn proxy(settings: &ProxySettings) -> Keys {
    let ProxySettings {
        policy,
        client_leg,
        server_leg,
        access,
        oversized_start,
        overlay,
    } = settings;
    let mut keys = Keys::new();
    let none = LegSettings::default();
    push(&mut keys, "policy", policy, &Default::default());
    push(&mut keys, "client_leg", client_leg, &none);
    push(&mut keys, "server_leg", server_leg, &none);
    if let Some(access) = access {
        let table = differences(access, &AccessLink::default());
        keys.push(("access", table.unwrap_or_else(|| "{}".to_owned())));
    }
    push(
        &mut keys,
        "oversized_start",
        oversized_start,
        &Default::default(),
    );
    if let Some(role) = overlay {
        let table = differences(role, &OverlayRole::default());
        keys.push(("overlay", table.unwrap_or_else(|| "{}".to_owned())));
    }
    keys
}

/// A configuration without the values that a recorded table sets.
fn without_recorded(configuration: &Configuration) -> Configuration {
    let mut own = configuration.clone();
    let table = own
        .trace
        .as_ref()
        .filter(|trace| trace.opportunities.is_none());
    if table.is_some() {
        let schedule = std::mem::take(&mut own.schedule);
        let first = schedule.steps.first().copied().unwrap_or_default();
        own.state.rate = own.state.rate.filter(|_| first.rate.is_none());
        if first.delay.is_some() {
            own.state.delay = TimeSpan::ZERO;
        }
        if first.loss.is_some() {
            own.state.loss = Probability::ZERO;
        }
    }
    own
}

/// The keys of `up` or `down`.
fn direction(configuration: &Configuration) -> Keys {
    let configuration = &without_recorded(configuration);
    let mut keys = Keys::new();
    let state = configuration.state;
    keys.extend(state.rate.map(|rate| ("rate", shown(rate))));
    push(&mut keys, "delay", &state.delay, &TimeSpan::ZERO);
    if configuration.queue != QueueLimit::default() {
        let limit = match configuration.queue {
            QueueLimit::Packets(packets) => format!("{packets} packets"),
            QueueLimit::Bytes(size) => size.to_string(),
        };
        keys.push(("queue", quoted(&limit)));
    }
    if configuration.overhead > 0 {
        let overhead = ByteSize::from_bytes(u64::from(configuration.overhead));
        keys.push(("overhead", shown(overhead)));
    }
    if !configuration.schedule.steps.is_empty() {
        let schedule = schedule_keys(&configuration.schedule);
        keys.push(("schedule", inline(&schedule)));
    }
    let effects = effect_keys(configuration).into_iter();
    keys.extend(effects.map(|(key, value)| (key, value.to_string())));
    keys
}

fn schedule_keys(schedule: &Schedule) -> Keys {
    let step = |step: &midspan_link::Step| {
        let mut keys = vec![("at", shown(step.at))];
        keys.extend(step.rate.map(|rate| ("rate", shown(rate))));
        keys.extend(step.delay.map(|delay| ("delay", shown(delay))));
        keys.extend(step.loss.map(|loss| ("loss", shown(loss))));
        inline(&keys)
    };
    let steps: Vec<String> = schedule.steps.iter().map(step).collect();
    let mut keys = Keys::new();
    keys.extend(schedule.repeat.map(|repeat| ("repeat", shown(repeat))));
    keys.push(("steps", format!("[{}]", steps.join(", "))));
    keys
}

/// Adds a table with its heading, which is empty for the keys at the top.
fn add(text: &mut String, heading: &str, keys: Keys) {
    if !heading.is_empty() {
        text.push_str(heading);
        text.push('\n');
    }
    for (key, value) in keys {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    }
}

/// Adds a key unless it has the default value.
fn push<T: Serialize + PartialEq>(keys: &mut Keys, key: &'static str, value: &T, default: &T) {
    if value != default {
        keys.extend(differences(value, default).map(|text| (key, text)));
    }
}

/// A value as TOML; of a table, only the keys that differ from those of `default`, in the order of
/// the alphabet.
fn differences<T: Serialize>(value: &T, default: &T) -> Option<String> {
    let Value::Table(table) = Value::try_from(value).ok()? else {
        return Some(Value::try_from(value).ok()?.to_string());
    };
    let default = Value::try_from(default).ok()?;
    let mut keys: Vec<(&str, String)> = table
        .iter()
        .filter(|(key, value)| default.get(key.as_str()) != Some(value))
        .map(|(key, value)| (key.as_str(), value.to_string()))
        .collect();
    keys.sort_unstable();
    (!keys.is_empty()).then(|| inline(&keys))
}

fn inline(keys: &[(&str, String)]) -> String {
    let keys: Vec<String> = keys
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    format!("{{ {} }}", keys.join(", "))
}

/// A quantity as a text in quotes.
fn shown(value: impl std::fmt::Display) -> String {
    quoted(&value.to_string())
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
