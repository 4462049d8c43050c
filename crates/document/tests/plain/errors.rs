//! The messages that a user sees when a file has an error.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use midspan_document::{Located, SIZE_LIMIT, Source, Spanned, load, read};
use miette::{GraphicalReportHandler, GraphicalTheme};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct File {
    title: Option<String>,
    mode: Option<Mode>,
    #[serde(default)]
    link: Vec<Link>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Link {
    name: Spanned<String>,
    delay: Option<u32>,
    up: Option<Direction>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Direction {
    rate: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    InTurn,
    Together,
}

fn error(text: &str) -> Located {
    read::<File>(&Source::new("my.toml", text)).unwrap_err()
}

fn report(error: &Located) -> String {
    let mut shown = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::none())
        .render_report(&mut shown, error)
        .unwrap();
    shown
}

#[track_caller]
fn assert_message(text: &str, expected: &str) {
    assert_eq!(error(text).to_string(), expected, "for {text:?}");
}

#[test]
fn a_good_text_is_read_and_spans_are_kept() {
    let source = Source::new("my.toml", "mode = \"in-turn\"\n[[link]]\nname = \"é\"\n");
    let file: File = read(&source).unwrap();
    assert!(matches!(file.mode, Some(Mode::InTurn)));
    let span = file.link[0].name.span();
    assert_eq!(&source.text()[span.clone()], "\"é\"");
    assert_eq!(source.position(span.start), (3, 8));
    assert_eq!(source.position(usize::MAX), (4, 1));
}

#[test]
fn a_mistyped_name_is_answered_by_the_nearest() {
    assert_message(
        "[[link]]\nname = \"a\"\ndealy = 5\n",
        "my.toml:3:1: unknown key `dealy` (did you mean `delay`?)",
    );
    assert_message(
        "[[link]]\nname = \"a\"\n[link.up]\nrte = 3",
        "my.toml:4:1: unknown key `rte` (did you mean `rate`?)",
    );
    assert_message(
        "mode = \"in-trun\"",
        "my.toml:1:8: unknown value `in-trun` (did you mean `in-turn`?)",
    );
    assert_message(
        "colour = 1",
        "my.toml:1:1: unknown key `colour` (known: title, mode, link)",
    );
}

#[test]
fn a_missing_key_points_at_its_table() {
    assert_message(
        "[[link]]\nname = \"a\"\n\n[[link]]\ndelay = 5\n",
        "my.toml:4:1: missing key `name`",
    );
    assert_message(
        "[[link]]\nname = \"a\"\nup = { }\n",
        "my.toml:3:6: missing key `rate`",
    );
}

#[test]
fn a_wrong_type_is_reported_in_the_words_of_toml() {
    assert_message(
        "[[link]]\nname = 5",
        "my.toml:2:8: expected text in quotes, found integer `5`",
    );
    assert_message(
        "[[link]]\nname = \"a\"\ndelay = -1",
        "my.toml:3:9: expected a whole number, found integer `-1`",
    );
    assert_message(
        "[link]\nname = \"x\"",
        "my.toml:1:1: expected an array, found a table (write `[[link]]`: there may be several)",
    );
    assert_message(
        "[[link]]\nname = \"a\"\n[[link.up]]\nrate = 1",
        "my.toml:3:1: expected a whole number, found a table \
         (write `[link.up]`: there is only one)",
    );
}

#[test]
fn text_that_is_not_toml_is_located() {
    assert_message("title = \"a\"\ntitle = \"b\"", "my.toml:2:1: duplicate key");
    assert_eq!((error("é = 5").line(), error("é = 5").column()), (1, 1));
    assert_eq!(error("title = \"abc").line(), 1);
}

#[test]
fn a_name_from_the_file_cannot_write_to_the_terminal() {
    let message = error("\"a\\u001b[2J`, expected `x\" = 5").to_string();
    assert_eq!(
        message,
        "my.toml:1:1: unknown key `a\\u{1b}[2J`, expected `x` (known: title, mode, link)"
    );
}

#[test]
fn nesting_and_length_are_bounded() {
    for text in [
        "[".repeat(1 << 20),
        "a = ".to_owned() + &"[".repeat(500_000),
        "a = ".to_owned() + &"{a=".repeat(300_000),
        "a.".repeat(500_000) + "b = 3",
        format!("[{}b]", "a.".repeat(500_000)),
    ] {
        assert_eq!(error(&text).line(), 1);
    }
    assert_message(
        &" ".repeat(SIZE_LIMIT + 1),
        "my.toml:1:1: the text is larger than 1 MiB",
    );
}

#[test]
fn the_report_shows_the_line_and_a_caret() {
    let shown = report(&error("# links\n[[link]]\nname = \"a\"\ndealy = 5\n"));
    assert!(shown.contains("my.toml:4:1"), "{shown}");
    assert!(shown.contains("4 | dealy = 5"), "{shown}");
    assert!(shown.contains("`-- did you mean `delay`?"), "{shown}");
    // At the end of the text there is no character for the caret.
    let shown = report(&error("title = \"abc"));
    assert!(shown.contains('^'), "{shown}");
}

#[test]
fn a_file_that_is_no_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    let message = |path: &Path| load::<File>(path).unwrap_err().to_string();
    assert!(message(&path).starts_with(&format!("cannot read {}: No such file", path.display())));
    assert!(message(folder.path()).contains("directory"));

    std::fs::write(&path, b"title = \"a\"\nmode = \xff").unwrap();
    assert!(message(&path).ends_with("x.toml:2: not UTF-8 text: is it the right file?"));

    std::fs::write(&path, vec![b' '; SIZE_LIMIT + 1]).unwrap();
    assert!(message(&path).ends_with("is larger than 1 MiB: is it the right file?"));

    std::fs::write(&path, b"title = \"a\"").unwrap();
    assert_eq!(load::<File>(&path).unwrap().title.as_deref(), Some("a"));
}

