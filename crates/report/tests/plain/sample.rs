//! Compares the sample report, byte for byte, with the files in `tests/expected`.
//!
//! After an intended change, `UPDATE_EXPECTED=1 cargo test -p midspan-report` writes the files
//! again; check the difference before you commit it.

// The lint's exception for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

#[path = "../../examples/sample/data.rs"]
mod data;

use std::path::Path;

use midspan_report::pivot;

fn assert_as_expected(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/expected")
        .join(name);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    let difference = expected
        .lines()
        .zip(text.lines())
        .enumerate()
        .find(|(_, (expected, found))| expected != found);
    if let Some((number, (expected, found))) = difference {
        let line = number + 1;
        panic!("{name}, line {line}:\n  expected {expected}\n  found    {found}");
    }
    assert_eq!(expected.len(), text.len(), "{name}: one is longer");
}

#[test]
fn table() {
    let table = pivot("Downloads", &data::records().records);
    assert_as_expected("table.txt", &table.to_text(None));
    assert_as_expected("table-80.txt", &table.to_text(Some(80)));
    assert_as_expected("table-60.txt", &table.to_text(Some(60)));
}

#[test]
fn page() {
    assert_as_expected("sample.html", &data::report().to_html().unwrap());
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let html = data::report().to_html().unwrap();
    // A namespace is a name, not an address.
    let html = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    // The files to save are inside the page.
    let html = html.replace("href=\"data:", "");
    for reference in [
        "http:", "https:", "src=", "href", "url(", "@import", "<script", "<link",
    ] {
        assert!(!html.contains(reference), "{reference}");
    }
}
