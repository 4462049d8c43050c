//! Rules that a program takes over from the former program of its process.

#![allow(clippy::unwrap_used)]

use midspan_gateway::interception::Interception;
use midspan_linux::netlink::Netlink;
use midspan_linux::nftables;
use midspan_testbed::kernel_test;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::plans::plan;

fn has_table(name: &str) -> bool {
    let tables = nftables::tables().unwrap();
    tables.iter().any(|(_, present)| present == name)
}

/// The process has no descriptor left at the end of the upgrade.
#[kernel_test]
fn a_former_table_that_could_not_be_removed_is_removed_by_the_next_check() {
    Netlink::open().unwrap().set_up("lo").unwrap();
    let former = Interception::install(plan()).unwrap();
    let mut other = plan();
    other.numbers.table = "other".to_owned();
    other.numbers.routing_table = 7702;
    let numbers = former.plan().numbers.clone();
    let mut next = Interception::adopt(other, former.adoptable(), numbers).unwrap();
    assert!(has_table("midspan") && has_table("other"));
    let usual = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..usual
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let owned = next.own();
    setrlimit(Resource::Nofile, usual).unwrap();
    owned.unwrap_err();
    assert!(has_table("midspan") && has_table("other"));
    next.refresh().unwrap();
    assert!(!has_table("midspan") && has_table("other"));
    // In an upgrade, the former program cannot do this any more.
    drop(former);
    assert!(has_table("other"));
    drop(next);
    assert!(!has_table("other"));
}