#[test]
fn a_file_names_others_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, "title = \"a\"").unwrap();
    std::fs::write(folder.path().join("other"), "12345678").unwrap();
    let source = Source::load(&path).unwrap();
    let load = |file: &str, limit| source.load_other(file, limit);
    assert_eq!(load("other", 8).unwrap().text(), "12345678");
    // A changed text is from the same file.
    let changed = source.with_text("title = \"b\"");
    assert_eq!(
        (changed.name(), changed.text()),
        (source.name(), "title = \"b\"")
    );
    assert_eq!(changed.load_other("other", 8).unwrap().text(), "12345678");
    let absolute = folder.path().join("other").display().to_string();
    assert_eq!(load(&absolute, 8).unwrap().name(), absolute);

    let error = |file: &str, limit| load(file, limit).unwrap_err().to_string();
    assert!(error("other", 7).contains("is larger than 0 MiB"));
    assert!(error("none", 8).starts_with("cannot read "));
    assert!(error(".", 8).ends_with("is no regular file: is it the right file?"));
    assert!(error("/dev/zero", 8).starts_with("/dev/zero is no regular file"));
    assert_eq!(
        Source::new("built-in", "")
            .load_other("other", 8)
            .unwrap_err()
            .to_string(),
        "cannot read other: only a text that was read from a file can name one, and built-in was not"
    );
}

/// Words of the format: random combinations of them cover more cases than random characters.
const WORDS: [&str; 26] = [
    "[[link]]",
    "[link.up]",
    "name",
    "up",
    "delay",
    "mode",
    "title",
    "=",
    ".",
    "\"a\"",
    "\"",
    "'",
    "'''",
    "5",
    "-",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\n",
    " ",
    "#",
    "é",
    "\\",
    "\r",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_a_place(
        text in prop_oneof![
            any::<String>(),
            proptest::collection::vec(proptest::sample::select(&WORDS[..]), 0..40)
                .prop_map(|words| words.concat()),
        ],
    ) {
        let source = Source::new("any.toml", text.as_str());
        if let Err(error) = read::<File>(&source) {
            prop_assert!(error.line() >= 1 && error.column() >= 1);
            prop_assert_eq!((error.line(), error.column()), source.position(error.span().start));
            prop_assert!(!report(&error).is_empty());
        }
    }

    #[test]
    fn any_span_can_be_shown(text: String, start in 0..50_usize, length in 0..50_usize) {
        let source = Source::new("any.toml", text);
        let error = Located::new(&source, start..start + length, "wrong").with_help("do right");
        prop_assert!(error.to_string().ends_with(": wrong (do right)"));
        prop_assert!(!report(&error).is_empty());
    }
}
