//! For fuzz targets: what others wrote, given to what reads it.
//!
//! In no release: the feature `fuzzing` is for the crate of fuzz targets alone. Each function takes
//! any bytes, and panics where what is read is not what it must be.

use std::fmt::Debug;
use std::sync::Arc;

use midspan_document::Source;
use midspan_policy::Leg;
use midspan_relay::negotiation::resolver;
use midspan_relay::remembered::Remembered;
use midspan_service::pages::{Method, Pages, Reply, StatusCode, answer_to, text};
use midspan_units::{Time, TimeSpan};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::host;
use crate::command::{Answer, Request};
use crate::configuration::{Configuration, prefix};
use crate::control::{FromRelay, ToRelay};
use crate::helper::inheritance_fuzzed;
use crate::{fragmenting, gate};

/// The text of a configuration file.
pub fn configuration(text: &str) {
    let source = Source::new("fuzz.toml", text);
    let configuration = match Configuration::read(&source) {
        Ok(configuration) => configuration,
        Err(error) => {
            assert!(error.span().end <= text.len());
            assert!(!error.to_string().chars().any(char::is_control));
            return;
        }
    };
    assert!(!configuration.listeners.is_empty());
    let _ = configuration.check_addresses(|_| true);
    for (listener, leg, _) in configuration.legs() {
        let error = configuration.leg_error(listener, leg, "initial_window", "wrong");
        assert!(error.span().end <= text.len());
        assert!(matches!(leg, Leg::Client | Leg::Server));
    }
    // What the configuration names stands in rules: it may not end a word there.
    let rules = crate::describe_rules(&configuration).unwrap_or_default();
    for line in rules.lines() {
        assert!(line.matches('"').count().is_multiple_of(2), "{line}");
    }
    let depth = rules.split('"').step_by(2).fold(0, |depth, plain| {
        depth + plain.matches('{').count() - plain.matches('}').count()
    });
    assert_eq!(depth, 0, "{rules}");
}

/// What etcd answers, and what is in the file of members.
pub fn registry(input: &[u8]) {
    crate::registry::fuzzed(input);
}

/// What a client of the control socket sends, and what it is answered.
pub fn control_socket(received: &[u8]) {
    struct Commands;
    impl Pages for Commands {
        async fn page(&self, path: &str, query: &str) -> Reply {
            command(&Method::GET, path, query)
        }

        async fn change(&self, method: &Method, path: &str, query: &str) -> Reply {
            command(method, path, query)
        }
    }
    let answer = answer_to(received, Arc::new(Commands)).unwrap_or_default();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
    read_again::<Answer>(received);
}

fn command(method: &Method, path: &str, query: &str) -> Reply {
    let Some(Ok(request)) = Request::read(method, path, query) else {
        return text(StatusCode::NOT_FOUND, "no command");
    };
    let (method, target) = request.to_http();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let again = Request::read(&method, path, query);
    assert_eq!(again, Some(Ok(request.clone())));
    if let Request::BypassOn { prefix: named } | Request::BypassOff { prefix: named } = request
        && let Some(named) = named.as_deref().and_then(prefix)
    {
        let text = format!("{}/{}", named.addr(), named.prefix_len());
        assert_eq!(prefix(&text), Some(named));
    }
    text(StatusCode::OK, "a command")
}

/// Messages between the helper, the relay and the resolver.
pub fn process_messages(message: &[u8]) {
    read_again::<ToRelay>(message);
    read_again::<FromRelay>(message);
    read_again::<resolver::Question>(message);
    read_again::<resolver::Answer>(message);
    inheritance_fuzzed(message);
}

/// Packets in the gate's queue, and packets for a fragmenter.
pub fn gate_packets(packet: &[u8]) {
    gate::fuzzing::packet(packet);
    if let Some(client) = fragmenting::client(packet) {
        assert!(!client.is_multicast() && !client.is_unspecified());
    }
}

/// The file of what clients were found to take.
pub fn verdicts(file: &[u8]) {
    // A moment of its own, so that the same file is always read alike.
    let now = Time::ZERO + TimeSpan::from_seconds(1_800_000_000);
    let remembered = Remembered::default();
    let recalled = remembered.recall_at(file, now);
    let lines = file.split(|byte| *byte == b'\n').count();
    assert!(recalled.clients + recalled.ignored <= lines);
    let (takes, refuses) = remembered.counts();
    assert!(takes + refuses <= recalled.clients as u64);
}

/// `/proc/net/netstat`.
pub fn counters(text: &str) {
    for name in ["TCPLossProbes", "A"] {
        if host::find(text, name).is_some() {
            assert!(text.contains(name));
        }
    }
}

/// What is read is written and read again as the same.
fn read_again<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else {
        return;
    };
    let written = serde_json::to_vec(&read).unwrap_or_default();
    let again = serde_json::from_slice::<T>(&written).ok();
    assert_eq!(again, Some(read));
}
