//! Overrides: what they can change, and where their errors point.

#![allow(clippy::unwrap_used)]

use midspan_document::{Located, Override, Source, Spanned, overrides};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Option<u32>,
    link: Vec<Link>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    name: String,
    loss: Option<Spanned<String>>,
    down: Option<Way>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    rate: Option<String>,
}

const TEXT: &str = "[[link]]\nname = \"a\"\nloss = \"1 %\"\n[[link]]\nname = \"b.c\"\n";

fn with(changes: &[&str]) -> Result<File, Located> {
    let parsed: Vec<Override> = changes
        .iter()
        .map(|text| Override::parse("--set", text))
        .collect::<Result<_, _>>()?;
    overrides::read_with(
        &Source::new("p.toml", TEXT),
        &parsed,
        midspan_document::read,
    )
}

fn error(change: &str) -> String {
    with(&[change]).unwrap_err().to_string()
}

#[test]
fn values_are_replaced_and_added_by_name_and_by_place() {
    let file = with(&["link.a.loss=0.01", "link.1.down.rate = 3 Mbit/s", "seed=7"]).unwrap();
    assert_eq!(file.link[0].loss.as_ref().unwrap().get_ref(), "0.01");
    let down = file.link[1].down.as_ref().unwrap();
    assert_eq!(down.rate.as_deref(), Some("3 Mbit/s"));
    assert_eq!(file.seed, Some(7));
    let file = with(&["link.\"b.c\".loss=\"2 %\""]).unwrap();
    assert_eq!(file.link[1].loss.as_ref().unwrap().get_ref(), "2 %");
    assert_eq!(file.link[1].name, "b.c");
}

#[test]
fn a_name_with_dots_is_found_without_quotes_and_the_longest_one_is_meant() {
    let text = "[[link]]\nname = \"b\"\n[[link]]\nname = \"b.c\"\n[[link]]\nname = \"b.c.d\"\n\
                [[link]]\nname = \"5\\\" disk\"\n";
    let losses = |change: &str| -> Vec<Option<String>> {
        let change = Override::parse("--set", change).unwrap();
        let source = Source::new("p.toml", text);
        let file: File = overrides::read_with(&source, &[change], midspan_document::read).unwrap();
        let loss = |link: Link| link.loss.map(|loss| loss.into_inner());
        file.link.into_iter().map(loss).collect()
    };
    let at = |place: usize| {
        let mut losses = vec![None; 4];
        losses[place] = Some("2 %".to_owned());
        losses
    };
    assert_eq!(losses("link.b.loss=2 %"), at(0));
    assert_eq!(losses("link.b.c.loss=2 %"), at(1));
    assert_eq!(losses("link.b.c.d.loss = 2 %"), at(2));
    assert_eq!(losses("link.\"b.c\".loss=2 %"), at(1));
    // A quote within a name does not begin a quoted part.
    assert_eq!(losses("link.5\" disk.loss=2 %"), at(3));
    let unknown = Override::parse("--set", "link.b.x.loss=2 %").unwrap();
    let source = Source::new("p.toml", text);
    let read = midspan_document::read::<File>;
    let error = unknown.apply(&source, read).unwrap_err().to_string();
    assert!(error.starts_with("--set:1:8: unknown key `x`"), "{error}");
}

#[test]
fn errors_point_into_the_override() {
    assert_eq!(
        error("link.a.lss=1 %"),
        "--set:1:8: unknown key `lss` (did you mean `loss`?)"
    );
    assert_eq!(
        error("seed=much"),
        "--set:1:6: expected a whole number, found string \"much\""
    );
    assert_eq!(
        error("link.x.loss=1 %"),
        "--set:1:6: there is none called \"x\" (known: a, b.c)"
    );
    assert!(
        error("seed").contains("there is no `=`"),
        "{}",
        error("seed")
    );
    assert!(error("a..b=1").contains("a part of the key is empty"));
    assert!(error("a.\"b=1").contains("a quote is not closed"));
    assert!(error("link.a.loss.x=1").contains("no table before it"));
}

#[test]
fn nothing_that_is_typed_makes_it_panic() {
    for text in [
        "",
        "=",
        ".=",
        "\"\"=",
        "é.ü=ö",
        "link.99999999999999999999=1",
        "seed=[[[[",
        "seed={a",
        "seed=1\nx=2",
    ] {
        let _ = with(&[text]);
    }
    let deep = format!("{}a=1", "a.".repeat(1000));
    assert!(error(&deep).contains("at most 16 parts"));
}
