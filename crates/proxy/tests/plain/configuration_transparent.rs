//! Keys of transparent listeners: the texts of errors.

#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_proxy::configuration::Configuration;

fn error(text: &str) -> String {
    let result = Configuration::read(&Source::new("midspan.toml", text));
    result.unwrap_err().to_string()
}

#[test]
fn a_cache_of_verdicts_needs_an_early_handshake_and_no_decision_about_each_connection() {
    let with = |more: &str| {
        error(&format!(
            "[[listener]]\nname = \"a\"\nmode = \"transparent\"\ninterfaces = [\"eth1\"]\n{more}"
        ))
    };
    for (more, message) in [
        ("firewall_cache = \"10 s\"\n", "handshake = \"early\""),
        (
            "handshake = \"early\"\nfirewall_cache = \"1.5 s\"\n",
            "whole seconds",
        ),
        (
            "handshake = \"early\"\nfirewall_cache = \"0 s\"\n",
            "firewall_cache",
        ),
        (
            "handshake = \"early\"\nfirewall_cache = \"61 s\"\n",
            "firewall_cache",
        ),
        (
            "handshake = \"early\"\nfirewall_cache = \"10 s\"\npolicy = \"auto\"\ncontrol_group = \"1 %\"\n",
            "there is no `control_group`",
        ),
    ] {
        let found = with(more);
        assert!(found.contains(message), "{more}: {found}");
    }
}
