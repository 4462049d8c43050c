//! Paths written as path files.
#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_link::LossPattern;
use midspan_path::{Path, Workload, built_in};
use midspan_units::ByteSize;

/// The example of the documentation, which has every key.
fn example() -> Path {
    let page = include_str!("../../../../docs/path-file.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    Path::read(&Source::new("example.toml", example)).unwrap()
}

#[test]
fn every_path_is_read_back_from_its_text() {
    for path in built_in() {
        let path = path.read().unwrap();
        // `to_text` itself reads the text back.
        assert!(path.to_text().is_some(), "{}", path.name);
    }
    let text = example().to_text().unwrap();
    for key in [
        "ack_queue",
        "schedule",
        "on",
        "contention_interval",
        "acknowledge",
    ] {
        assert!(text.contains(&format!("{key} = ")), "{key}: {text}");
    }
}

#[test]
fn the_text_has_the_documented_keys_and_stays_as_it_is() {
    // Stored results are found by this text. If this test fails, they are void.
    let path = Path::read(&Source::new(
        "small.toml",
        r#"
        [[host]]
        name = "a"
        congestion_control = "cubic"
        [[proxy]]
        name = "b"
        client_leg = { pacing = "auto", send_buffer = "1 MiB" }
        access = { send_ahead = "wso" }
        [[host]]
        name = "c"
        acknowledge = "thin"
        [[link]]
        name = "line"
        between = ["a", "b"]
        rate = "8 Mbit/s"
        up = { loss = "1 %" }
        down = { loss = { bad = "30 %", to_bad = "0.1 %", to_good = "10 %" }, jitter = "5 ms" }
        [[link]]
        name = "wire"
        between = ["b", "c"]
        queue = "64 KiB"
        down = { schedule = { repeat = "2 s", steps = [{ at = "1 s", loss = "100 %" }] } }
        [[flow]]
        name = "one"
        from = "a"
        to = "c"
        workload = "download"
        size = "1 MB"
        "#,
    ))
    .unwrap();
    let expected = r#"seed = 1
[[host]]
name = "a"
congestion_control = "cubic"
[[proxy]]
name = "b"
client_leg = { pacing = "auto", send_buffer = "1 MiB" }
access = { send_ahead = "wso" }
[[host]]
name = "c"
acknowledge = "thin"
[[link]]
name = "line"
between = ["a", "b"]
up = { rate = "8 Mbit/s", loss = "1 %" }
down = { rate = "8 Mbit/s", loss = { bad = "30 %", good = "0 %", to_bad = "0.1 %", to_good = "10 %" }, jitter = "5 ms" }
[[link]]
name = "wire"
between = ["b", "c"]
up = { queue = "64 KiB" }
down = { queue = "64 KiB", schedule = { repeat = "2 s", steps = [{ at = "1 s", loss = "100 %" }] } }
[[flow]]
name = "one"
from = "a"
to = "c"
workload = "download"
size = "1 MB"
"#;
    assert_eq!(path.to_text().unwrap(), expected);
}

#[test]
fn managed_queues_and_reordering_are_written() {
    let text = |keys: &str| {
        let text = format!(
            "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nname = \"line\"\n\
             between = [\"a\", \"b\"]\n{keys}\n"
        );
        let path = Path::read(&Source::new("small.toml", text)).unwrap();
        path.to_text().unwrap()
    };
    let codel = text("down = { aqm = \"codel\" }\nmtu = \"576 B\"");
    let written = r#"aqm = { interval = "100 ms", method = "codel", target = "5 ms" }"#;
    assert!(codel.contains(written), "{codel}");
    let reordered = text("up = { reorder = { share = \"1 %\", later = \"5 ms\" } }");
    let written = r#"reorder = { correlation = "0 %", later = "5 ms", share = "1 %" }"#;
    assert!(reordered.contains(written), "{reordered}");
}

#[test]
fn a_path_that_no_file_can_have_has_no_text() {
    let mut path = example();
    path.links[0].up.losses = LossPattern::Scripted(vec![1]);
    assert_eq!(path.to_text(), None);
    let mut path = example();
    path.nodes[0].name.clear();
    assert_eq!(path.to_text(), None);
}

#[test]
fn a_workload_is_written_with_its_keys() {
    let page = Workload::Page {
        objects: 3,
        size: ByteSize::from_bytes(20_000),
        parallel: 6,
    };
    assert_eq!(
        page.to_text(),
        "workload = \"page\"\nobjects = 3\nsize = \"20 KB\"\nparallel = 6\n"
    );
}
