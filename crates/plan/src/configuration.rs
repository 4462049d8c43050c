//! The configuration of a proxy that a plan recommends.

use std::fmt::Write;

use midspan_policy::{Buffer, LegSettings, Pacing, PacingBy};

use crate::plan::Plan;

impl Plan {
    /// The configuration file of `node` (docs/configuration.md): a transparent listener with the
    /// recommended settings for each leg. If data flows in both directions, each leg gets the
    /// settings that both need. `None` if `node` is no proxy of the path.
    ///
    /// The interface is the only value that the plan cannot contain.
    #[must_use]
    pub fn configuration(&self, node: &str) -> Option<String> {
        let mut legs: Option<(LegSettings, LegSettings)> = None;
        for data_path in &self.data_paths {
            let Some(advice) = data_path.advice.iter().find(|advice| advice.node == node) else {
                continue;
            };
            let settings = &advice.settings;
            let (client, server) = if data_path.data_path.upload {
                (&settings.inbound, &settings.outbound)
            } else {
                (&settings.outbound, &settings.inbound)
            };
            legs = Some(match legs {
                None => (client.clone(), server.clone()),
                Some((before_client, before_server)) => {
                    (join(before_client, client), join(before_server, server))
                }
            });
        }
        let (client, server) = legs?;
        let mut text = format!(
            "# What `midspan plan {}` recommends for {node}.\n\n[[listener]]\nname = \"{node}\"\n\
             mode = \"transparent\"\n# The interface where clients arrive: change it.\n\
             interfaces = [\"lan0\"]\n",
            self.name
        );
        leg(&mut text, "client_leg", &client);
        leg(&mut text, "server_leg", &server);
        Some(text)
    }

    /// The proxies of the path for which the plan has advice.
    #[must_use]
    pub fn proxies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for advice in self
            .data_paths
            .iter()
            .flat_map(|data_path| &data_path.advice)
        {
            if !names.contains(&advice.node.as_str()) {
                names.push(&advice.node);
            }
        }
        names
    }
}

/// Combines two settings: of two sizes or windows the larger, of two rates the higher.
fn join(one: LegSettings, other: &LegSettings) -> LegSettings {
    LegSettings {
        congestion_control: one
            .congestion_control
            .or_else(|| other.congestion_control.clone()),
        initial_window: one.initial_window.max(other.initial_window),
        send_buffer: larger(one.send_buffer, other.send_buffer),
        receive_buffer: larger(one.receive_buffer, other.receive_buffer),
        notsent_lowat: one.notsent_lowat.max(other.notsent_lowat),
        pacing_rate: one.pacing_rate.max(other.pacing_rate),
        pacing: match one.pacing {
            Pacing::Fixed => other.pacing,
            pacing => pacing,
        },
        pacing_by: match one.pacing_by {
            PacingBy::Kernel => other.pacing_by,
            by @ PacingBy::Input => by,
        },
        sending_ahead: one.sending_ahead.or(other.sending_ahead),
        receive_window: one.receive_window.or(other.receive_window),
        keepalive: one.keepalive.or(other.keepalive),
        user_timeout: one.user_timeout.or(other.user_timeout),
    }
}

const fn larger(one: Buffer, other: Buffer) -> Buffer {
    match (one, other) {
        (Buffer::Fixed(a), Buffer::Fixed(b)) => {
            Buffer::Fixed(if a.bytes() >= b.bytes() { a } else { b })
        }
        (Buffer::Adaptive, Buffer::Auto) | (Buffer::Auto, Buffer::Adaptive) => Buffer::Adaptive,
        (Buffer::Auto | Buffer::Adaptive, fixed) => fixed,
        (fixed, Buffer::Auto | Buffer::Adaptive) => fixed,
    }
}

/// Writes a table of the settings that differ from the kernel's defaults, if there are any.
fn leg(text: &mut String, name: &str, settings: &LegSettings) {
    if *settings == LegSettings::default() {
        return;
    }
    // Writing to a string cannot fail.
    let line = |text: &mut String, key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    let _ = writeln!(text, "\n[listener.{name}]");
    let quoted = |value: &dyn std::fmt::Display| format!("\"{value}\"");
    if let Some(control) = &settings.congestion_control {
        line(text, "congestion_control", quoted(control));
    }
    if let Some(window) = settings.initial_window {
        line(text, "initial_window", window.to_string());
    }
    for (key, buffer) in [
        ("send_buffer", settings.send_buffer),
        ("receive_buffer", settings.receive_buffer),
    ] {
        if let Buffer::Fixed(size) = buffer {
            line(text, key, quoted(&size));
        }
    }
    if let Some(size) = settings.notsent_lowat {
        line(text, "notsent_lowat", quoted(&size));
    }
    if let Some(rate) = settings.pacing_rate {
        line(text, "pacing_rate", quoted(&rate));
    }
    if let Some(span) = settings.keepalive {
        line(text, "keepalive", quoted(&span));
    }
    if let Some(span) = settings.user_timeout {
        line(text, "user_timeout", quoted(&span));
    }
}
