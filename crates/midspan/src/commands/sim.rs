//! `midspan sim PATH`: flows in virtual time.

use midspan_lab::Case;
use midspan_lab::results::case_name;
use midspan_path::{Order, Path};
use midspan_records::{By, Record, Records};
use midspan_report::{pivot, stdout_width};
use midspan_sim::{FlowResults, Results, Scenario, Simulation, StopReason};
use midspan_units::{BitRate, Time};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::{Outcome, choose_flows};
use crate::arguments::SimOptions;

/// Runs a path in the simulator, without its proxies and with them.
pub fn sim(options: &SimOptions) -> Outcome {
    let mut path = Path::load(&options.path)?;
    if let Some(seed) = options.seed {
        path.seed = seed;
    }
    choose_flows(&mut path, &options.flows)?;
    let mut records = Records::default();
    for case in [Case::Direct, Case::Midspan] {
        let proxies = case == Case::Midspan;
        if proxies && path.proxies().next().is_none() {
            continue;
        }
        let scenarios = Scenario::from_path(&path, proxies)
            .into_diagnostic()
            .wrap_err_with(|| format!("the path \"{}\" cannot be simulated", path.name))?;
        for (index, scenario) in scenarios.iter().enumerate() {
            let results = Simulation::new(scenario).into_diagnostic()?.run();
            let first = match path.order {
                Order::InTurn => index,
                Order::Together => 0,
            };
            add(&mut records, &path, first, case, &results)?;
        }
    }
    if options.output.json {
        println!("{}", records.to_json());
    } else {
        let title = format!("Simulated flows over the path \"{}\"", path.name);
        print!(
            "{}",
            pivot(&title, &records.records).to_text(stdout_width())
        );
    }
    Ok(true)
}

/// The records of one simulation, whose flows begin with the path's flow number `first`.
fn add(
    records: &mut Records,
    path: &Path,
    first: usize,
    case: Case,
    results: &Results,
) -> miette::Result<()> {
    if matches!(results.stop, StopReason::Stalled | StopReason::EventLimit) {
        return Err(miette!(
            "the simulation of \"{}\" does not end: {:?}, after {} of virtual time",
            path.name,
            results.stop,
            results.until.since(Time::ZERO)
        ));
    }
    for (flow, result) in path.flows[first..].iter().zip(&results.flows) {
        let name = case_name(flow, case);
        let mut push = |quantity: &str, unit: &str, value: f64| {
            let record = Record::new(&path.name, &name, quantity, unit, By::Simulation, value);
            records.push(record);
        };
        let end = result.finished.unwrap_or(results.until);
        let span = end.since(Time::ZERO + flow.start);
        if flow.workload.total_size().is_some() {
            push("completion time", "s", span.as_seconds());
        }
        if let Some(goodput) = BitRate::from_transfer(result.delivered, span) {
            #[allow(clippy::cast_precision_loss)]
            let goodput = goodput.bits_per_second() as f64;
            push("goodput", "bit/s", goodput);
            if let Some(rate) = path.data_rate(flow) {
                #[allow(clippy::cast_precision_loss)]
                let share = goodput / rate.bits_per_second() as f64;
                push("share of the link", "share", share);
            }
        }
        #[allow(clippy::cast_precision_loss)]
        push(
            "retransmissions",
            "segments",
            retransmissions(result) as f64,
        );
    }
    Ok(())
}

fn retransmissions(flow: &FlowResults) -> u64 {
    let legs = flow.legs.iter();
    legs.map(|leg| leg.sender.retransmissions).sum()
}
