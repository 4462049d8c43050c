//! `real-clients`: runs real programs through Midspan and compares with plain routing.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use midspan_conformance::Family;
use midspan_conformance::case::fits;
use midspan_real_clients::{Case, Gateway, Outcome, Plan, Verdict, cases, results, run};

/// Any error that stops the suite.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Exit status if a line differs.
const DIFFERS: u8 = 3;

/// Runs real programs through Midspan and compares with plain routing.
///
/// Each case runs programs of Debian in network namespaces of its own, first with plain routing,
/// then with Midspan on the gateway, behind the firewall of the gateway guide and mostly its
/// masquerade. Cases whose programs are not installed are skipped and listed
/// (`scripts/install-dependencies real-clients` installs all programs). Exit status: 0 if all
/// differences have a documented reason, 3 if one has none, 1 for an error or if a case does not
/// work with plain routing.
#[derive(Parser, Debug)]
#[command(
    name = "real-clients",
    max_term_width = 100,
    after_help = "Examples:\n  real-clients --list\n  real-clients --only 'curl*;ssh*'\n  \
                  real-clients --gateways early --cases '*FTP*' --json"
)]
struct Arguments {
    /// Only cases whose names fit one of these patterns (* any text, ? any character)
    #[arg(long, alias = "cases", value_delimiter = ';', value_name = "CASES")]
    only: Vec<String>,
    /// Kinds of gateways to compare with plain routing: end-to-end, early, socks5, http
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "GATEWAY",
        default_value = "end-to-end,early,socks5,http"
    )]
    gateways: Vec<String>,
    /// Only over IPv4
    #[arg(long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only over IPv6
    #[arg(long)]
    ipv6: bool,
    /// Midspan's executable [default: `midspan` in the folder of this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// List the cases, with the Debian packages that they need, and run nothing
    #[arg(long)]
    list: bool,
    /// Show the output of each client's script
    #[arg(long)]
    show: bool,
    /// Print the table as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON records instead of a table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("real-clients: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let chosen = chosen_cases(&arguments.only)?;
    if arguments.list {
        list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    let plan = Plan {
        cases: chosen,
        families: match (arguments.ipv4, arguments.ipv6) {
            (true, false) => vec![Family::V4],
            (false, true) => vec![Family::V6],
            _ => vec![Family::V4, Family::V6],
        },
        gateways: known_gateways(&arguments.gateways)?,
        program: program(arguments.program.as_ref())?,
    };
    // The process leaves the host's network; an ordinary user becomes root of a user namespace.
    midspan_linux::namespace::isolate()?;
    let bar = progress_bar(plan.outcomes());
    let results = run(&plan, &mut |outcome| {
        bar.inc(1);
        bar.set_message(format!("{}, {}", outcome.case, outcome.gateway.name()));
        if let Some(text) = report(outcome, arguments.show) {
            match bar.is_hidden() {
                true => eprintln!("{text}"),
                false => bar.println(text),
            }
        }
    });
    bar.finish_and_clear();
    let results = results?;
    if arguments.json {
        println!("{}", results::records(&results).to_json());
    } else if arguments.markdown {
        print!("{}", results::table(&results).to_markdown());
    } else {
        let width = midspan_report::stdout_width();
        print!("{}", results::table(&results).to_text(width));
    }
    Ok(if !results.nothing_differs() {
        ExitCode::from(DIFFERS)
    } else if !results.nothing_void() {
        eprintln!("real-clients: a case does not work with plain routing");
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn list(cases: &[Case]) {
    for case in cases {
        let mut packages: Vec<&str> = case.needs.iter().map(|needed| needed.package).collect();
        packages.dedup();
        println!("{} ({})", case.name, packages.join(", "));
    }
}

/// The text to print when an outcome is known. If something is wrong, it contains everything that
/// was recorded.
fn report(outcome: &Outcome, show: bool) -> Option<String> {
    let name = format!(
        "{}, {}, {}",
        outcome.case,
        outcome.family.name(),
        outcome.gateway.name()
    );
    match outcome.verdict {
        Verdict::Same | Verdict::Explained(_) if !show => None,
        Verdict::Same | Verdict::Explained(_) => Some(format!("{name}:\n{}", outcome.seen)),
        Verdict::Different => Some(format!(
            "{name} DIFFERS:\n  with plain routing:\n{}  seen:\n{}{}",
            outcome.expected, outcome.seen, outcome.background
        )),
        Verdict::Void => Some(format!(
            "{name} does not work:\n{}{}",
            outcome.seen, outcome.background
        )),
    }
}

fn progress_bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let template = "{bar:30} {pos}/{len}  {elapsed_precise}  {wide_msg}";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn program(given: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    let program = match given {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("midspan"),
    };
    program
        .canonicalize()
        .map_err(|error| format!("{}: {error}", program.display()).into())
}

fn chosen_cases(patterns: &[String]) -> Result<Vec<Case>, Failure> {
    let mut chosen = cases::all();
    for pattern in patterns {
        if !chosen.iter().any(|case| fits(pattern, case.name)) {
            let near = midspan_document::nearest(pattern, chosen.iter().map(|case| case.name));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
            return Err(format!("no case fits \"{pattern}\"{hint}; see --list").into());
        }
    }
    if !patterns.is_empty() {
        chosen.retain(|case| patterns.iter().any(|pattern| fits(pattern, case.name)));
    }
    Ok(chosen)
}

fn known_gateways(names: &[String]) -> Result<Vec<Gateway>, Failure> {
    names
        .iter()
        .map(|name| {
            let mut all = Gateway::ALL.into_iter();
            all.find(|gateway| gateway.name() == name).ok_or_else(|| {
                let known = Gateway::ALL.map(Gateway::name).join(", ");
                format!("no gateway is called \"{name}\"; there are {known}").into()
            })
        })
        .collect()
}
