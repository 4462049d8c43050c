//! `midspan overlay`: the nodes of an overlay, the routes to a destination, and the registry of nodes.

mod key;
#[cfg(feature = "lab")]
mod simulate;

use midspan_proxy::client::{self, Place};
use midspan_proxy::command::find_socket;
use midspan_proxy::overlay::{CandidateRow, LegRow, OverlayReport, RoutesReport};
use midspan_proxy::registry::{Credentials, FollowOptions, Follower, Look};
use midspan_report::{Alignment, Cell, Table, stdout_width};
use midspan_top::numbers;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Outcome;
use crate::control_options::ControlOptions;
use crate::overlay_arguments::{FollowArguments, OverlayCommand, OverlayOptions, RoutesOptions};
use crate::printing;

/// Shows the nodes or the routes to a destination, or follows the registry.
pub fn overlay(options: &OverlayOptions) -> Outcome {
    match &options.what {
        OverlayCommand::Status(options) => {
            let report: OverlayReport = get(options, "/overlay")?;
            print(options, &report, status_text)
        }
        OverlayCommand::Routes(options) => {
            let report: RoutesReport = get(&options.control, &query(options)?)?;
            print(&options.control, &report, routes_text)
        }
        OverlayCommand::Follow(arguments) => follow(arguments),
        OverlayCommand::Key(options) => key::key(options),
        #[cfg(feature = "lab")]
        OverlayCommand::Simulate(options) => simulate::simulate(options),
        #[cfg(not(feature = "lab"))]
        OverlayCommand::Simulate(_) => crate::lab_package::become_lab(),
    }
}

/// Writes the members that the registry has; without `--once` until a signal ends the command.
fn follow(arguments: &FollowArguments) -> Outcome {
    let mut follower = Follower::new(FollowOptions {
        endpoints: arguments.etcd.clone(),
        prefix: arguments.prefix.clone(),
        credentials: credentials(arguments)?,
        file: arguments.members.clone(),
    })
    .into_diagnostic()?;
    let file = arguments.members.display();
    if follower.is_other_file() {
        printing::warning(format_args!(
            "{file} was not written by this command: the entries of the registry will replace it"
        ));
    }
    let mut reported = String::new();
    loop {
        let look = follower.look();
        if arguments.once {
            return shown(&look.into_diagnostic()?, arguments);
        }
        let faults = match &look {
            Ok(look) => {
                if look.is_written {
                    let Look {
                        nodes, revision, ..
                    } = look;
                    printing::note(format_args!("{file}: {nodes} nodes, revision {revision}"));
                }
                look.faults.join("; ")
            }
            Err(error) => format!("the members stay as they are: {error}"),
        };
        if faults != reported {
            match faults.as_str() {
                "" => printing::note("the registry is in order again"),
                _ => printing::warning(&faults),
            }
            reported = faults;
        }
        std::thread::sleep(arguments.interval.into());
    }
}

fn shown(look: &Look, arguments: &FollowArguments) -> Outcome {
    if arguments.output.json {
        printing::json(look)?;
        return Ok(true);
    }
    look.faults.iter().for_each(printing::warning);
    let how = if look.is_written {
        "written"
    } else {
        "unchanged"
    };
    let (file, nodes) = (arguments.members.display(), look.nodes);
    printing::line(format_args!(
        "{file}: {how}, {nodes} nodes, revision {}",
        look.revision
    ));
    Ok(true)
}

