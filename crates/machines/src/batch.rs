//! Several parts of test programs at the same time in one machine: a test mostly waits, and each kernel test has a
//! process and a network namespace of its own.

use std::fmt::Write as _;
use std::time::Duration;

use crate::job::{Row, command, judge};
use crate::machine::{Broken, Done, Machine};
use crate::programs::{Part, TestProgram};

/// The number of tests in a batch. A batch that is stopped has no results.
pub const SIZE: usize = 8;
/// The number of tests that run at the same time. A machine has two processors.
const AT_ONCE: usize = 3;
/// The end of each test's output that is kept, in bytes.
const KEPT: usize = 6000;
/// The start of the line before the output of each test.
const MARK: &str = "--- test of the batch ";

/// Runs parts of programs, and returns their rows in the same order. A machine that
/// did not end the batch in time is of no use any more.
pub fn run(
    machine: &mut Machine,
    tests: &[(&TestProgram, &Part)],
    limit: Duration,
) -> Result<Vec<Row>, Broken> {
    let done = machine.run(&script(tests), limit)?;
    let rows = rows(&done.printed, &machine.kernel, tests.len());
    rows.ok_or(Broken::Gone)
}

/// The commands for all tests: results go to files first, because the tests end in another order.
fn script(tests: &[(&TestProgram, &Part)]) -> String {
    let mut script = "results=$(mktemp --directory)\n\
        one() {\n\
            local start=$SECONDS\n\
            (eval \"$2\") >\"$results/$1\" 2>&1\n\
            echo \"$? $((SECONDS - start))\" >\"$results/$1.end\"\n\
        }\n"
    .to_owned();
    for (number, (program, part)) in tests.iter().enumerate() {
        if number >= AT_ONCE {
            script.push_str("wait -n\n");
        }
        let quoted = command(program, part).replace('\'', "'\\''");
        let _ = writeln!(script, "one {number} '{quoted}' &");
    }
    let _ = write!(
        script,
        "wait\n\
        for number in $(seq 0 {}); do\n\
            echo \"{MARK}$number $(cat \"$results/$number.end\")\"\n\
            tail --bytes={KEPT} \"$results/$number\"\n\
            echo\n\
        done\n\
        rm --recursive \"$results\"\n",
        tests.len().saturating_sub(1)
    );
    script
}

/// The rows of all tests, or `None` if the output is not that of [`script`].
fn rows(printed: &str, kernel: &str, count: usize) -> Option<Vec<Row>> {
    let mut parts: Vec<(i32, f64, String)> = Vec::new();
    for line in printed.lines() {
        if let Some(head) = line.strip_prefix(MARK) {
            let mut words = head.split(' ');
            let number: usize = words.next()?.parse().ok()?;
            if number != parts.len() {
                return None;
            }
            let (status, seconds) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            parts.push((status, seconds, String::new()));
        } else if let Some((.., text)) = parts.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    let row = |(status, seconds, printed): (i32, f64, String)| {
        let (outcome, lines, findings) = judge(&Done { status, printed });
        Row {
            outcome,
            kernel: kernel.to_owned(),
            seconds,
            lines,
            findings,
        }
    };
    (parts.len() == count).then(|| parts.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::{rows, script};
    use crate::job::Outcome;
    use crate::programs::{Part, TestProgram};

    /// A shell of this machine runs the script, with tests that are shell scripts.
    #[test]
    fn each_test_has_its_own_row() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("program");
        let text = "#!/bin/sh\necho \"first $2\"\n[ \"$2\" != bad ] || exit 1\n\
                    echo 'test a ... ok'\necho 'test result: ok'\nprintf 'no newline'\n";
        std::fs::write(&file, text).expect("a file");
        let made = Command::new("chmod").arg("+x").arg(&file).status();
        assert!(made.expect("chmod").success());
        let program = TestProgram {
            name: "a package".to_owned(),
            folder: PathBuf::from("/"),
            workspace: PathBuf::from("/"),
            file,
            parts: Vec::new(),
            state: String::new(),
        };
        let names = ["one", "bad", "two", "three", "four"];
        let parts = names.map(|name| Part {
            name: None,
            tests: vec![name.to_owned()],
        });
        let tests: Vec<_> = parts.iter().map(|part| (&program, part)).collect();
        let run = Command::new("bash").arg("-c").arg(script(&tests)).output();
        let printed = String::from_utf8(run.expect("bash").stdout).expect("text");
        let rows = rows(&printed, "6.1", names.len()).expect("rows");
        for (name, row) in names.iter().zip(&rows) {
            let is_bad = *name == "bad";
            assert_eq!(row.outcome == Outcome::Failed, is_bad, "{printed}");
            assert_eq!(row.lines.iter().any(|line| line == "first bad"), is_bad);
            assert_eq!(row.kernel, "6.1");
        }
    }

    #[test]
    fn an_output_that_was_cut_has_no_rows() {
        assert!(rows("cut\n--- test of the batch 1 0 1\nok\n", "6.1", 2).is_none());
        assert!(rows("--- test of the batch 0 0 1\nok\n", "6.1", 2).is_none());
    }
}
