//! Rules that another program changes while Midspan's rules are being set, in a network namespace.

#![allow(clippy::unwrap_used)]

use midspan_gateway::acknowledgement_queue::{AcknowledgementRules, LONGEST};
use midspan_gateway::interception::Interception;
use midspan_linux::netlink::Netlink;
use midspan_linux::nftables::Generation::OthersChanged;
use midspan_linux::nftables::{self, NftablesError};
use midspan_testbed::kernel_test;

use crate::plans::plan;

#[kernel_test]
fn own_changes_are_told_from_those_of_others() {
    let apply = |text: &str| nftables::apply(text);
    let own = || {
        apply("table inet ours { chain one { tcp dport 80 accept; }; }")?;
        apply("add table inet ours; delete table inet ours; table inet ours { chain two { }; }")?;
        Ok::<_, NftablesError>(2)
    };
    let now = nftables::generation_after(own).unwrap();
    assert_eq!(now.number(), Some(nftables::generation().unwrap()));
    // A change before Midspan's rules are set does no harm, but cannot be distinguished from one
    // after them, which removes the rules.
    let before = || apply("table inet other").and_then(|()| own());
    assert_eq!(nftables::generation_after(before).unwrap(), OthersChanged);
    let behind = || own().and_then(|own| apply("flush ruleset").map(|()| own));
    assert_eq!(nftables::generation_after(behind).unwrap(), OthersChanged);
    // A refused change does not count.
    let refused = || {
        assert!(apply("table inet ours { chain one { jump nowhere; }; }").is_err());
        own()
    };
    assert!(
        nftables::generation_after(refused)
            .unwrap()
            .number()
            .is_some()
    );
}

/// Rules are set for the first time, and replace old ones: the helper counts both correctly.
#[kernel_test]
fn rules_of_ack_thinning_are_one_change() {
    let rules = AcknowledgementRules::new("lo", 5317, LONGEST).unwrap();
    for _ in 0..2 {
        let now = nftables::generation_after(|| rules.install().map(|()| 1)).unwrap();
        assert_eq!(now.number(), Some(nftables::generation().unwrap()));
    }
}

/// If no other program changes rules, Midspan reads its rules back once and then leaves them.
#[kernel_test]
fn rules_of_interception_are_known_once_they_are_set() {
    Netlink::open().unwrap().set_up("lo").unwrap();
    let mut interception = Interception::install(plan()).unwrap();
    for taking in [true, false] {
        interception.set_taking(taking).unwrap();
        assert!(!interception.refresh().unwrap(), "nothing was changed");
        nftables::apply("flush ruleset").unwrap();
        assert!(interception.refresh().unwrap(), "all was removed");
        assert!(!interception.refresh().unwrap(), "nothing was changed");
    }
}
