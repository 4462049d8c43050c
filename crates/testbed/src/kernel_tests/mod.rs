//! The harness of kernel tests: tests that run real programs in network namespaces.
//!
//! A test program with `harness = false` in `Cargo.toml` has this `main`, and marks each test with
//! [`kernel_test`](crate::kernel_test):
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use midspan_testbed::{KernelTests, kernel_test, skip};
//!
//! fn main() -> ExitCode {
//!     KernelTests::new().main()
//! }
//!
//! #[kernel_test]
//! fn packets_pass() {
//!     if !std::path::Path::new("/usr/sbin/nft").exists() {
//!         return skip("there is no program nft");
//!     }
//! }
//! ```
//!
//! The program has the options of Rust's test programs, such as a filter, `--exact`, `--list`,
//! `--format`, `--nocapture` and `--test-threads` (by default the number of processors). It runs each
//! test in a process of its own, which enters an empty network namespace before the test begins; for
//! an ordinary user, also a user namespace. If the kernel refuses this, the test is skipped. The
//! output of a test that fails is shown. `PROGRAM --kernel-test NAME` runs one test in the process
//! itself, for a debugger.
//!
//! Environment variables (numbers are above 0):
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `MIDSPAN_TEST_TRIES` | most tries of a test that fails | 1 |
//! | `MIDSPAN_SECOND_TRIES` | file; gets the names of tests that passed, but not in their first try | none |
//! | `MIDSPAN_TEST_LIMIT` | time limit of one try in seconds; a longer try is ended and has failed | 900 |
//! | `MIDSPAN_SLOWNESS` | how many times slower than a real machine this one is; some tests divide their load by it ([`slowness`]) | 1 |
//! | `RUST_TEST_NOCAPTURE` | the same as `--nocapture`, unless it is `0` | not set |

mod attempt;
mod child;
mod settings;

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::program::AS;
use attempt::{Attempt, End};
pub use child::{privilege, skip, skip_part};
use settings::Settings;
pub use settings::slowness;

/// The argument that runs one test in this process; its name follows.
const KERNEL_TEST: &str = "--kernel-test";

/// A registered test.
#[derive(Debug)]
#[doc(hidden)]
pub struct KernelTest {
    /// Name of the package of its test program.
    pub package: &'static str,
    /// Path of its module, beginning with the test program's name.
    pub module: &'static str,
    /// Name of its function.
    pub function: &'static str,
    /// The function.
    pub run: fn(),
}

inventory::collect!(KernelTest);

impl KernelTest {
    /// The test program's name, and the test's path within it.
    fn path(&self) -> (&'static str, String) {
        match self.module.split_once("::") {
            Some((program, module)) => (program, format!("{module}::{}", self.function)),
            None => (self.module, self.function.to_owned()),
        }
    }

    fn name(&self) -> String {
        self.path().1
    }
}

/// Registers a function as a test; see [`kernel_test`](crate::kernel_test).
#[doc(hidden)]
#[macro_export]
macro_rules! register_kernel_test {
    ($name:ident) => {
        $crate::inventory::submit! {
            $crate::kernel_tests::KernelTest {
                package: ::core::env!("CARGO_PKG_NAME"),
                module: ::core::module_path!(),
                function: ::core::stringify!($name),
                run: $name,
            }
        }
    };
}

/// A command of a test program: what it does in place of testing, with its arguments.
pub type Command = (&'static str, fn(&[&str]) -> ExitCode);

/// The tests of a program, and what they need.
#[derive(Debug, Clone, Copy)]
pub struct KernelTests {
    commands: &'static [Command],
    before: fn(&str),
    needs: fn() -> Result<(), String>,
    set_up: fn(),
    is_chosen: fn(&str) -> bool,
    modules: &'static [(&'static str, KernelTests)],
}

impl Default for KernelTests {
    fn default() -> Self {
        Self::new()
    }
}

