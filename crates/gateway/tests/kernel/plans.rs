//! What tests intercept.

#![allow(clippy::unwrap_used)]

use midspan_gateway::initial_window::MarkField;
use midspan_gateway::interception::{InterceptionNumbers, LeftAlone, Plan, Selection};

/// One listener for IPv4 connections of `lo`.
pub fn plan() -> Plan {
    let numbers = InterceptionNumbers {
        table: "midspan".to_owned(),
        marks: MarkField::new(0x0f00_0000).unwrap(),
        routing_table: 7701,
        rule_priority: 100,
        zone: 7,
        queue: 5316,
        forward_priority: 10,
    };
    let selection = Selection {
        slot: 0,
        interfaces: vec!["lo".to_owned()],
        ipv4_port: Some(8080),
        ipv6_port: None,
        ports: Vec::new(),
        except_ports: Vec::new(),
        except: Vec::new(),
        rejects_quic: false,
        firewall_cache: None,
        rungs: Vec::new(),
    };
    Plan {
        numbers,
        selections: vec![selection],
        as_clients: false,
        more_interfaces: std::iter::empty().collect(),
        bypasses: Vec::new(),
        left_alone: LeftAlone::default(),
        client_leg_marks: std::iter::empty().collect(),
        server_leg_marks: std::iter::empty().collect(),
        former_sessions: Vec::new(),
        former_listeners: None,
    }
}
