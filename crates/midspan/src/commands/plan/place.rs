//! `midspan plan place`: the possible places of proxies, the best first.

use midspan_plan::{Answer, DataPath, along, at, limit_name, place as ranked};
use midspan_records::{By, Record, Records};
use midspan_report::{Axis, Content, LinePlot, Report, Section, Series, pivot, stdout_width};
use miette::IntoDiagnostic;

use super::{load, output};
use crate::commands::Outcome;
use crate::plan_arguments::PlaceOptions;
use crate::printing;

/// Ranks and prints.
pub fn place(options: &PlaceOptions) -> Outcome {
    let path = load(&options.path.path, &options.path.set)?;
    let keep = usize::try_from(options.keep).unwrap_or(usize::MAX);
    let mut records = Records::default();
    let mut plot = LinePlot {
        title: format!("One proxy on the path \"{}\"", path.name),
        x: Axis::new("place along the link", "share"),
        y: Axis::new("throughput", "bit/s"),
        series: Vec::new(),
    };
    let mut sentences = Vec::new();
    for data_path in DataPath::of_path(&path).into_diagnostic()? {
        let direct = Answer::new(&data_path, &[]).into_diagnostic()?;
        let name = data_path.name();
        let case = format!("{name} direct");
        records.records.push(throughput(&path.name, &case, &direct));
        let places = data_path.nodes.len().saturating_sub(2);
        let counts = match options.proxies {
            Some(count) => vec![usize::try_from(count).unwrap_or(usize::MAX)],
            None => (1..=2).filter(|count| *count <= places).collect(),
        };
        for count in counts {
            let ranking = ranked(&data_path, count, keep).into_diagnostic()?;
            for (rank, placement) in ranking.placements.iter().enumerate() {
                let answer = Answer::new(&data_path, &at(&data_path, &placement.positions))
                    .into_diagnostic()?;
                let nodes: Vec<&str> = placement
                    .positions
                    .iter()
                    .filter_map(|position| data_path.nodes.get(*position).map(String::as_str))
                    .collect();
                let nodes = nodes.join(" and ");
                if rank == 0 {
                    sentences.push(advice(&name, &nodes, &direct, &answer));
                }
                let mut record = throughput(&path.name, &format!("{name} at {nodes}"), &answer);
                if !ranking.exhaustive {
                    record = record.with_note(format!(
                        "the best of {} placements that were tried, not of all",
                        ranking.examined
                    ));
                }
                records.records.push(record);
            }
        }
        let tenths = along(&data_path).into_diagnostic()?;
        if let Some(best) = tenths
            .iter()
            .max_by(|a, b| a.answer.throughput().total_cmp(&b.answer.throughput()))
        {
            let case = format!("{name} at {:.0} % of {}", best.share * 100.0, best.link);
            let record = throughput(&path.name, &case, &best.answer);
            records.records.push(record.with_note(
                "the best tenth of the link with the longest delay, were it a route with places \
                 of its own and its loss even along it",
            ));
            plot.series.push(Series {
                name: format!("{name}, along {}", best.link),
                points: tenths
                    .iter()
                    .map(|tenth| (tenth.share, tenth.answer.throughput()))
                    .collect(),
            });
        }
    }
    let title = format!("Places for a proxy on the path \"{}\"", path.name);
    let table = pivot(&title, &records.records);
    if options.path.results.output.json {
        printing::line(records.to_json());
    } else {
        printing::line(format_args!("{}\n", sentences.join("\n")));
        printing::text(table.to_text(stdout_width()));
    }
    output::write_plot(&options.path.results, &plot, || Report {
        title,
        summary: sentences.join(" "),
        command: printing::command_line(),
        sections: vec![Section {
            heading: "Places".to_owned(),
            text: String::new(),
            content: vec![Content::Table(table), Content::Lines(plot.clone())],
        }],
        records: records.clone(),
        ..Report::default()
    })?;
    Ok(true)
}

fn throughput(item: &str, case: &str, answer: &Answer) -> Record {
    let value = answer.throughput();
    let bound = limit_name(answer.outcome.limit());
    Record::new(item, case, "throughput", "bit/s", By::Analysis, value)
        .with_note(format!("bound by {bound} on {}", answer.slowest_leg()))
}

fn advice(data_path: &str, nodes: &str, direct: &Answer, best: &Answer) -> String {
    let gain = best
        .outcome
        .throughput
        .ratio(direct.outcome.throughput)
        .unwrap_or(1.0);
    if gain < 1.05 {
        return format!(
            "{data_path}: a proxy hardly increases the throughput; the best place is {nodes}."
        );
    }
    format!(
        "{data_path}: put {} at {nodes}, because the slowest leg, {}, is fastest there: {} end to end \
         instead of {}, {gain:.1} times as much.",
        if best.legs.len() > 2 {
            "the proxies"
        } else {
            "the proxy"
        },
        best.slowest_leg(),
        best.outcome.throughput,
        direct.outcome.throughput,
    )
}
