//! Transparent listeners on a gateway, in network namespaces that look like one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admission;
mod ahead_loss;
mod asymmetric;
mod busy;
mod capture;
#[path = "../capture_file/mod.rs"]
mod capture_file;
mod check;
mod failing;
mod firewall;
mod flood;
mod fragment_loss;
mod full_table;
mod handshake;
mod health;
mod keepalive;
mod learning;
mod limits;
mod load;
mod making_room;
mod many_routes;
mod multipath;
mod narrow;
mod no_ipv6;
mod passing;
mod path_mtu;
mod power_loss;
mod program;
mod reloading;
mod signed;
mod soak;
mod support;
mod tracking;
#[path = "../tries/mod.rs"]
mod tries;
mod unread_log;
mod untaken;
mod uplinks;

use std::os::fd::AsFd;

use midspan_linux::namespace;
use midspan_proxy::check::{CheckOptions, check as check_all, kernel_main};
use midspan_proxy::{RunOptions, cleanup, relay_main, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["relay"] => end(relay_main()),
        ["check", file] => print_check(file, None),
        ["check", file, rate] => print_check(file, Some(rate.parse().unwrap())),
        ["remove-leftovers"] => {
            end(cleanup().map(|cleaned| println!("{}", cleaned.rules_and_routes)))
        }
        ["run-without-ipv6", file] => {
            no_ipv6::refuse_sockets();
            run_proxy(file);
        }
        ["check-without-ipv6", file] => {
            no_ipv6::refuse_sockets();
            print_check(file, None);
        }
        ["check-kernel", file] => end(kernel_main(file.as_ref())),
        ["run", file] => run_proxy(file),
        [filter] if !filter.starts_with('-') => test(filter),
        _ => test(""),
    }
}

fn run_proxy(file: &str) {
    end(run(RunOptions {
        configuration: file.into(),
        relay_arguments: vec!["relay".to_owned()],
        ready: Some(std::io::stdout().as_fd().try_clone_to_owned().unwrap()),
    }));
}

/// One line for each finding, its parts between tabs.
fn print_check(file: &str, rate: Option<u64>) {
    let options = CheckOptions {
        configuration: file.into(),
        kernel_arguments: vec!["check-kernel".to_owned(), file.to_owned()],
        rate,
    };
    for finding in check_all(&options).unwrap().checks {
        let state = format!("{:?}", finding.state).to_lowercase();
        let parts = [
            state,
            finding.check,
            finding.found,
            finding.mend.unwrap_or_default(),
        ];
        println!("{}", parts.map(|part| part.replace('\n', " ")).join("\t"));
    }
}

fn end(result: Result<(), midspan_proxy::Error>) {
    if let Err(error) = result {
        midspan_log::say(&format!("error: {error}"));
        midspan_log::finish();
        std::process::exit(1);
    }
}