fn credentials(arguments: &FollowArguments) -> miette::Result<Option<Credentials>> {
    let (Some(user), Some(file)) = (&arguments.user, &arguments.password_file) else {
        return Ok(None);
    };
    let password = std::fs::read_to_string(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read {}", file.display()))?;
    Ok(Some(Credentials {
        user: user.clone(),
        password: password.trim_end_matches(['\r', '\n']).to_owned(),
    }))
}

fn query(options: &RoutesOptions) -> miette::Result<String> {
    let destination = &options.destination;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".:-_[]".contains(letter);
    if destination.is_empty() || !destination.chars().all(is_plain) {
        return Err(miette!(
            "\"{destination}\" is no destination: write an address or a name, as in 203.0.113.7:443"
        ));
    }
    let mut query = format!("/overlay/routes?destination={destination}");
    if let Some(client) = options.client {
        query += &format!("&client={client}");
    }
    Ok(query)
}

fn get<T: DeserializeOwned>(options: &ControlOptions, path: &str) -> miette::Result<T> {
    let socket = find_socket(options.socket.as_deref(), options.config.as_deref())?;
    let (status, text) = client::get(Place::Socket(socket), path).into_diagnostic()?;
    match status {
        200 => serde_json::from_slice(text.as_bytes())
            .into_diagnostic()
            .wrap_err("the answer is not of this version of Midspan"),
        status => Err(miette!("status {status}: {}", text.trim())),
    }
}

fn print<T: Serialize>(
    options: &ControlOptions,
    report: &T,
    text: fn(&T, Option<u16>) -> String,
) -> Outcome {
    if options.output.json {
        printing::json(report)?;
    } else {
        printing::text(text(report, stdout_width()));
    }
    Ok(true)
}

fn table(title: &str, columns: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = Table::new(title);
    for column in columns {
        table.add_column(column, Alignment::Left);
    }
    for row in rows {
        table.add_row(row.iter().map(|text| Cell::new(text)).collect());
    }
    table.to_text(width)
}

fn status_text(report: &OverlayReport, width: Option<u16>) -> String {
    let Some(own) = &report.node else {
        return "this Midspan is part of no overlay\n".to_owned();
    };
    let measures = match report.measures {
        true => "",
        false => "; it exchanges no measurements (`measure` in [overlay])",
    };
    let mut text = format!("this node: {own}{measures}\n\n");
    let nodes = report.nodes.iter().map(|node| {
        let mut row = vec![
            node.name.clone(),
            node.address.clone().unwrap_or_else(unknown),
            roles(node.transit, node.exit).to_owned(),
            node.overload.clone().unwrap_or_else(|| node.health.clone()),
            node.heard_seconds.map_or_else(unknown, numbers::age),
            format!("{} / {}", node.sessions_to, node.sessions_from),
            node.warm.ready.to_string(),
        ];
        row.extend(leg(&node.leg));
        row
    });
    text += &table(
        "Nodes, and the legs to them",
        &[
            "node",
            "address",
            "role",
            "state",
            "heard",
            "sessions to / from",
            "warm",
            "rtt",
            "loss",
            "rate",
            "congestion control",
        ],
        nodes.collect(),
        width,
    );
    let reports = report.nodes.iter().flat_map(|node| {
        let report = node.reports.iter();
        report.flat_map(move |report| {
            report.legs.iter().map(move |(to, of_leg)| {
                let mut row = vec![
                    format!("{} to {to}", node.name),
                    numbers::age(report.age_seconds),
                ];
                row.extend(leg(of_leg));
                row
            })
        })
    });
    let reports: Vec<_> = reports.collect();
    if !reports.is_empty() {
        let columns = ["leg", "age", "rtt", "loss", "rate", "congestion control"];
        text += "\n";
        text += &table("Legs that other nodes report", &columns, reports, width);
    }
    let exits = report.exits.iter().map(|exit| {
        vec![
            exit.exit.clone(),
            exit.route
                .as_ref()
                .map_or_else(unknown, |route| route.join(" ")),
            exit.changes.to_string(),
        ]
    });
    let exits: Vec<_> = exits.collect();
    if !exits.is_empty() {
        text += "\n";
        text += &table(
            "Present routes",
            &["exit", "route", "changes"],
            exits,
            width,
        );
    }
    let sessions = report.routes.iter().map(|row| {
        let route = match row.route.is_empty() {
            true => "leaves here".to_owned(),
            false => row.route.join(" "),
        };
        vec![row.listener.clone(), route, row.sessions.to_string()]
    });
    let sessions: Vec<_> = sessions.collect();
    if !sessions.is_empty() {
        let columns = ["listener", "route", "sessions"];
        text += "\n";
        text += &table("Sessions by route", &columns, sessions, width);
    }
    text
}

fn routes_text(report: &RoutesReport, width: Option<u16>) -> String {
    let reason = match report.reason.as_str() {
        "operator" => "a route of the configuration names the nodes",
        "by_address" => "the address decides: ask for the address of the server",
        "no_exit" => "no node that may be chosen serves this destination",
        "nothing_better" => "no route is clearly better",
        "present" => "it is the present route, and no other one is clearly better",
        "less_loaded" => "it is as good as the present route, and less loaded",
        "unmeasured" => "nothing is measured yet",
        "better_here" => "earlier sessions that left here got more",
        "others_failed" => "no other route works",
        other => other,
    };
    let chosen = match report.decision.as_str() {
        "through" => format!("by {}", report.route.join(" ")),
        "here" => "it leaves here".to_owned(),
        "nowhere" => "no route".to_owned(),
        _ => "not decided".to_owned(),
    };
    let mut text = format!(
        "a session with {}: {chosen}, because {reason}\n",
        report.destination
    );
    if report.candidates.is_empty() {
        return text;
    }
    let is_chosen = |candidate: &CandidateRow| match report.decision.as_str() {
        "through" => candidate.route == report.route,
        "here" => candidate.route.is_empty(),
        _ => false,
    };
    let time = |seconds: Option<f64>| match seconds {
        Some(_) => format!("{} ms", numbers::milliseconds(seconds)),
        None => unknown(),
    };
    let rows = report.candidates.iter().map(|candidate| {
        let route = match candidate.route.is_empty() {
            true => "leaves here".to_owned(),
            false => candidate.route.join(" "),
        };
        let note = match (&candidate.obstacle, is_chosen(candidate), candidate.present) {
            (Some(obstacle), true, _) => format!("chosen, although {obstacle}"),
            (None, true, _) => "chosen".to_owned(),
            (Some(obstacle), false, _) => obstacle.clone(),
            (None, false, true) => "the present route".to_owned(),
            (None, false, false) => String::new(),
        };
        vec![
            route,
            time(candidate.to_exit_seconds),
            time(candidate.prediction_seconds),
            note,
        ]
    });
    text += "\n";
    text += &table(
        "Routes, with the predicted time of a transfer",
        &["route", "to the exit", "to the server", "note"],
        rows.collect(),
        width,
    );
    text
}

/// Round trip, loss, rate and congestion control.
fn leg(leg: &LegRow) -> [String; 4] {
    let milliseconds = |seconds| format!("{} ms", numbers::milliseconds(Some(seconds)));
    [
        leg.rtt_seconds.map_or_else(unknown, milliseconds),
        numbers::percent(leg.loss),
        numbers::rate(leg.rate_bits_per_second),
        leg.congestion_control.clone().unwrap_or_else(unknown),
    ]
}

const fn roles(transit: bool, exit: bool) -> &'static str {
    match (transit, exit) {
        (true, true) => "transit, exit",
        (true, false) => "transit",
        (false, true) => "exit",
        (false, false) => "–",
    }
}

