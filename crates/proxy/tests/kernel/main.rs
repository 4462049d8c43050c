//! The proxy with a kernel of its own: its processes, its listeners, its pages.

#[path = "../capture_file/mod.rs"]
mod capture_file;
#[path = "../common/mod.rs"]
mod common;

mod admin;
mod explicit;
mod life;
mod overlay;
mod process;
mod soaking;
mod transparent;
mod unread_log;

use std::process::ExitCode;

use midspan_testbed::KernelTests;

/// What the tests of these modules need.
const MODULES: &[(&str, KernelTests)] = &[
    ("admin", admin::TESTS),
    ("explicit", explicit::TESTS),
    ("life", life::TESTS),
    ("process", process::TESTS),
    ("transparent", transparent::TESTS),
    ("unread_log", unread_log::TESTS),
];

fn main() -> ExitCode {
    KernelTests::new()
        .commands(common::COMMANDS)
        .modules(MODULES)
        .main()
}
