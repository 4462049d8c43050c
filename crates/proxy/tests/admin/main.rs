//! What can be seen of a running proxy: metrics, live sessions, lines of the log, captures; and
//! that nobody who asks for them disturbs it.
//!
//! Everything happens on the loopback interface of a network namespace of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../capture_file/mod.rs"]
mod capture_file;
mod capturing;
mod hostile;
#[path = "../own_namespace/mod.rs"]
mod own_namespace;
mod seen;
mod support;
#[path = "../tries/mod.rs"]
mod tries;

use tries::Test;

const TESTS: &[Test] = &[
    ("each end is counted and logged", seen::each_end_is_counted),
    ("a live session is shown", seen::a_live_session_is_shown),
    ("many sessions by pages", seen::sessions_come_by_pages),
    ("legs are sampled while they live", seen::legs_are_sampled),
    (
        "a stuck log stops nothing",
        hostile::a_stuck_log_stops_nothing,
    ),
    ("hostile requests", hostile::requests_disturb_nothing),
    ("pages and errors", seen::pages_and_errors),
    (
        "a capture of a forward session",
        capturing::a_forward_session,
    ),
];

fn main() {
    own_namespace::main(support::set_up_network, TESTS);
}
