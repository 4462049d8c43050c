//! Answers of etcd's JSON gateway (etcd 3.4 and later).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use midspan_policy::overlay::NodeName;
use serde::Deserialize;
use thiserror::Error;

use crate::configuration::MOST_NODES;

/// Most bytes of one entry.
pub(super) const ENTRY_LIMIT: usize = 16 << 10;

/// What the registry has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The registry's revision, which rises with each change.
    pub revision: u64,
    /// The entries, by the node's name: the keys of a `[[node]]` without `name`.
    pub entries: BTreeMap<NodeName, String>,
    /// What is wrong with other entries.
    pub faults: Vec<String>,
    /// The nodes of the entries that are wrong.
    pub faulty: Vec<NodeName>,
}

/// An answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// It is not JSON as etcd sends it.
    #[error("the answer is not etcd's: {0}")]
    Strange(String),
    /// There are more entries than an overlay has nodes.
    #[error("there are more than {MOST_NODES} entries under {prefix}")]
    TooMany {
        /// The prefix of the keys.
        prefix: String,
    },
}

#[derive(Deserialize)]
struct RangeAnswer {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyAndValue>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct Header {
    /// A number in quotes, as in every JSON form of a 64-bit number of Protocol Buffers.
    revision: String,
}

#[derive(Deserialize)]
struct KeyAndValue {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: String,
}

/// The entries under a prefix, from the answer to a request for its range.
pub(super) fn entries(answer: &[u8], prefix: &str) -> Result<Answer, AnswerError> {
    let strange = |error: &dyn std::fmt::Display| AnswerError::Strange(error.to_string());
    let range: RangeAnswer = serde_json::from_slice(answer).map_err(|error| strange(&error))?;
    let revision = range.header.revision.parse();
    if range.more || range.kvs.len() > MOST_NODES {
        let prefix = prefix.to_owned();
        return Err(AnswerError::TooMany { prefix });
    }
    let mut answer = Answer {
        revision: revision.map_err(|error| strange(&error))?,
        ..Answer::default()
    };
    for entry in range.kvs {
        let key = STANDARD.decode(&entry.key);
        let key = key.map_err(|error| strange(&error))?;
        let key = String::from_utf8_lossy(&key);
        let Some(name) = key.strip_prefix(prefix) else {
            return Err(AnswerError::Strange(format!(
                "the key {} is not under {prefix}",
                key.escape_debug()
            )));
        };
        let name: NodeName = match name.parse() {
            Ok(name) => name,
            Err(error) => {
                let fault = format!("entry {}: {error}", key.escape_debug());
                answer.faults.push(fault);
                continue;
            }
        };
        match text(&entry.value) {
            Ok(text) => {
                answer.entries.insert(name, text);
            }
            Err(error) => {
                answer.faults.push(format!("entry {name}: {error}"));
                answer.faulty.push(name);
            }
        }
    }
    Ok(answer)
}

fn text(value: &str) -> Result<String, String> {
    let bytes = STANDARD.decode(value).map_err(|error| error.to_string())?;
    if bytes.len() > ENTRY_LIMIT {
        return Err(format!("it has more than {} KiB", ENTRY_LIMIT >> 10));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// The token for later requests, from the answer to a name and a password.
pub(super) fn token(answer: &[u8]) -> Result<String, AnswerError> {
    let answer: Result<TokenAnswer, _> = serde_json::from_slice(answer);
    let answer = answer.map_err(|error| AnswerError::Strange(error.to_string()))?;
    Ok(answer.token)
}

/// The text of a request for all keys under a prefix.
pub(super) fn range_request(prefix: &str) -> String {
    let key = STANDARD.encode(prefix);
    let end = STANDARD.encode(end_of(prefix));
    // One more than is permitted, so that too many are noticed.
    let limit = MOST_NODES + 1;
    format!("{{\"key\":\"{key}\",\"range_end\":\"{end}\",\"limit\":{limit}}}")
}

/// The first key after all keys with this prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A byte of UTF-8 is below 0xf8.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PREFIX: &str = "/midspan/nodes/";

    pub fn range(entries: &[(&str, &[u8])]) -> String {
        let entries: Vec<String> = entries
            .iter()
            .map(|(key, value)| {
                format!(
                    "{{\"key\":\"{}\",\"create_revision\":\"3\",\"value\":\"{}\"}}",
                    STANDARD.encode(key),
                    STANDARD.encode(value)
                )
            })
            .collect();
        format!(
            "{{\"header\":{{\"cluster_id\":\"1\",\"revision\":\"17\"}},\"kvs\":[{}],\"count\":\"1\"}}",
            entries.join(",")
        )
    }

    #[test]
    fn entries_have_the_names_of_their_keys() {
        let text = range(&[
            ("/midspan/nodes/fra", b"a = 1"),
            ("/midspan/nodes/sin", b""),
        ]);
        let answer = entries(text.as_bytes(), PREFIX).unwrap();
        let names: Vec<&str> = answer.entries.keys().map(NodeName::as_str).collect();
        assert_eq!((answer.revision, names), (17, vec!["fra", "sin"]));
        assert!(answer.faults.is_empty());
        // Without an entry, etcd leaves out the list.
        let none = entries(b"{\"header\":{\"revision\":\"1\"}}", PREFIX).unwrap();
        assert!(none.entries.is_empty());
    }

    #[test]
    fn a_wrong_entry_leaves_the_others() {
        let long = vec![b'x'; ENTRY_LIMIT + 1];
        let text = range(&[
            ("/midspan/nodes/FRA", b""),
            ("/midspan/nodes/sub/fra", b""),
            ("/midspan/nodes/ams", b"\xff"),
            ("/midspan/nodes/par", &long),
            ("/midspan/nodes/sin", b""),
        ]);
        let answer = entries(text.as_bytes(), PREFIX).unwrap();
        assert_eq!(answer.entries.len(), 1);
        assert_eq!(answer.faults.len(), 4);
        let faulty: Vec<&str> = answer.faulty.iter().map(NodeName::as_str).collect();
        assert_eq!(faulty, ["ams", "par"]);
    }

    #[test]
    fn other_answers_are_refused() {
        let elsewhere = range(&[("/elsewhere/fra", b"")]);
        let many: Vec<String> = (0..=MOST_NODES)
            .map(|it| format!("{PREFIX}n{it}"))
            .collect();
        let many: Vec<(&str, &[u8])> = many.iter().map(|it| (it.as_str(), &b""[..])).collect();
        for text in [
            "",
            "[]",
            "{}",
            "{\"header\":{\"revision\":17}}",
            "{\"header\":{\"revision\":\"-1\"}}",
            "{\"error\":\"etcdserver: request timed out\",\"code\":14}",
            &elsewhere,
            &range(&many),
        ] {
            assert!(entries(text.as_bytes(), PREFIX).is_err(), "{text}");
        }
    }

    #[test]
    fn the_range_ends_after_the_prefix() {
        assert_eq!(end_of("/a/"), b"/a0");
        let request: serde_json::Value = serde_json::from_str(&range_request("/a/")).unwrap();
        assert_eq!(request["key"], "L2Ev");
        assert_eq!(request["range_end"], "L2Ew");
    }

    proptest! {
        #[test]
        fn no_answer_causes_a_panic(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = entries(&answer, PREFIX);
        }

        #[test]
        fn no_entry_causes_a_panic(key in ".{0,20}", value in proptest::collection::vec(any::<u8>(), 0..50)) {
            let text = range(&[(&format!("{PREFIX}{key}"), &value)]);
            let answer = entries(text.as_bytes(), PREFIX).unwrap();
            prop_assert_eq!(answer.entries.len() + answer.faults.len(), 1);
        }
    }
}
