//! Listeners that speak with their clients first: SOCKS5, HTTP and the PROXY protocol, by curl and
//! HAProxy and by clients that break the rules; names, access rules, reloads.
//!
//! Everything happens on the interfaces of a network namespace of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod closing;
mod crowding;
mod exchange;
mod hostile;
mod name_servers;
mod names;
mod own_addresses;
#[path = "../own_namespace/mod.rs"]
mod own_namespace;
mod proxy_protocol;
mod serving;
mod support;
#[path = "../tries/mod.rs"]
mod tries;

use tries::Test;

const TESTS: &[Test] = &[
    ("curl by SOCKS5", serving::curl_by_socks5),
    ("curl by HTTP", serving::curl_by_http),
    ("names and passwords", serving::names_and_passwords),
    ("wrong passwords", serving::wrong_passwords_are_limited),
    ("many at once", serving::many_at_once),
    ("a reload keeps sessions", serving::a_reload_keeps_sessions),
    ("ends and answers", closing::half_close_in_each_mode),
    ("resets", closing::resets_in_each_mode),
    ("early data", closing::early_data_is_kept),
    ("failures have their codes", closing::failures_have_codes),
    ("own addresses", access::own_addresses_are_out_of_reach),
    (
        "secondary and other own addresses",
        own_addresses::addresses_that_come_later_are_out_of_reach,
    ),
    (
        "a listener that is its own server",
        own_addresses::a_listener_that_forwards_to_itself_is_refused,
    ),
    (
        "a listener that becomes its own server",
        own_addresses::a_listener_that_becomes_its_own_server_ends_the_circle,
    ),
    ("access rules", access::rules_decide),
    (
        "each request goes to its server",
        exchange::each_request_goes_to_its_server,
    ),
    (
        "pipelined requests",
        exchange::pipelined_requests_are_answered_in_turn,
    ),
    ("large bodies", exchange::large_bodies_pass_both_ways),
    ("interim answers", exchange::interim_answers_pass),
    (
        "an early answer",
        exchange::an_early_answer_ends_the_connection,
    ),
    (
        "answers without a body",
        exchange::answers_without_a_body_have_none,
    ),
    (
        "a server that ends early",
        exchange::a_server_that_ends_early_is_noticed,
    ),
    ("broken chunks", exchange::broken_chunks_are_refused),
    ("a web socket", exchange::a_web_socket_becomes_a_tunnel),
    ("clients that end", exchange::clients_that_end),
    ("idle clients", exchange::idle_clients_are_closed_in_order),
    ("draining", exchange::draining_closes_idle_clients),
    ("a slow server", exchange::a_slow_server_gets_all),
    (
        "curl uses its connection again",
        exchange::curl_uses_its_connection_again,
    ),
    (
        "clients that are refused are logged",
        access::refused_clients_are_logged,
    ),
    ("hostile clients", hostile::clients_that_break_rules),
    ("SOCKS4", hostile::a_client_of_socks4_is_told),
    ("slow clients", hostile::slow_clients_are_sent_away),
    (
        "one client and another",
        crowding::one_client_does_not_shut_others_out,
    ),
    (
        "half-said requests",
        crowding::half_said_requests_count_in_the_budget,
    ),
    (
        "another memory of the machine",
        crowding::another_memory_of_the_machine_is_noticed,
    ),
    (
        "5000 idle sessions in a gigabyte",
        crowding::a_gigabyte_carries_5000_idle_sessions,
    ),
    (
        "a dead zone of one client",
        name_servers::a_dead_zone_delays_nobody_else,
    ),
    ("names", names::names_are_raced_and_missed),
    (
        "the client that a proxy tells counts",
        proxy_protocol::the_told_client_counts,
    ),
    ("the PROXY protocol", proxy_protocol::with_haproxy),
];

fn main() {
    own_namespace::main(support::set_up_network, TESTS);
}
