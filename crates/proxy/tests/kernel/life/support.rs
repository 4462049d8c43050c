//! Configurations of the tests.

use std::net::SocketAddr;

pub use midspan_testbed::testing::{LIMIT, Midspan, connect, is_refused, stop_process, wait_until};
pub use midspan_testbed::{kernel_test, skip};
use rustix::process::Pid;

pub use crate::common::{ADMIN, Control, RELAY};

pub fn listener(name: &str, listen: SocketAddr, to: SocketAddr) -> String {
    format!("[[listener]]\nname = \"{name}\"\nlisten = \"{listen}\"\nto = \"{to}\"\n")
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}
