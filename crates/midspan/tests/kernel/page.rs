//! Reads a page of the documentation: its files, its commands and their expected output.

/// A fenced block for the test.
#[derive(Debug)]
pub enum Step {
    /// A file to write: `file=PATH`.
    File { path: String, text: String },
    /// Commands to run: `sh gateway` or `sh client`.
    Commands { place: String, lines: Vec<String> },
    /// The output of the commands before: `text output`; `…` stands for any text.
    Output(Vec<String>),
}

/// The steps of a page.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let text: Vec<String> = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .map(str::to_owned)
            .collect();
        let words: Vec<&str> = info.split_whitespace().collect();
        match words[..] {
            ["sh", place] => steps.push(Step::Commands {
                place: place.to_owned(),
                lines: text,
            }),
            ["text", "output"] => steps.push(Step::Output(text)),
            [_, file] => {
                let path = file.strip_prefix("file=");
                let path = path.unwrap_or_else(|| panic!("a block nobody runs: {info}"));
                steps.push(Step::File {
                    path: path.to_owned(),
                    text: text.join("\n") + "\n",
                });
            }
            _ => {}
        }
    }
    steps
}

/// Whether the printed lines match the lines of the guide. If the guide has a line `…`, it stands
/// for any lines, and the other lines must be in the guide's order. Otherwise each line of the
/// guide stands for one printed line, in any order.
pub fn is_shown(printed: &str, shown: &[String]) -> bool {
    let mut printed: Vec<&str> = printed.lines().collect();
    let has_gaps = shown.iter().any(|line| line.trim() == "…");
    for line in shown.iter().filter(|line| line.trim() != "…") {
        let Some(place) = printed.iter().position(|printed| is_line(printed, line)) else {
            return false;
        };
        if has_gaps {
            printed.drain(..=place);
        } else {
            printed.remove(place);
        }
    }
    has_gaps || printed.is_empty()
}

/// Whether a printed line matches a line of the guide. `…` stands for any text, and a space for any
/// number of spaces.
fn is_line(printed: &str, shown: &str) -> bool {
    let one_spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (printed, shown) = (one_spaced(printed), one_spaced(shown));
    let mut parts = shown.split('…').map(str::trim);
    let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let Some(place) = rest.find(part) else {
            return false;
        };
        rest = &rest[place + part.len()..];
        is_open = part.is_empty();
    }
    is_open || rest.is_empty()
}

/// A test of the matching itself.
pub fn check_matching() {
    let shown = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| (*line).to_owned())
            .collect::<Vec<_>>()
    };
    assert!(is_shown("a b\nc\n", &shown(&["c", "a  …"])));
    assert!(!is_shown("a b\nc\nd\n", &shown(&["c", "a …"])));
    assert!(is_shown("x\na b\ny\nc\n", &shown(&["…", "a …", "…", "c"])));
    assert!(!is_shown("x\nc\na b\n", &shown(&["…", "a …", "c"])));
    assert!(is_line(
        "0 0 10.0.0.1:80 10.0.0.2:99",
        "0 … 10.0.0.1:80 10.0.0.2:… …"
    ));
    assert!(!is_line("0 0 10.0.0.1:80 10.0.0.2:99", "0 … 10.0.0.2:80 …"));
    assert!(!is_line("ab", "a"));
}
