//! What is done in a machine: one test, or one scenario.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::machine::{Broken, CONSOLE, Done, Machine, Parts};
use crate::programs::{Part, Programs, TestProgram};
use crate::scenario::Scenario;

/// How many times slower than real processors the emulated ones are, about.
const SLOWNESS: u32 = 15;
/// The longest time of one job.
pub const LIMIT: Duration = Duration::from_secs(35 * 60);
/// Before that, the harness of kernel tests ends a test by itself, and shows what it printed.
const LIMIT_OF_TEST_SECONDS: u64 = 30 * 60;
/// The start of the names of scenarios.
pub const SCENARIO: &str = "scenario ";
/// The start of lines that become a row of the table of findings.
const FINDING: &str = "finding: ";
/// How much of a failed job's output is kept.
const KEPT_LINES: usize = 80;
/// In addition, this many panics from its earlier output, with as many lines each.
const PANICS: usize = 4;
const LINES_OF_PANIC: usize = 4;
/// How many lines of a console are kept if its emulator has ended.
const CONSOLE_LINES: usize = 40;

/// One unit of work, with a result of its own.
#[derive(Debug, Clone)]
pub enum Job<'a> {
    /// A part of a program's tests.
    Test(&'a TestProgram, &'a Part),
    /// A scenario.
    Scenario(&'a Scenario),
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Everything holds.
    Passed,
    /// Something the machine does not have.
    Skipped,
    /// Something does not hold.
    Failed,
}

/// A job's stored result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// How it ended.
    pub outcome: Outcome,
    /// The machine's kernel.
    pub kernel: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Why parts were skipped, and the output of a failure.
    pub lines: Vec<String>,
    /// What was found: a name and a text.
    pub findings: Vec<(String, String)>,
}

impl<'a> Job<'a> {
    /// The program and its part, if the job is not a scenario.
    pub const fn test(&self) -> Option<(&'a TestProgram, &'a Part)> {
        match self {
            Self::Test(program, part) => Some((program, part)),
            Self::Scenario(_) => None,
        }
    }

    /// The name, such as "midspan-proxy kernel transparent::passing::addresses_are_kept".
    pub fn name(&self) -> String {
        match self {
            Self::Test(program, part) => match &part.name {
                Some(part) => format!("{} {part}", program.name),
                None => program.name.clone(),
            },
            Self::Scenario(scenario) => format!("{SCENARIO}{}", scenario.name),
        }
    }

    /// A name for the state of all that it uses: after a change, its result is no longer valid.
    pub fn state(&self, programs: &Programs) -> String {
        match self {
            Self::Test(program, _) => program.state.clone(),
            Self::Scenario(scenario) => format!("{} {}", programs.state, scenario.state()),
        }
    }

    /// Does it: a test in `machine`, if one is there from the last test, a scenario in a machine of
    /// its own. Without a result, it was stopped because the time `left` was over: it has to be
    /// done again, with more time.
    pub fn run(
        &self,
        machine: &mut Option<Machine>,
        parts: &Parts<'_>,
        programs: &Programs,
        left: Duration,
    ) -> Result<Option<Row>, Error> {
        let limit = LIMIT.min(left);
        let mut start = Instant::now();
        let mut kernel = String::new();
        let ended = match self {
            Self::Test(program, part) => {
                let mut running = match machine.take() {
                    Some(running) => running,
                    None => Machine::new(parts, limit)?,
                };
                kernel = running.kernel.clone();
                start = Instant::now();
                let ended = running.run(&command(program, part), limit);
                // A machine in which something still runs is of no use to the next test.
                *machine = ended.is_ok().then_some(running);
                ended
            }
            Self::Scenario(scenario) => {
                *machine = None;
                let played = scenario
                    .session(parts, programs, limit)
                    .and_then(|mut session| {
                        kernel = session.kernel()?;
                        scenario.play(&mut session)
                    });
                match played {
                    Ok(ended) => ended,
                    // It did not start, or not again.
                    Err(Error::Machine { .. }) if start.elapsed() >= limit => Err(Broken::TooLong),
                    Err(Error::Machine { what, .. }) if !kernel.is_empty() => Ok(Done {
                        status: 1,
                        printed: what,
                    }),
                    Err(error) => return Err(error),
                }
            }
        };
        let (outcome, lines, findings) = match ended {
            Ok(done) => judge(&done),
            Err(Broken::TooLong) if limit < LIMIT => return Ok(None),
            Err(broken) => {
                let lines = match broken {
                    Broken::TooLong => vec![format!("still ran after {} s", LIMIT.as_secs())],
                    Broken::Gone => {
                        let why =
                            "the machine did not answer any more; the last lines of its console:";
                        let console = end_of_console(&parts.image.file(CONSOLE));
                        std::iter::once(why.to_owned()).chain(console).collect()
                    }
                };
                (Outcome::Failed, lines, Vec::new())
            }
        };
        Ok(Some(Row {
            outcome,
            kernel,
            seconds: start.elapsed().as_secs_f64(),
            lines,
            findings,
        }))
    }
}

