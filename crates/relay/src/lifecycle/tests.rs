use super::*;
use crate::direction::{Action, Method, Reading};

fn open() -> Direction {
    let mut direction = Direction::new();
    direction.handle_readable();
    direction.handle_writable();
    direction
}

fn finished() -> Direction {
    let mut direction = open();
    direction.handle_read(Method::Copy, Reading::End);
    direction.handle_finished();
    direction
}

fn failed(leg: Leg) -> Failures {
    let mut failures = Failures::default();
    assert!(failures.note(leg));
    failures
}

#[test]
fn a_session_closes_only_when_both_directions_have_ended() {
    let none = Failures::default();
    assert_eq!(step(&open(), &open(), none), Step::Continue);
    assert_eq!(step(&finished(), &open(), none), Step::Continue);
    assert_eq!(step(&open(), &finished(), none), Step::Continue);
    assert_eq!(step(&finished(), &finished(), none), Step::Close);
}

#[test]
fn what_a_failed_leg_delivered_goes_out_first() {
    let failures = failed(Leg::Client);
    let mut to_server = open();
    to_server.handle_inbound_failed(false);
    let mut to_client = open();
    to_client.handle_outbound_failed();
    assert_eq!(step(&to_server, &to_client, failures), Step::Continue);
    let some = Reading::Bytes {
        count: 10,
        full: false,
    };
    to_server.handle_read(Method::Copy, some);
    assert_eq!(step(&to_server, &to_client, failures), Step::Continue);
    to_server.handle_written(10, false);
    to_server.handle_read(Method::Copy, Reading::End);
    let settle = Step::Settle(Leg::Server);
    assert_eq!(step(&to_server, &to_client, failures), settle);
}

#[test]
fn a_failure_after_the_end_still_passes_the_end_on() {
    let mut to_server = open();
    to_server.handle_inbound_failed(true);
    to_server.handle_read(Method::Copy, Reading::End);
    assert_eq!(to_server.next(), Action::Finish);
    assert_eq!(
        step(&to_server, &open(), failed(Leg::Client)),
        Step::Continue
    );
}

#[test]
fn two_failed_legs_end_at_once() {
    let mut failures = failed(Leg::Client);
    assert!(failures.note(Leg::Server));
    assert_eq!(step(&open(), &open(), failures), Step::Reset);
}

#[test]
fn a_leg_fails_once() {
    let mut failures = failed(Leg::Server);
    assert!(!failures.note(Leg::Server));
    assert!(failures.any() && !failures.client);
}