fn test(filter: &str) {
    if std::env::var("MIDSPAN_SOAK").is_ok_and(|value| value == "full") {
        full_table::stay_in_first_namespace();
    }
    let privilege = match namespace::isolate() {
        Ok(privilege) => privilege,
        Err(error) => return println!("skipped: {error}"),
    };
    if std::process::Command::new("nft")
        .arg("-v")
        .output()
        .is_err()
    {
        return println!("skipped: there is no program nft");
    }
    println!("in network namespaces of its own, as {privilege:?}");
    let tests: &[tries::Test] = &[
        ("addresses are kept", passing::addresses_are_kept),
        (
            "no connection is reset under load",
            load::no_connection_is_reset,
        ),
        (
            "an aborted connection ends at the server",
            load::an_aborted_connection_ends_at_the_server,
        ),
        (
            "behind NAT and a strict firewall",
            passing::a_strict_gateway,
        ),
        (
            "what the host refuses is refused",
            untaken::forward_is_obeyed,
        ),
        (
            "SSH and other services of the gateway go on",
            untaken::own_services_are_left_alone,
        ),
        (
            "beside busy programs nothing is ended",
            busy::nothing_is_ended_on_a_busy_machine,
        ),
        (
            "stopped together, they go on",
            failing::stopped_together_they_go_on,
        ),
        (
            "health tells what is not done",
            health::health_tells_what_is_not_done,
        ),
        (
            "nobody reads the log of a gateway",
            unread_log::nobody_reads_the_log,
        ),
        ("a closed port refuses", handshake::a_closed_port_refuses),
        (
            "a filtered port times out",
            handshake::a_filtered_port_times_out,
        ),
        (
            "an unreachable host is reported",
            handshake::an_unreachable_host_is_reported,
        ),
        (
            "the policy is asked at the SYN",
            admission::the_policy_is_asked_at_the_syn,
        ),
        (
            "caps hold at the SYN",
            limits::caps_hold_at_the_syn_and_a_reload_changes_them,
        ),
        ("early data is kept", handshake::early_data_is_kept),
        (
            "control ports of helpers are left alone",
            untaken::control_ports_of_helpers_are_left_alone,
        ),
        (
            "ports, hosts and interfaces are left alone",
            untaken::exceptions_are_left_alone,
        ),
        (
            "asymmetric route, end to end",
            asymmetric::the_first_connection_waits_and_the_next_do_not,
        ),
        (
            "asymmetric route, early",
            asymmetric::after_an_early_handshake_the_next_pass,
        ),
        (
            "asymmetric route or dead server",
            asymmetric::a_dead_server_stays_dead,
        ),
        (
            "asymmetric route or late answer",
            asymmetric::a_late_answer_is_no_proof,
        ),
        (
            "path MTU on both legs",
            path_mtu::the_path_mtu_is_found_on_both_legs,
        ),
        (
            "unreachable in mid-session",
            path_mtu::unreachable_in_mid_session_reaches_its_leg,
        ),
        (
            "two uplinks, by marks",
            uplinks::marks_of_others_choose_the_way,
        ),
        (
            "two uplinks, by marks kept in conntrack",
            uplinks::marks_kept_in_conntrack_keep_each_session_on_its_uplink,
        ),
        (
            "narrow: segments are raised after a probe",
            narrow::segments_are_raised_after_a_probe,
        ),
        (
            "narrow: verdicts are kept across restarts",
            narrow::verdicts_are_kept_across_restarts,
        ),
        (
            "narrow: timestamps are left out",
            narrow::timestamps_are_left_out,
        ),
        ("narrow: the fragmenter cuts", narrow::the_fragmenter_cuts),
        (
            "narrow: a path that drops fragments of IPv6",
            narrow::a_path_that_drops_fragments_of_ipv6,
        ),
        (
            "narrow: every byte arrives though fragments are lost",
            fragment_loss::every_byte_is_delivered,
        ),
        (
            "narrow: requests and answers",
            narrow::requests_and_answers_go_on,
        ),
        (
            "narrow: a path that drops fragments",
            narrow::a_path_that_drops_fragments,
        ),
        ("narrow: a small MTU", narrow::a_path_with_a_small_mtu),
        (
            "narrow: behind another router",
            narrow::behind_another_router,
        ),
        (
            "narrow: clients left alone",
            narrow::clients_that_are_left_alone,
        ),
        (
            "narrow: sending ahead",
            narrow::sending_ahead_of_a_small_window,
        ),
        (
            "narrow: loss when sending ahead",
            ahead_loss::no_more_is_resent_than_was_under_way,
        ),
        (
            "learned: the next connection begins with more",
            learning::the_next_connection_begins_with_what_the_first_has_taught,
        ),
        (
            "learned: thirty starts at once",
            learning::thirty_starts_at_once_do_not_flood_the_path,
        ),
        (
            "learned: nothing to gain",
            learning::a_route_without_anything_to_gain_is_left_alone,
        ),
        (
            "learned: the control group",
            learning::the_control_group_is_compared_with,
        ),
        (
            "keep-alive on both legs of every mode",
            keepalive::both_legs_of_every_mode_are_probed,
        ),
        (
            "keep-alive finds a client that has vanished",
            keepalive::a_client_that_has_vanished_is_found,
        ),
        (
            "tracking: entries go soon after their sessions",
            tracking::entries_go_soon_after_their_sessions,
        ),
        (
            "tracking: an idle session outlives the host's time",
            tracking::an_idle_session_outlives_the_hosts_time,
        ),
        (
            "tracking: an old nft",
            tracking::without_time_outs_it_is_said,
        ),
        (
            "tracking: a session outlives its entries",
            tracking::a_session_outlives_its_entries,
        ),
        (
            "tracking: a table that is nearly full",
            tracking::above_seven_eighths_of_the_table_new_connections_pass,
        ),
        (
            "tracking: what check finds",
            tracking::check_finds_what_is_too_small_or_blind,
        ),
        ("MPTCP: a further path", multipath::a_further_path_passes),
        ("TCP-MD5", signed::tcp_md5_passes),
        ("TCP-AO", signed::tcp_ao_passes),
        (
            "redirected connections",
            untaken::what_the_host_redirects_is_left_alone,
        ),
        ("a port used again", passing::a_port_is_used_again),
        (
            "several listeners and initial windows",
            passing::listeners_and_windows,
        ),
        (
            "loops to our own listeners are refused",
            untaken::the_internal_listener_serves_nobody,
        ),
        ("SIGTERM", failing::sessions_go_on_while_it_drains),
        ("flows under way go on", untaken::flows_under_way_go_on),
        ("a SYN under way goes on", untaken::a_syn_under_way_goes_on),
        ("a firewall reload", failing::rules_are_put_back),
        (
            "a gateway that was switched off",
            power_loss::sessions_of_a_gateway_that_was_switched_off,
        ),
        ("nft that hangs", failing::a_program_that_hangs_is_killed),
        (
            "a firewall that stops connections",
            firewall::a_firewall_that_stops_connections,
        ),
        (
            "iptables that stop connections",
            firewall::iptables_that_stop_connections,
        ),
        ("a firewall that changes", firewall::a_firewall_that_changes),
        (
            "a routing rule that takes the mark",
            firewall::a_routing_rule_that_takes_the_mark,
        ),
        ("the probe stays inside", firewall::the_probe_stays_inside),
        ("check: a good machine", check::a_good_machine),
        (
            "check: a firewall that lacks a rule",
            check::a_firewall_that_lacks_a_rule,
        ),
        (
            "check: things that are missing",
            check::things_that_are_missing,
        ),
        (
            "check: names and numbers of others",
            check::names_and_numbers_of_others,
        ),
        (
            "check: ports that clients use too",
            check::ports_that_clients_use_too,
        ),
        (
            "IPv6 that is not asked for",
            no_ipv6::what_is_not_asked_for_does_not_matter,
        ),
        (
            "IPv6 that is switched off",
            no_ipv6::the_other_family_is_taken,
        ),
        ("IPv6 that goes and comes", no_ipv6::it_may_go_and_come),
        ("no sockets of IPv6", no_ipv6::a_kernel_without_it),
        ("many routes that change", many_routes::the_helper_keeps_up),
        ("check: leftovers", check::leftovers_are_found_and_left),
        ("check: an ordinary user", check::an_ordinary_user),
        ("a killed relay", failing::a_killed_relay_fails_open),
        (
            "a killed helper",
            failing::a_killed_helper_leaves_nothing_closed,
        ),
        (
            "both killed, and their process group",
            failing::killed_together_they_fail_open,
        ),
        (
            "names that others took",
            failing::names_that_others_took_stop_nobody,
        ),
        ("two starts at once", failing::of_two_at_once_one_runs),
        ("cleanup", failing::cleanup_removes_what_is_left),
        ("a kept bypass", failing::a_bypass_outlives_a_crash),
        ("a stopped relay", failing::a_stopped_relay_fails_open),
        (
            "10,000 spoofed SYNs a second",
            flood::spoofed_syns_stop_nobody,
        ),
        (
            "room: dark SYNs beside honest connections (soak)",
            making_room::honest_connections_are_split_beside_dark_syns,
        ),
        (
            "room: a repeated SYN keeps its place",
            making_room::a_client_that_repeats_its_syn_keeps_its_place,
        ),
        (
            "room: SYNs with much data",
            making_room::a_syn_with_much_data_is_held_within_the_budget,
        ),
        (
            "room: data in a SYN",
            making_room::data_in_a_syn_arrives_once,
        ),
        (
            "room: a port that is still in use",
            making_room::a_port_that_is_still_in_use_is_counted,
        ),
        ("reload", reloading::listeners_change_under_traffic),
        (
            "reload of windows",
            reloading::windows_and_listeners_come_and_go,
        ),
        ("bypass", reloading::bypassed_connections_pass_untouched),
        ("kick", reloading::kicked_connections_are_reset),
        (
            "leftovers under other names",
            reloading::leftovers_are_found_under_other_names,
        ),
        (
            "a parameter after a crash",
            reloading::the_parameter_comes_back_after_a_crash,
        ),
        (
            "ports after the end",
            reloading::ports_are_free_after_the_end,
        ),
        ("a capture of both legs", capture::legs_are_told_apart),
        (
            "a capture behind NAT",
            capture::legs_are_told_apart_behind_nat,
        ),
        ("soak", soak::nothing_is_lost_or_left),
        (
            "soak: 2,000 connections a second",
            full_table::thousands_of_connections_a_second,
        ),
        ("nothing is left behind", failing::nothing_is_left_behind),
    ];
    tries::run_all(filter, tests);
}
