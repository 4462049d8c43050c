//! `midspan learned`: what sessions have left for later ones.

use ipnet::IpNet;
use midspan_proxy::client::{self, Place};
use midspan_proxy::command::{Request, ask, find_socket};
use midspan_proxy::learned::{ForgottenCounts, Learned, LeftAloneRow};
use midspan_report::{Alignment, Cell, Table, stdout_width};
use midspan_top::filter::prefix;
use midspan_top::numbers;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;

use super::Outcome;
use crate::observing_arguments::LearnedOptions;
use crate::printing;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct All {
    #[serde(flatten)]
    learned: Learned,
    /// Routes that are left alone because splitting was found not to help.
    left_alone: Vec<LeftAloneRow>,
}

/// Lists what was learned, or has it forgotten.
pub fn learned(options: &LearnedOptions) -> Outcome {
    let meant = match &options.prefix {
        Some(text) => Some(prefix(text).ok_or_else(|| {
            miette!(
                "\"{text}\" is not an address or prefix: 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32"
            )
        })?),
        None => None,
    };
    let socket = find_socket(options.socket.as_deref(), options.config.as_deref())?;
    if options.forget {
        let prefix = meant.map(|prefix| prefix.to_string());
        let answer = ask(&socket, &Request::Forget { prefix })?;
        if options.output.json {
            printing::json(&answer)?;
        }
        if !answer.ok {
            return Err(miette!("{}", answer.error.unwrap_or_default()));
        }
        if !options.output.json {
            printing::line(forgotten(&answer.forgotten.unwrap_or_default()));
            for note in &answer.notes {
                printing::note(format_args!("note: {note}"));
            }
        }
        return Ok(true);
    }
    let answer = ask(&socket, &Request::LeftAlone)?;
    let left_alone = answer
        .left_alone
        .ok_or_else(|| miette!("{}", answer.error.unwrap_or_default()))?;
    let all = All {
        learned: about(&Place::Socket(socket), meant)?,
        left_alone: of_hosts(left_alone, meant),
    };
    if options.output.json {
        printing::json(&all)?;
    } else {
        printing::text(text(&all, stdout_width()));
    }
    Ok(true)
}

/// What was learned about hosts with this prefix, or about all: all answers together.
///
/// # Errors
/// The relay does not answer.
pub fn about(place: &Place, prefix: Option<IpNet>) -> miette::Result<Learned> {
    let page = |after: Option<&str>| -> miette::Result<Learned> {
        let mut query = String::from("/learned?");
        if let Some(prefix) = prefix {
            query += &format!("prefix={prefix}&");
        }
        if let Some(after) = after {
            query += &format!("after={after}");
        }
        let (status, text) = client::get(place.clone(), &query).into_diagnostic()?;
        match status {
            200 => serde_json::from_slice(text.as_bytes())
                .into_diagnostic()
                .wrap_err("the answer is not of this version of Midspan"),
            status => Err(miette!("status {status}: {}", text.trim())),
        }
    };
    let mut learned = page(None)?;
    while let Some(after) = learned.next.take() {
        learned.append(page(Some(&after))?);
    }
    Ok(learned)
}

/// The routes on which a host with this prefix is at either end.
fn of_hosts(rows: Vec<LeftAloneRow>, prefix: Option<IpNet>) -> Vec<LeftAloneRow> {
    let Some(prefix) = prefix else {
        return rows;
    };
    let is_meant = |network: &str| {
        let network = network.parse::<IpNet>();
        network.is_ok_and(|network| network.contains(&prefix) || prefix.contains(&network))
    };
    rows.into_iter()
        .filter(|row| is_meant(&row.client) || is_meant(&row.servers))
        .collect()
}

fn forgotten(counts: &ForgottenCounts) -> String {
    format!(
        "forgotten: paths {}, cold starts {}, asymmetric routes {}, gains of routes {}, sending ahead {}, \
         server windows {}, verdicts {}, routes left alone {}",
        counts.paths,
        counts.cold_starts,
        counts.asymmetric_routes,
        counts.gains,
        counts.sending_ahead,
        counts.server_windows,
        counts.verdicts,
        counts.left_alone,
    )
}

