//! The keys of explicit listeners: accepted files, refused files, and the texts of errors.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use midspan_document::Source;
use midspan_proxy::configuration::Configuration;
use midspan_units::TimeSpan;

fn read(text: &str) -> Result<Configuration, String> {
    Configuration::read(&Source::new("midspan.toml", text)).map_err(|error| error.to_string())
}

/// The error that `text` gives.
fn error(text: &str) -> String {
    read(text).expect_err("the text was accepted")
}

const LISTENER: &str = r#"[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "192.0.2.1:80"
"#;

const SOCKS: &str = "[[listener]]\nname = \"s\"\nmode = \"socks5\"\n";

#[test]
fn explicit_listeners_are_on_loopback_unless_somebody_is_named() {
    let http = SOCKS.replace("socks5", "http");
    for (text, listen) in [(SOCKS, "127.0.0.1:1080"), (&http, "127.0.0.1:3128")] {
        let configuration = read(text).unwrap();
        let listener = &configuration.listeners[0];
        assert_eq!(listener.listen().unwrap().to_string(), listen);
        let negotiation = listener.relay.negotiation().unwrap();
        assert_eq!(negotiation.timeout, TimeSpan::from_seconds(10));
        for open in ["0.0.0.0:1080", "[::]:1080", "192.0.2.1:1080"] {
            let text = format!("{text}listen = \"{open}\"\n");
            let error = error(&text);
            assert!(
                error.starts_with("midspan.toml:4:10: anybody who"),
                "{error}"
            );
            for named in ["users = { a = \"b\" }", "clients = [\"192.0.2.0/24\"]"] {
                read(&format!("{text}{named}\n")).unwrap();
            }
        }
    }
    read(&format!("{SOCKS}listen = \"[::1]:1080\"\n")).unwrap();
}

#[test]
fn wrong_keys_of_explicit_listeners_are_located() {
    let transparent = "[[listener]]\nname = \"t\"\nmode = \"transparent\"\ninterfaces = [\"e\"]\n";
    for (text, key, expected) in [
        (
            SOCKS,
            "to = \"192.0.2.1:80\"",
            "`to` is for listeners of mode \"forward\"",
        ),
        (
            SOCKS,
            "ports = [80]",
            "`ports` is for listeners of mode \"transparent\"",
        ),
        (SOCKS, "users = {}", "there is no user"),
        (SOCKS, "users = { \"a:b\" = \"c\" }", "user \"a:b\""),
        (SOCKS, "users = { a = \"\" }", "user \"a\""),
        (SOCKS, "clients = []", "the list is empty"),
        (
            SOCKS,
            "clients = \"all\"",
            "clients must list addresses or prefixes",
        ),
        (
            SOCKS,
            "clients = [\"::ffff:192.0.2.1\"]",
            "is an IPv4 address inside",
        ),
        (SOCKS, "access = [{ ports = [80] }]", "either allow or deny"),
        (
            SOCKS,
            "access = [{ allow = \"all\", deny = \"all\" }]",
            "either allow or deny",
        ),
        (
            SOCKS,
            "access = [{ allow = \"example.org\" }]",
            "is not an address or prefix",
        ),
        (
            SOCKS,
            "send_proxy_protocol = \"v1\"",
            "is for listeners of mode \"forward\"",
        ),
        (
            SOCKS,
            "accept_proxy_protocol = true",
            "`proxy_protocol_from` is missing",
        ),
        (
            SOCKS,
            "proxy_protocol_from = [\"::1\"]",
            "needs accept_proxy_protocol",
        ),
        (
            SOCKS,
            "negotiation_timeout = \"0 s\"",
            "negotiation_timeout",
        ),
        (
            LISTENER,
            "users = { a = \"b\" }",
            "is for listeners of mode \"socks5\"",
        ),
        (LISTENER, "send_proxy_protocol = \"v3\"", "v3"),
        (LISTENER, "source = []", "source lists 1 to 64 addresses"),
        (
            LISTENER,
            "source = [\"192.0.2.2:80\"]",
            "\"192.0.2.2:80\" is not an address",
        ),
        (
            LISTENER,
            "source = [\"0.0.0.0\"]",
            "0.0.0.0 is not the address of one host",
        ),
        (
            LISTENER,
            "source = [\"192.0.2.2\", \"192.0.2.2\"]",
            "192.0.2.2 is listed twice",
        ),
        (
            LISTENER,
            "source = [\"2001:db8::1\"]",
            "none of these addresses has the IP version of 192.0.2.1:80",
        ),
        (
            transparent,
            "source = [\"192.0.2.2\"]",
            "`source` is not for listeners of mode \"transparent\"",
        ),
        (
            transparent,
            "clients = [\"::1\"]",
            "is not for listeners of mode \"transparent\"",
        ),
        (
            transparent,
            "listen = \"[::1]:1\"",
            "is not for listeners of mode \"transparent\"",
        ),
    ] {
        let error = error(&format!("{text}{key}\n"));
        assert!(error.contains(expected), "{key}: {error}");
    }
}

#[test]
fn passwords_are_not_printed() {
    let configuration = read(&format!("{SOCKS}users = {{ alice = \"topsecret\" }}\n")).unwrap();
    let text = format!("{:?}", configuration.listeners[0].relay.negotiation());
    assert!(
        text.contains("alice") && !text.contains("topsecret"),
        "{text}"
    );
}
