//! Measures how fast one core cuts oversized segments.
//!
//! Without options, the program measures the cutting alone, without the kernel. With `--kernel`, a real
//! Midspan in a network namespace sends downloads over TCP to clients in another one. Midspan's
//! fragmenter thread reads the packets from a TUN device and sends the fragments through raw sockets.
//! The program prints the goodput, the CPU time of this thread, and the goodput that one core could
//! carry, which follows from both. (On the virtual link, this thread also does the work of the network
//! and of the clients' IP.) `--kernel` needs root, or a user who may make namespaces and open
//! `/dev/net/tun`.

mod cutting;
mod kernel;

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use midspan_records::{By, Record};
use midspan_units::BitRate;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
#[command(about, long_about = None)]
struct Arguments {
    /// Measure a real Midspan
    #[arg(long)]
    kernel: bool,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Connections at a time, each with a client address of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,
    /// Rate to which each connection is paced
    #[arg(long, default_value = "250 Mbit/s")]
    rate: BitRate,
    /// Bytes of data in an oversized segment
    #[arg(long, default_value_t = 13_300)]
    size: u32,
    /// Largest fragments in bytes
    #[arg(long, default_value_t = 1500)]
    fragment_size: u32,
    /// Print JSON records instead of lines
    #[arg(long)]
    json: bool,
}

/// One measured value.
struct Measured {
    case: String,
    quantity: &'static str,
    unit: &'static str,
    value: f64,
}

impl Measured {
    fn new(case: &str, quantity: &'static str, unit: &'static str, value: f64) -> Self {
        Self {
            case: case.to_owned(),
            quantity,
            unit,
            value,
        }
    }
}

fn main() -> Result<(), Failure> {
    let started: Vec<String> = std::env::args().skip(1).collect();
    if let Some(result) = kernel::midspan(&started) {
        return result;
    }
    let arguments = Arguments::parse();
    let span = Duration::from_secs(arguments.seconds);
    let measured = match arguments.kernel {
        true => kernel::measure(&arguments, span)?,
        false => cutting::measure(span),
    };
    print(&arguments, &measured);
    Ok(())
}

fn print(arguments: &Arguments, measured: &[Measured]) {
    if arguments.json {
        let record = |one: &Measured| {
            let by = By::Measurement;
            Record::new(
                "fragmenter",
                &one.case,
                one.quantity,
                one.unit,
                by,
                one.value,
            )
        };
        let records: Vec<Record> = measured.iter().map(record).collect();
        println!("{}", serde_json::json!({ "records": records }));
        return;
    }
    let mut case = "";
    for one in measured {
        if one.case != case {
            case = &one.case;
            println!("{case}:");
        }
        let decimals = if one.value < 1000.0 { 3 } else { 0 };
        println!("  {}: {:.decimals$} {}", one.quantity, one.value, one.unit);
    }
}