impl KernelTests {
    /// All tests of this program that are marked as such.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            commands: &[],
            before: |_| {},
            needs: || Ok(()),
            set_up: || {},
            is_chosen: |_| true,
            modules: &[],
        }
    }

    /// What the program is where its arguments are [`AS`], a name of this list and further
    /// arguments: tests start it so, as the program that they test.
    #[must_use]
    pub const fn commands(mut self, commands: &'static [Command]) -> Self {
        self.commands = commands;
        self
    }

    /// What each test's process does before it leaves the namespaces in which it was started; the
    /// test's name is passed.
    #[must_use]
    pub const fn before_namespaces(mut self, before: fn(&str)) -> Self {
        self.before = before;
        self
    }

    /// What all tests need of the machine: without it they are skipped, for the reason returned.
    #[must_use]
    pub const fn needs(mut self, needs: fn() -> Result<(), String>) -> Self {
        self.needs = needs;
        self
    }

    /// What each test's process does first in its network namespace.
    #[must_use]
    pub const fn set_up(mut self, set_up: fn()) -> Self {
        self.set_up = set_up;
        self
    }

    /// The tests of these modules of the program's root have their own set-up, needs and preparation in
    /// place of the program's. Their commands are the program's, too.
    #[must_use]
    pub const fn modules(mut self, modules: &'static [(&'static str, Self)]) -> Self {
        self.modules = modules;
        self
    }

    /// Leaves out all tests but those of which this holds, by their names.
    #[must_use]
    pub const fn only(mut self, is_chosen: fn(&str) -> bool) -> Self {
        self.is_chosen = is_chosen;
        self
    }

    /// Runs one of the commands, or the tests, as the program's arguments ask for. Must be called
    /// while the process has one thread.
    #[must_use]
    pub fn main(self) -> ExitCode {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match arguments[..] {
            [AS, name, ref rest @ ..] => self.command(name, rest),
            [KERNEL_TEST, name] => child::run(&self, name),
            _ => self.run_all(),
        }
    }

    fn command(&self, name: &str, arguments: &[&str]) -> ExitCode {
        let of_modules = self.modules.iter().flat_map(|(_, tests)| tests.commands);
        let mut commands = self.commands.iter().chain(of_modules);
        match commands.find(|(known, _)| *known == name) {
            Some((_, run)) => run(arguments),
            None => {
                eprintln!("error: this test program has no command \"{name}\"");
                ExitCode::FAILURE
            }
        }
    }

    /// What a test needs, by its name.
    fn of(&self, name: &str) -> &Self {
        let module = name.split_once("::").map(|(module, _)| module);
        let own = |&&(known, _): &&(&str, Self)| Some(known) == module;
        self.modules
            .iter()
            .find(own)
            .map_or(self, |(_, tests)| tests)
    }

    fn tests(&self) -> Vec<&'static KernelTest> {
        let all = inventory::iter::<KernelTest>.into_iter();
        let mut tests: Vec<_> = all.filter(|test| (self.is_chosen)(&test.name())).collect();
        tests.sort_by_key(|test| test.name());
        tests
    }

    fn run_all(&self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        // Most of them wait most of the time. More of them than processors would slow each other
        // down, so that time limits inside the tests would be exceeded.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        arguments.test_threads.get_or_insert(processors);
        let settings = match Settings::read(&arguments) {
            Ok(settings) => Arc::new(settings),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        };
        let notes = Notes::default();
        let trials = self.tests().into_iter().map(|test| {
            let (settings, notes) = (Arc::clone(&settings), Arc::clone(&notes));
            Trial::ignorable_test(test.name(), move || run_with_tries(test, &settings, &notes))
        });
        let conclusion = libtest_mimic::run(&arguments, trials.collect());
        for note in notes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            eprintln!("{note}");
        }
        conclusion.exit_code()
    }
}

/// Printed at the end of the run, also about tests that pass.
type Notes = Arc<Mutex<Vec<String>>>;

/// Runs a test until it passes or has had all its tries.
fn run_with_tries(
    test: &KernelTest,
    settings: &Settings,
    notes: &Notes,
) -> Result<Completion, Failed> {
    let note = |text: String| {
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(text);
    };
    let (program, name) = test.path();
    let mut failures = Vec::new();
    for number in 1..=settings.tries {
        let attempt = Attempt::run(&name, settings);
        let skipped = attempt.skipped().join("; ");
        match attempt.end {
            End::Failed(why) => {
                failures.push(format!("try {number}: {why}\n{}", attempt.printed));
                continue;
            }
            End::Skipped => {
                if settings.names_no_reasons {
                    note(format!("test {name}: skipped: {skipped}"));
                }
                return Ok(Completion::ignored_with(format!("skipped: {skipped}")));
            }
            End::Passed => {}
        }
        if !skipped.is_empty() {
            note(format!("test {name}: skipped: {skipped}"));
        }
        if settings.shows_output {
            note(format!("---- {name} ----\n{}", attempt.printed));
        }
        if number > 1 {
            note(format!(
                "test {name} passed in try {number} only:\n{}",
                failures.join("\n")
            ));
            settings.add_second_try(&format!("{} {program}: {name}", test.package))?;
        }
        return Ok(Completion::Completed);
    }
    Err(failures.join("\n").into())
}
