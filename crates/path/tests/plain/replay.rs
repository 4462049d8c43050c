//! Recorded traces that path files name.
#![allow(clippy::unwrap_used)]

use std::fs;

use midspan_document::Override;
use midspan_path::{Direction, Path, mean_rate};
use midspan_units::{Probability, TimeSpan};
use tempfile::TempDir;

const OPPORTUNITIES: &str = "0\n4\n4\n10\n";
const TABLE: &str = "time (s),rate (Mbit/s),delay (ms)\n0,2,30\n1,4,10\n";

/// A folder with a path file, whose link has these keys, and two traces in another folder.
fn folder(link: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("traces")).unwrap();
    fs::write(folder.path().join("traces/drive"), OPPORTUNITIES).unwrap();
    fs::write(folder.path().join("traces/drive.csv"), TABLE).unwrap();
    let text = format!(
        "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nname = \"line\"\n\
         between = [\"a\", \"b\"]\n{link}\n"
    );
    fs::write(folder.path().join("path.toml"), text).unwrap();
    let file = folder.path().join("path.toml").display().to_string();
    (folder, file)
}

fn load(link: &str) -> (TempDir, Path) {
    let (folder, file) = folder(link);
    (folder, Path::load(&file).unwrap())
}

/// The error of a link with these keys, without the name of the folder.
fn error(link: &str, change: impl FnOnce(&TempDir)) -> String {
    let (folder, file) = folder(link);
    change(&folder);
    let error = Path::load(&file).unwrap_err().to_string();
    error.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn each_direction_has_its_trace_next_to_the_path_file() {
    let (_folder, path) = load(
        "up = { replay = \"traces/drive\", delay = \"5 ms\" }\n\
         down = { replay = \"traces/drive.csv\", loss = \"2 %\" }",
    );
    let [up, down] = [Direction::Up, Direction::Down].map(|way| path.links[0].direction(way));
    assert!(up.opportunities().is_some() && up.schedule.steps.is_empty());
    assert_eq!(up.state.delay, TimeSpan::from_milliseconds(5));
    assert_eq!(mean_rate(up).unwrap().bits_per_second(), 4_800_000);
    assert!(down.opportunities().is_none());
    assert_eq!(down.schedule.steps.len(), 2);
    assert_eq!(down.state.rate, Some("2 Mbit/s".parse().unwrap()));
    assert_eq!(down.state.delay, TimeSpan::from_milliseconds(30));
    assert_eq!(down.state.loss, "2 %".parse::<Probability>().unwrap());
    // Each of the two rows lasts one second.
    assert_eq!(mean_rate(down).unwrap().bits_per_second(), 3_000_000);
}

#[test]
fn another_trace_may_stand_in_an_override() {
    let (folder, file) = folder("replay = \"traces/drive\"");
    fs::write(folder.path().join("other"), "7\n").unwrap();
    let with = |text: &str| {
        let change = Override::parse("--set", text).unwrap();
        Path::load_with(&file, &[change]).unwrap()
    };
    let rate = |path: &Path| mean_rate(&path.links[0].up).unwrap().bits_per_second();
    assert_eq!(rate(&with("link.line.replay=other")), 1_714_285);
    assert_eq!(rate(&with("link.line.delay=1 ms")), 4_800_000);
}

#[test]
fn the_text_of_a_path_contains_what_identifies_the_trace() {
    let keys = "loss = \"1 %\"\nreplay = \"traces/drive\"";
    let (folder, path) = load(keys);
    let text = path.to_text().unwrap();
    // printf '0\n4\n4\n10\n' | sha256sum
    let digest = "d456438dc057f0ee85e896ef4caced7141231d6b4c1b2eab3cd53e90de7b0c64";
    let replay = format!("replay = {{ file = \"traces/drive\", sha256 = \"{digest}\" }}");
    assert!(text.contains(&replay), "{text}");
    // The text is a path file.
    fs::write(folder.path().join("again.toml"), &text).unwrap();
    let file = folder.path().join("again.toml").display().to_string();
    let again = Path::load(&file).unwrap();
    assert_eq!(again.links, path.links);
    // Another content of the same file is another path.
    fs::write(folder.path().join("traces/drive"), "5\n").unwrap();
    let error = Path::load(&file).unwrap_err().to_string();
    assert!(
        error.contains("has another content: its SHA-256 is "),
        "{error}"
    );

    let (_folder, path) = load("replay = \"traces/drive.csv\"\nloss = \"1 %\"");
    let text = path.to_text().unwrap();
    assert!(
        !text.contains("schedule") && !text.contains("rate"),
        "{text}"
    );
    assert!(text.contains("loss = \"1 %\""), "{text}");
}

#[test]
fn errors_name_the_file_line_and_column_of_the_trace() {
    let nothing = |_: &TempDir| {};
    let drive = "replay = \"traces/drive\"";
    let write = |text: &'static str| {
        move |folder: &TempDir| fs::write(folder.path().join("traces/drive"), text).unwrap()
    };
    assert_eq!(
        error(drive, write("0\n4\n3\n")),
        "path.toml:8:10: traces/drive:3:1: 3 ms, before 4 ms in the line above"
    );
    assert_eq!(
        error(drive, write("time (s),rate (Mbit/s)\n0,1\n1,é2\n")),
        "path.toml:8:10: traces/drive:3:3: not a number: write digits and a decimal point"
    );
    assert_eq!(
        error("replay = \"none\"", nothing),
        "path.toml:8:10: cannot read none: No such file or directory (os error 2)"
    );
    assert!(error("replay = \"traces\"", nothing).contains("traces is no regular file"));
    assert!(error("replay = \"/dev/zero\"", nothing).contains("/dev/zero is no regular file"));
    let large = |folder: &TempDir| {
        let file = fs::File::create(folder.path().join("traces/drive")).unwrap();
        file.set_len((16 << 20) + 1).unwrap();
    };
    assert!(error(drive, large).contains("traces/drive is larger than 16 MiB"));
    let unread = |folder: &TempDir| {
        fs::write(folder.path().join("traces/drive"), b"1\n2\n\xff").unwrap();
    };
    assert!(error(drive, unread).contains("traces/drive:3: not UTF-8 text"));
    assert!(error("replay = 5", nothing).contains("expected the name of a file"));
    assert!(error("replay = { name = \"x\" }", nothing).contains("unknown key `name`"));
}

#[test]
fn a_key_that_the_trace_sets_is_refused() {
    let refused = |link: &str, key: &str| {
        let error = error(link, |_| {});
        let message = format!("the recorded trace of `replay` sets the {key} of this direction");
        assert!(error.contains(&message), "{error}");
    };
    let [drive, table] =
        ["traces/drive", "traces/drive.csv"].map(|file| format!("replay = \"{file}\""));
    refused(&format!("{drive}\nrate = \"1 Mbit/s\""), "rate");
    let steps = "schedule = { steps = [{ at = \"1 s\", rate = \"1 Mbit/s\" }] }";
    refused(&format!("{drive}\n{steps}"), "rate");
    refused(&format!("{table}\nrate = \"1 Mbit/s\""), "rate");
    refused(&format!("{table}\ndelay = \"1 ms\""), "delay");
    refused(&format!("{table}\n{steps}"), "schedule");
    let compressed = error(&format!("{drive}\nheader_compression = true"), |_| {});
    assert!(compressed.contains("a recorded trace"), "{compressed}");
    // A schedule may change what the opportunities do not set.
    load(&format!(
        "{drive}\nschedule = {{ steps = [{{ at = \"1 s\", delay = \"1 ms\" }}] }}"
    ));
}