fn unknown() -> String {
    numbers::UNKNOWN.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_their_reports_are_tables() {
        let report: OverlayReport = serde_json::from_str(
            r#"{"node":"ams","measures":true,"nodes":[{"name":"fra","address":"10.2.0.2:7704",
            "transit":true,"exit":false,"health":"up","heard_seconds":1.0,"overload":null,
            "rtt_seconds":0.03,"base_rtt_seconds":0.03,"loss":0.001,"rate_bits_per_second":20000000,
            "congestion_control":"bbr","reports":{"age_seconds":2.0,"legs":[["sin",
            {"rtt_seconds":0.07,"base_rtt_seconds":null,"loss":0.01,"rate_bits_per_second":null,
            "congestion_control":"cubic"}]]},"sessions_to":31,"sessions_from":17,"calls_failed":1,
            "hops_refused":[["looping",0]],"warm":{"ready":4,"used":30,"missed":1,"ended":0}}],
            "exits":[{"exit":"sin","route":["fra","sin"],"changes":1}],
            "routes":[{"listener":"socks","route":[],"sessions":12}]}"#,
        )
        .unwrap();
        let said = status_text(&report, Some(200));
        for part in [
            "this node: ams\n",
            "transit",
            "up",
            "20.0 Mbit/s",
            "fra to sin",
            "70 ms",
            "fra sin",
            "31 / 17",
            "leaves here",
        ] {
            assert!(said.contains(part), "{part}:\n{said}");
        }
        assert!(status_text(&OverlayReport::default(), None).contains("no overlay"));
    }

    #[test]
    fn the_chosen_route_is_marked_and_has_a_reason() {
        let report: RoutesReport = serde_json::from_str(
            r#"{"destination":"203.0.113.7:443","decision":"through","route":["fra","sin"],
            "reason":"present","candidates":[{"route":["sin"],"to_exit_seconds":0.9,
            "prediction_seconds":null,"obstacle":"sin is suspect","present":false},
            {"route":["fra","sin"],"to_exit_seconds":0.4,"prediction_seconds":0.5,"obstacle":null,
            "present":true}]}"#,
        )
        .unwrap();
        let said = routes_text(&report, Some(200));
        for part in [
            "by fra sin, because it is the present route",
            "sin is suspect",
            "chosen",
            "400 ms",
        ] {
            assert!(said.contains(part), "{part}:\n{said}");
        }
    }

    #[test]
    fn destinations_are_hosts_with_ports() {
        let options = |destination: &str| RoutesOptions {
            destination: destination.to_owned(),
            client: "192.0.2.7".parse().ok(),
            control: ControlOptions {
                config: None,
                socket: None,
                output: crate::output_arguments::Output { json: false },
            },
        };
        let found = query(&options("[2001:db8::1]:443")).unwrap();
        assert_eq!(
            found,
            "/overlay/routes?destination=[2001:db8::1]:443&client=192.0.2.7"
        );
        assert!(query(&options("a&b")).is_err() && query(&options("")).is_err());
    }
}