/// A table for each kind of which something is known.
fn text(all: &All, width: Option<u16>) -> String {
    let learned = &all.learned;
    let mut tables = Vec::new();
    let mut add = |title: &str, columns: &[&str], rows: Vec<Vec<String>>| {
        if rows.is_empty() {
            return;
        }
        let mut table = Table::new(title);
        for column in columns {
            table.add_column(column, Alignment::Left);
        }
        for row in rows {
            table.add_row(row.iter().map(|text| Cell::new(text)).collect());
        }
        tables.push(table.to_text(width));
    };
    add(
        "Paths: what the next connection with a peer begins with",
        &[
            "peer",
            "age",
            "rate",
            "least rtt",
            "losses",
            "window",
            "largest flight",
        ],
        (learned.paths.iter())
            .map(|path| {
                vec![
                    path.peer.clone(),
                    numbers::age(path.age_seconds),
                    numbers::rate(path.rate_bits_per_second),
                    format!("{} ms", numbers::milliseconds(Some(path.min_rtt_seconds))),
                    losses(path.lossy).to_owned(),
                    window(path.window_segments, path.window_halvings),
                    flight(path.flight_bytes),
                ]
            })
            .collect(),
    );
    add(
        "Cold starts: peers whose short sessions lost segments",
        &["peer", "age", "window"],
        (learned.cold_starts.iter())
            .map(|start| {
                vec![
                    start.peer.clone(),
                    numbers::age(start.age_seconds),
                    window(start.window_segments, 0),
                ]
            })
            .collect(),
    );
    add(
        "Asymmetric routes: the servers' answers do not come back through Midspan",
        &["client", "servers", "new connections"],
        (learned.asymmetric_routes.iter())
            .map(|route| {
                let passing = match route.left_seconds {
                    Some(left) => format!("pass untouched for {}", numbers::age(left)),
                    None => "the next one passes untouched, as a test".to_owned(),
                };
                vec![route.client.clone(), route.servers.clone(), passing]
            })
            .collect(),
    );
    add(
        "Left alone: splitting was found not to help",
        &["client", "servers", "new connections"],
        (all.left_alone.iter())
            .map(|route| {
                let passing = format!("pass untouched for {}", numbers::age(route.left_seconds));
                vec![route.client.clone(), route.servers.clone(), passing]
            })
            .collect(),
    );
    add(
        "Gain: goodput of the latest flows of 100 KB or more, split and of the control group",
        &[
            "client",
            "servers",
            "age",
            "split",
            "control group",
            "gain",
            "sessions without gain",
        ],
        (learned.gains.iter())
            .map(|gain| {
                let goodput = |rate, flows| format!("{} ({flows} flows)", numbers::rate(rate));
                vec![
                    gain.client.clone(),
                    gain.servers.clone(),
                    numbers::age(gain.age_seconds),
                    goodput(gain.split_bits_per_second, gain.split_flows),
                    goodput(gain.direct_bits_per_second, gain.direct_flows),
                    gain.ratio.map_or_else(
                        || numbers::UNKNOWN.to_owned(),
                        |ratio| format!("×{ratio:.2}"),
                    ),
                    format!("{} in a row", gain.sessions_without_gain),
                ]
            })
            .collect(),
    );
    add(
        "Oversized segments: clients with an access profile",
        &["client", "age", "oversized segments"],
        (learned.verdicts.iter())
            .map(|verdict| {
                vec![
                    verdict.client.to_string(),
                    numbers::age(verdict.age_seconds),
                    verdict.oversized_segments.clone(),
                ]
            })
            .collect(),
    );
    match tables.is_empty() {
        true => "nothing is learned about these hosts yet (policy = \"auto\" learns)\n".to_owned(),
        false => tables.join("\n"),
    }
}

const fn losses(is_lossy: bool) -> &'static str {
    match is_lossy {
        true => "random",
        false => "from queues",
    }
}

fn window(segments: u32, halvings: u8) -> String {
    match halvings {
        0 => format!("{segments} segments"),
        times => format!("{segments} segments (halved {times} ×)"),
    }
}

fn flight(size: u64) -> String {
    match size {
        0 => numbers::UNKNOWN.to_owned(),
        size => numbers::bytes(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_table_with_units() {
        let learned: Learned = serde_json::from_str(
            r#"{"gain":[],"paths":[{"peer":"192.0.2.1/32","age_seconds":300.0,
            "rate_bits_per_second":8000000,"min_rtt_seconds":0.6,"lossy":true,"flight_bytes":0,
            "window_segments":207,"window_halvings":1}],
            "cold_starts":[{"peer":"192.0.2.2/32","age_seconds":30.0,"window_segments":40}],
            "asymmetric_routes":[{"client":"192.0.2.1/32","servers":"198.51.100.0/24",
            "left_seconds":812.5},{"client":"192.0.2.3/32","servers":"198.51.100.0/24",
            "left_seconds":null}],
            "gains":[{"client":"192.0.2.1/32","servers":"198.51.100.0/24","age_seconds":9.0,
            "split_flows":5,"direct_flows":0,"split_bits_per_second":4000000,
            "direct_bits_per_second":null,"ratio":null,"sessions_without_gain":2}],
            "verdicts":[{"client":"192.0.2.9","oversized_segments":"takes","age_seconds":7200.0}],
            "next":null}"#,
        )
        .unwrap();
        let left_alone = vec![LeftAloneRow {
            client: "192.0.2.1/32".to_owned(),
            servers: "198.51.100.0/24".to_owned(),
            left_seconds: 100.0,
        }];
        let all = All {
            learned,
            left_alone,
        };
        let said = text(&all, Some(200));
        for part in [
            "8.0 Mbit/s",
            "600 ms",
            "random",
            "207 segments (halved 1 ×)",
            "40 segments",
            "pass untouched for 13 min",
            "the next one passes untouched",
            "pass untouched for 100 s",
            "4.0 Mbit/s (5 flows)",
            "– (0 flows)",
            "2 in a row",
            "takes",
            "2 h",
        ] {
            assert!(said.contains(part), "{part}:\n{said}");
        }
    }

    #[test]
    fn nothing_has_a_sentence() {
        let all = All {
            learned: Learned::default(),
            left_alone: Vec::new(),
        };
        assert!(text(&all, None).contains("nothing is learned"));
    }

    #[test]
    fn a_prefix_means_either_end() {
        let row = |client: &str| LeftAloneRow {
            client: client.to_owned(),
            servers: "198.51.100.0/24".to_owned(),
            left_seconds: 1.0,
        };
        let rows = || vec![row("192.0.2.1/32"), row("192.0.2.2/32")];
        let count = |text: &str| of_hosts(rows(), prefix(text)).len();
        assert_eq!(count("192.0.2.1"), 1);
        assert_eq!(count("198.51.100.7"), 2);
        assert_eq!(count("10."), 0);
        assert_eq!(of_hosts(rows(), None).len(), 2);
    }
}