/// The last lines of a console, which the next machine overwrites.
fn end_of_console(console: &Path) -> Vec<String> {
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(CONSOLE_LINES);
    lines.into_iter().skip(first).map(str::to_owned).collect()
}

/// Runs tests of a program as cargo does, in the folder of its package.
pub fn command(program: &TestProgram, part: &Part) -> String {
    let exact = match part.tests[..] {
        [] => String::new(),
        ref tests => format!("--exact '{}'", tests.join("' '")),
    };
    // Snapshots are found from the workspace, and the machine has no cargo to name it.
    format!(
        "cd '{}' && INSTA_WORKSPACE_ROOT='{}' MIDSPAN_TEST_TRIES=2 \
         MIDSPAN_TEST_LIMIT={LIMIT_OF_TEST_SECONDS} MIDSPAN_SLOWNESS={SLOWNESS} '{}' {exact}",
        program.folder.display(),
        program.workspace.display(),
        program.file.display()
    )
}

/// The outcome by exit status and output, the lines to keep, and the findings.
pub fn judge(done: &Done) -> (Outcome, Vec<String>, Vec<(String, String)>) {
    let lines = || done.printed.lines();
    let findings = lines()
        .filter_map(|line| line.strip_prefix(FINDING)?.split_once(": "))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
    if done.status != 0 {
        let all: Vec<&str> = lines().collect();
        let (earlier, last) = all.split_at(all.len().saturating_sub(KEPT_LINES));
        let mut kept = vec![format!("exit status {}", done.status)];
        // The log of a program may be between the reason and the end.
        let reasons = earlier.windows(LINES_OF_PANIC);
        let reasons = reasons.filter(|lines| lines[0].contains("panicked at "));
        for &line in reasons.take(PANICS).flatten().chain(last) {
            kept.push(line.to_owned());
        }
        return (Outcome::Failed, kept, findings);
    }
    let notes: Vec<String> = lines()
        .filter(|line| line.contains("skipped: ") || line.contains("only:"))
        .map(str::to_owned)
        .collect();
    let ran = lines().any(|line| line.starts_with("test result:"));
    let passed = lines().any(|line| line.starts_with("test ") && line.ends_with("... ok"));
    let outcome = if ran && !passed && !notes.is_empty() {
        Outcome::Skipped
    } else {
        Outcome::Passed
    };
    (outcome, notes, findings)
}

#[cfg(test)]
mod tests {
    use super::{Outcome, judge};
    use crate::machine::Done;

    fn judged(status: i32, printed: &str) -> (Outcome, Vec<String>, Vec<(String, String)>) {
        judge(&Done {
            status,
            printed: printed.to_owned(),
        })
    }

    #[test]
    fn the_reason_of_a_failure_is_kept_before_a_long_log() {
        let log = "a line\n".repeat(500);
        let printed = format!("thread 'main' panicked at a.rs:1:2:\n3 of 7\nnote\n{log}end\n");
        let (outcome, lines, _) = judged(101, &printed);
        assert_eq!(outcome, Outcome::Failed);
        assert_eq!(lines[2], "3 of 7");
        assert!(lines.len() < 100 && lines.ends_with(&["end".to_owned()]));
    }

    #[test]
    fn a_test_that_was_skipped_did_not_pass() {
        let (outcome, lines, _) = judged(
            0,
            "running 1 test\ntest a ... ignored, skipped: no VRF\n\ntest result: ok. 0 passed\n",
        );
        assert_eq!(outcome, Outcome::Skipped);
        assert_eq!(lines, ["test a ... ignored, skipped: no VRF"]);
        let (outcome, ..) = judged(0, "test a ... ok\n\ntest result: ok. 1 passed\n");
        assert_eq!(outcome, Outcome::Passed);
    }

    #[test]
    fn a_failure_keeps_the_end_of_its_output() {
        let (outcome, lines, findings) = judged(1, "finding: queue: a statement\nlast\n");
        assert_eq!(outcome, Outcome::Failed);
        assert_eq!(lines.last().map(String::as_str), Some("last"));
        assert_eq!(findings, [("queue".to_owned(), "a statement".to_owned())]);
    }
}
