//! TCP stacks as clients of a gateway that sends oversized segments; see the library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use client_stacks::Failure;
use client_stacks::measure::{Plan, measure};
use client_stacks::midspan;
use client_stacks::network::Family;
use client_stacks::stack::{Ready, Stack};
use client_stacks::table::{Line, records, tables};
use indicatif::{ProgressBar, ProgressStyle};
use midspan_report::stdout_width;
use midspan_units::BitRate;

/// The default folder in which clients are built.
const BUILD_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/client-stacks");
/// Exit status if a download failed.
const FAILED: u8 = 3;

/// Measures TCP stacks as clients of a gateway that sends oversized segments: which stacks accept
/// these segments, up to which size, and with how many ACKs. Every download must be complete, also if
/// the stack does not accept the segments.
///
/// Builds the clients: lwIP's with cc and pkg-config (Debian: liblwip-dev), gVisor's with go,
/// smoltcp's with cargo. A stack whose tools are missing is listed as not measured.
///
/// Example: `cargo run --release -p client-stacks -- --stacks linux,smoltcp`
#[derive(Parser, Debug)]
#[command(about)]
struct Arguments {
    /// Stacks to measure; all by default
    #[arg(long, value_delimiter = ',', value_enum)]
    stacks: Vec<Stack>,
    /// Bytes of each download
    #[arg(long, default_value_t = 1_000_000)]
    bytes: usize,
    /// Rate of the link downstream, also in Midspan's profile
    #[arg(long, default_value = "8 Mbit/s")]
    rate: BitRate,
    /// Sizes of oversized segments to measure, in bytes
    #[arg(long, value_delimiter = ',', default_values_t = [4420, 8860, 13_300, 23_660, 47_340])]
    sizes: Vec<usize>,
    /// Where clients are built [default: target/client-stacks]
    #[arg(long)]
    build: Option<PathBuf>,
    /// Print JSON records instead of tables
    #[arg(long)]
    json: bool,
    /// Print the tables as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match midspan::main(&arguments) {
        Some(result) => result.map(|()| true),
        None => compare(Arguments::parse()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(failure) => {
            eprintln!("client-stacks: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every download that was started finished.
fn compare(mut arguments: Arguments) -> Result<bool, Failure> {
    if arguments.stacks.is_empty() {
        arguments.stacks = Stack::value_variants().to_vec();
    }
    arguments.sizes.sort_unstable();
    let plan = Plan {
        bytes: arguments.bytes,
        rate: arguments.rate,
        sizes: arguments.sizes,
    };
    let folder = arguments.build.unwrap_or_else(|| BUILD_FOLDER.into());
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    // The build tools may need the host's network, which the process leaves below.
    let ready: Vec<_> = arguments
        .stacks
        .iter()
        .map(|stack| (*stack, prepare(*stack, &folder)))
        .collect();
    midspan_linux::namespace::isolate()?;

    let bar = ProgressBar::new((ready.len() * Family::ALL.len() * plan.downloads()) as u64);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} downloads  {elapsed_precise}, {eta} left  {msg}",
    )?);
    let mut lines = Vec::new();
    let mut failed = false;
    for (stack, prepared) in ready {
        for family in Family::ALL {
            let (name, outcome) = match &prepared {
                Err(why) => (stack.name().to_owned(), Err(why.clone())),
                Ok(ready) => {
                    let name = format!("{} {}", stack.name(), ready.version);
                    bar.set_message(format!("{name}, {}", family.name()));
                    let outcome = measure(ready.program.as_deref(), family, &plan, &|| bar.inc(1));
                    failed |= outcome.is_err();
                    (name, outcome.map_err(|failure| failure.to_string()))
                }
            };
            lines.push(Line {
                stack: name,
                family: family.name(),
                outcome,
            });
        }
    }
    bar.finish_and_clear();
    let records = records(&lines, &plan);
    if arguments.json {
        println!("{}", records.to_json());
    } else {
        for table in tables(&records, &plan) {
            match arguments.markdown {
                true => println!("{}", table.to_markdown()),
                false => println!("{}", table.to_text(stdout_width())),
            }
        }
    }
    for why in lines.iter().filter_map(Line::why_not) {
        eprintln!("{why}");
    }
    Ok(!failed)
}

fn prepare(stack: Stack, folder: &Path) -> Result<Ready, String> {
    eprintln!("client-stacks: building the client of {}", stack.name());
    stack.prepare(folder)
}
