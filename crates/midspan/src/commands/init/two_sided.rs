//! `midspan init --two-sided`: the configuration of one of two proxies at both ends of a bad link.

use std::fmt::Write;

use midspan_policy::two_sided::TwoSidedLink;
use midspan_policy::{Buffer, LegSettings, ReceiveWindow};

use crate::arguments::{End, TwoSidedOptions};

/// The text of the file for this end.
pub(super) fn configuration(end: End, options: &TwoSidedOptions, interfaces: &str) -> String {
    let (name, clients) = match end {
        End::Terminal => ("terminal", "# The interfaces of the clients.\n"),
        End::Hub => ("hub", "# The interface of the link to the terminal.\n"),
    };
    let mut text = format!(
        "# One of two proxies at the ends of a bad link: docs/two-sided.md. Every key is in\n\
         # docs/configuration.md.\n\
         [[listener]]\n\
         name = \"{name}\"\n\
         mode = \"transparent\"\n\
         {clients}\
         interfaces = [{interfaces}]\n\
         policy = \"auto\"\n"
    );
    let (Some(up), Some(down)) = (options.rate_up, options.rate_down) else {
        text.push_str(
            "\n# The rates of the link are not written here: the first transfers find them out.\n",
        );
        return text;
    };
    let link = TwoSidedLink {
        up,
        down,
        round_trip: options.round_trip,
    };
    let legs = match end {
        End::Terminal => vec![("server_leg", link.terminal())],
        End::Hub => vec![
            ("client_leg", link.hub()),
            ("server_leg", link.hub_to_servers()),
        ],
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n# For a link of {up} up and {down} down, with a round trip of {}.",
        link.round_trip
    );
    let tables = legs
        .iter()
        .map(|(leg, settings)| format!("[listener.{leg}]\n{}", keys(settings)));
    text.push_str(&tables.collect::<Vec<_>>().join("\n"));
    text
}

/// The keys that are set, one a line.
fn keys(settings: &LegSettings) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    if let Some(control) = &settings.congestion_control {
        line("congestion_control", format!("\"{control}\""));
    }
    if let Some(window) = settings.initial_window {
        line("initial_window", window.to_string());
    }
    if let Some(rate) = settings.pacing_rate {
        line("pacing_rate", format!("\"{rate}\""));
    }
    if let Buffer::Fixed(size) = settings.receive_buffer {
        line("receive_buffer", format!("\"{size}\""));
    }
    if let Some(ReceiveWindow::Fixed(size)) = settings.receive_window {
        line("receive_window", format!("\"{size}\""));
    }
    if settings.sending_ahead.is_some() {
        line("sending_ahead", "\"off\"".to_owned());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_document::Source;
    use midspan_proxy::configuration::Configuration;
    use midspan_units::TimeSpan;

    fn options(up: Option<&str>, down: Option<&str>) -> TwoSidedOptions {
        TwoSidedOptions {
            two_sided: None,
            rate_up: up.map(|rate| rate.parse().unwrap()),
            rate_down: down.map(|rate| rate.parse().unwrap()),
            round_trip: TimeSpan::from_milliseconds(600),
        }
    }

    #[test]
    fn each_end_gets_a_configuration_with_the_settings_of_its_leg() {
        let options = options(Some("2 Mbit/s"), Some("20 Mbit/s"));
        let link = TwoSidedLink {
            up: options.rate_up.unwrap(),
            down: options.rate_down.unwrap(),
            round_trip: options.round_trip,
        };
        for end in [End::Terminal, End::Hub] {
            let text = configuration(end, &options, "\"eth1\"");
            let read = Configuration::read(&Source::new("test", text.clone())).unwrap();
            let session = &read.listeners[0].relay.session;
            let (leg, expected) = match end {
                End::Terminal => (&session.server, link.terminal()),
                End::Hub => (&session.client, link.hub()),
            };
            assert_eq!(keys(leg), keys(&expected), "{text}");
            assert_eq!(leg.pacing_rate, expected.pacing_rate, "{text}");
            assert_eq!(leg.initial_window, expected.initial_window, "{text}");
            assert_eq!(leg.receive_window, expected.receive_window, "{text}");
            if end == End::Hub {
                let buffer = link.hub_to_servers().receive_buffer;
                assert_eq!(session.server.receive_buffer, buffer, "{text}");
            }
        }
    }

    #[test]
    fn without_rates_the_policy_finds_them_out() {
        for end in [End::Terminal, End::Hub] {
            let text = configuration(end, &options(None, None), "\"eth1\"");
            let read = Configuration::read(&Source::new("test", text)).unwrap();
            let session = &read.listeners[0].relay.session;
            assert!(session.opens_windows() && session.sends_ahead());
            assert_eq!(session.client.pacing_rate, None);
        }
    }
}
