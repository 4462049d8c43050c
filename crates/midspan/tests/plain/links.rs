//! Links between the Markdown files of the repository lead to a file, and to a heading in it.
//! `docs/SUMMARY.md`, the contents of the site, lists every page of `docs`.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Folders whose Markdown files belong to others, or are made by programs.
const LEFT_OUT: [&str; 3] = ["target", ".git", "corpus"];

/// What the links of a document can lead to, and where its own links lead.
#[derive(Debug, Default)]
struct Document {
    anchors: BTreeSet<String>,
    /// Each link with its line, from 1.
    links: Vec<(usize, String)>,
}

fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut heading: Option<String> = None;
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let numbered = (1..).map(|number| format!("{anchor}-{number}"));
                let free = std::iter::once(anchor.clone())
                    .chain(numbered)
                    .find(|name| !document.anchors.contains(name));
                document.anchors.extend(free);
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = text[..range.start].matches('\n').count() + 1;
                document.links.push((line, dest_url.into_string()));
            }
            _ => {}
        }
    }
    document
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ => character.is_alphanumeric().then_some(character),
        })
        .collect()
}

/// All Markdown files below `root`.
fn markdown_files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = entry.file_name();
            if kind.is_dir() && !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|it| it == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

/// The faults of all links in these documents, one line for each.
fn faults(documents: &BTreeMap<PathBuf, Document>) -> String {
    let mut faults = String::new();
    for (file, document) in documents {
        for (line, link) in &document.links {
            let is_outside = link
                .split_once(':')
                .is_some_and(|(scheme, _)| scheme.chars().all(|it| it.is_ascii_lowercase()));
            if is_outside {
                continue;
            }
            let (path, anchor) = match link.split_once('#') {
                Some((path, anchor)) => (path, Some(anchor)),
                None => (link.as_str(), None),
            };
            let target = match path {
                "" => file.clone(),
                path => plain(&file.parent().unwrap().join(path)),
            };
            let fault = match (documents.get(&target), anchor) {
                _ if !target.exists() => "no such file",
                (Some(other), Some(anchor)) if !other.anchors.contains(anchor) => "no such heading",
                (None, Some(_)) => "an anchor in a file that is not Markdown",
                _ => continue,
            };
            faults += &format!("{}:{line}: {link}: {fault}\n", file.display());
        }
    }
    faults
}

fn read_all(root: &Path) -> BTreeMap<PathBuf, Document> {
    markdown_files(root)
        .into_iter()
        .map(|file| {
            let document = read(&std::fs::read_to_string(&file).unwrap());
            (file, document)
        })
        .collect()
}

fn repository() -> PathBuf {
    plain(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let documents = read_all(&repository());
    let links: usize = documents
        .values()
        .map(|document| document.links.len())
        .sum();
    // The repository had more than these when the test was written.
    assert!(documents.len() >= 40, "{}", documents.len());
    assert!(links >= 250, "{links}");
    let faults = faults(&documents);
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn the_summary_lists_every_page() {
    let folder = repository().join("docs");
    let summary = folder.join("SUMMARY.md");
    let text = std::fs::read_to_string(&summary).unwrap();
    let mut listed = BTreeMap::<PathBuf, usize>::new();
    for (_, link) in read(&text).links {
        *listed.entry(plain(&folder.join(link))).or_default() += 1;
    }
    let pages = markdown_files(&folder)
        .into_iter()
        .filter(|page| *page != summary);
    let expected: BTreeMap<PathBuf, usize> = pages.map(|page| (page, 1)).collect();
    assert_eq!(listed, expected);
}

#[test]
fn wrong_links_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "target.md",
        "# A `name`: it's here\n\n## Limits\n\n## Limits\n\n```sh\n# no heading\n```\n",
    );
    write("program.rs", "");
    write(
        "right.md",
        "[a](target.md#a-name-its-here) [b](target.md#limits-1) [c](https://example.org/#x)\n\
         [d](program.rs) [e][f] `[no](link.md)`\n\n[f]: target.md\n",
    );
    assert_eq!(faults(&read_all(folder.path())), "");
    for link in [
        "missing.md",
        "target.md#limit",
        "target.md#no-heading",
        "#here",
        "program.rs#L1",
    ] {
        for text in [
            format!("See [a]({link}).\n"),
            format!("See [a].\n\n[a]: {link}\n"),
        ] {
            write("wrong.md", &text);
            let found = faults(&read_all(folder.path()));
            assert!(found.contains(link), "{link}: {found}");
        }
    }
}
