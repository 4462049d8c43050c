//! The life of a running proxy: reloads, commands, the service manager.
//!
//! Everything happens on the loopback interface of a network namespace of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod liveness;
mod notifying;
#[path = "../own_namespace/mod.rs"]
mod own_namespace;
mod reloading;
mod support;
#[path = "../tries/mod.rs"]
mod tries;

use midspan_linux::netlink::Netlink;

use tries::Test;

const TESTS: &[Test] = &[
    ("twenty reloads under traffic", reloading::twenty_reloads),
    ("listeners come and go", reloading::listeners_come_and_go),
    ("legs change", reloading::legs_change),
    ("time-outs change", reloading::time_outs_change),
    ("a wrong file changes nothing", reloading::a_wrong_file),
    ("what needs a restart", reloading::what_needs_a_restart),
    ("status and refusals", commands::status_and_refusals),
    ("kicked sessions", commands::kicked_sessions_are_reset),
    ("many kicked sessions", commands::many_are_kicked),
    ("hostile clients", commands::hostile_clients),
    ("whose socket it is", commands::the_socket_is_ours),
    ("the service manager", notifying::the_manager_is_told),
    (
        "the manager waits",
        notifying::the_manager_waits_while_sessions_end,
    ),
    ("the unit file", notifying::the_unit_file_is_right),
    ("a thread that stands still", liveness::a_stuck_thread),
    ("a thread that is late", liveness::a_late_thread_goes_on),
    ("the watchdog", notifying::a_still_relay_is_not_vouched_for),
];

fn main() {
    own_namespace::main(|| Netlink::open().unwrap().set_up("lo").unwrap(), TESTS);
}
