//! `midspan plan buffers`: throughput as a function of the proxies' send buffer.

use midspan_plan::{DataPath, KNEE, buffers as curve_of};
use midspan_records::{By, Record, Records};
use midspan_report::units::format;
use midspan_report::{Axis, Content, LinePlot, Report, Section, Series, pivot, stdout_width};
use midspan_units::number;
use miette::IntoDiagnostic;

use super::{load, output};
use crate::commands::Outcome;
use crate::plan_arguments::BuffersOptions;
use crate::printing;

/// Computes and prints the curve of every direction with a proxy.
pub fn buffers(options: &BuffersOptions) -> Outcome {
    let path = load(&options.path.path, &options.path.set)?;
    let mut records = Records::default();
    let mut sentences = Vec::new();
    let mut plot = LinePlot {
        title: format!("Send buffers on the path \"{}\"", path.name),
        x: Axis::new("send buffer of each proxy", "bytes"),
        y: Axis::new("throughput", "bit/s"),
        series: Vec::new(),
    };
    for data_path in DataPath::of_path(&path).into_diagnostic()? {
        let name = data_path.name();
        let curve = curve_of(&data_path).into_diagnostic()?;
        let knee = number(curve.knee.bytes());
        sentences.push(format!(
            "{name}: a send buffer of {} in each proxy gives {:.0} % of what endless ones would; \
             a larger one brings nothing.",
            format(knee, "bytes"),
            KNEE * 100.0
        ));
        let record = Record::new(&path.name, &name, "knee", "bytes", By::Analysis, knee);
        records.push(record);
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .map(|point| {
                let size = number(point.send_buffer.bytes());
                (size, point.throughput.bits_per_second())
            })
            .collect();
        for (size, throughput) in &points {
            let case = format!("{name} with {}", format(*size, "bytes"));
            let by = By::Analysis;
            let record = Record::new(&path.name, &case, "throughput", "bit/s", by, *throughput);
            records.push(record);
        }
        // Beyond four times the knee, the curve is flat.
        let shown = points
            .into_iter()
            .filter(|(size, _)| *size <= 4.0 * knee.max(8192.0));
        plot.series.push(Series {
            name,
            points: shown.collect(),
        });
    }
    let title = format!("Send buffers on the path \"{}\"", path.name);
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
            heading: "Throughput against send buffer".to_owned(),
            text: String::new(),
            content: vec![Content::Lines(plot.clone()), Content::Table(table)],
        }],
        records: records.clone(),
        ..Report::default()
    })?;
    Ok(true)
}
