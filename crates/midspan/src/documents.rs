//! Tests that the documents show commands and options that exist, also those of the lab.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;
use pulldown_cmark::{CodeBlockKind, Event, Options, Tag, TagEnd};

use crate::arguments::Arguments;

/// A command line of `midspan` in a document.
#[derive(Debug, PartialEq, Eq)]
struct CommandLine {
    words: Vec<String>,
    /// The line of the document, from 1.
    line: usize,
    /// Whether it is part of a sentence or a table, where names such as `PREFIX` stand for values.
    is_inline: bool,
}

/// README.md, and all documents in `docs`.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The command lines of a document: in code between sentences, and in code blocks without a
/// language or for a shell.
fn command_lines(text: &str) -> Vec<CommandLine> {
    let line_of = |offset: usize| text[..offset].matches('\n').count() + 1;
    let mut found = Vec::new();
    let mut is_shell = false;
    // The code of the current block, and its first line.
    let mut block = (String::new(), 1);
    for (event, range) in
        pulldown_cmark::Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter()
    {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => is_shell = true,
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                let language = language.split_whitespace().next().unwrap_or_default();
                is_shell = matches!(language, "" | "sh");
            }
            Event::Text(code) if is_shell => {
                if block.0.is_empty() {
                    block.1 = line_of(range.start);
                }
                block.0.push_str(&code);
            }
            Event::End(TagEnd::CodeBlock) => {
                is_shell = false;
                let (code, first) = std::mem::take(&mut block);
                found.extend(in_shell(&code).map(|(line, words)| CommandLine {
                    words,
                    line: first + line,
                    is_inline: false,
                }));
            }
            Event::Code(code) => found.extend(in_shell(&code).map(|(_, words)| CommandLine {
                words,
                line: line_of(range.start),
                is_inline: true,
            })),
            _ => {}
        }
    }
    found
}

/// The command lines of `midspan` in shell code, with their line from 0. Variables and substitutions
/// stay as they are.
fn in_shell(code: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in code.lines().enumerate() {
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, last)) if continues => last.push_str(line),
            _ => lines.push((number, line.to_owned())),
        }
        continues = goes_on;
    }
    lines
        .into_iter()
        .flat_map(|(number, line)| commands(&line).into_iter().map(move |it| (number, it)))
}

/// The commands of one line that run `midspan`.
fn commands(line: &str) -> Vec<Vec<String>> {
    // A line that is not complete, such as the first line of a here-document, has no words.
    let words: Vec<String> = shlex::split(line)
        .unwrap_or_default()
        .into_iter()
        .flat_map(|word| match word.strip_suffix(';') {
            Some(word) => vec![word.to_owned(), ";".to_owned()],
            None => vec![word],
        })
        .collect();
    let is_end =
        |word: &String| matches!(word.as_str(), "|" | "||" | "&&" | "&" | ";" | "do" | "then");
    words
        .split(is_end)
        .filter_map(|command| {
            let command: Vec<String> = command
                .iter()
                .skip_while(|word| word.as_str() == "sudo" || is_assignment(word))
                .take_while(|word| !is_redirection(word))
                .cloned()
                .collect();
            let program = Path::new(command.first()?).file_name()?;
            (program == "midspan" && command.len() > 1).then_some(command)
        })
        .collect()
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
    })
}

fn is_redirection(word: &str) -> bool {
    let operator = word.trim_start_matches(|digit: char| digit.is_ascii_digit());
    operator.starts_with('>') || operator.starts_with('<')
}

/// Why the program would refuse this command line.
fn fault(command: &CommandLine) -> Option<String> {
    // A shell sets the variable of a loop, such as `--seed $seed`, to a number.
    let words = command.words.iter().map(|word| match word.as_str() {
        word if word.starts_with('$') => "1",
        word => word,
    });
    let error = Arguments::try_parse_from(words).err()?;
    let is_wrong = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => false,
        // A sentence may name a command without its values, or with a name in place of a value.
        _ if command.is_inline => matches!(
            error.kind(),
            ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand
        ),
        _ => true,
    };
    is_wrong.then(|| error.to_string())
}

#[test]
fn every_command_line_in_the_documents_is_accepted() {
    let mut faults = String::new();
    let (mut blocks, mut sentences) = (0, 0);
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for command in command_lines(&text) {
            match command.is_inline {
                true => sentences += 1,
                false => blocks += 1,
            }
            if let Some(error) = fault(&command) {
                let (file, line) = (document.display(), command.line);
                faults += &format!("{file}:{line}: {}\n{error}\n", command.words.join(" "));
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
    // The documents had more than these when the test was written.
    assert!(blocks >= 30, "{blocks}");
    assert!(sentences >= 80, "{sentences}");
}

#[test]
fn command_lines_are_found_in_blocks_and_in_sentences() {
    let text = r#"
Run `midspan status --json` first.

```sh gateway
RUST_BACKTRACE=1 midspan run -c /etc/midspan/midspan.toml --dry-run >log 2>&1   # a comment
sudo target/release/midspan lab geo --flows "10 MB" \
    --cases direct,midspan | less
for seed in 1 2; do midspan sim geo --seed $seed; done
cat midspan.toml; echo midspan status
```

```toml
midspan status
```

    midspan lab verify
"#;
    let found: Vec<(usize, bool, String)> = command_lines(text)
        .into_iter()
        .map(|command| (command.line, command.is_inline, command.words.join(" ")))
        .collect();
    let expected = [
        (2, true, "midspan status --json"),
        (
            5,
            false,
            "midspan run -c /etc/midspan/midspan.toml --dry-run",
        ),
        (
            6,
            false,
            "target/release/midspan lab geo --flows 10 MB --cases direct,midspan",
        ),
        (8, false, "midspan sim geo --seed $seed"),
        (16, false, "midspan lab verify"),
    ];
    let expected = expected.map(|(line, inline, text)| (line, inline, text.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn a_wrong_command_line_is_refused() {
    for (is_inline, line, is_wrong) in [
        (false, "midspan status --josn", true),
        (false, "midspan stauts", true),
        (false, "midspan capture SESSION", true),
        (true, "midspan capture SESSION", false),
        (true, "midspan capture --josn SESSION", true),
        (true, "midspan stauts", true),
        (false, "midspan --version", false),
    ] {
        let command = CommandLine {
            words: shlex::split(line).unwrap(),
            line: 1,
            is_inline,
        };
        assert_eq!(fault(&command).is_some(), is_wrong, "{line}");
    }
}
