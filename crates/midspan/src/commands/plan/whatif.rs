//! `midspan plan whatif`: variants of a path side by side.

use midspan_document::Override;
use midspan_path::Path;
use midspan_plan::Plan;
use midspan_records::{Record, Records};
use midspan_report::{pivot, stdout_width};
use miette::IntoDiagnostic;

use crate::commands::Outcome;
use crate::plan_arguments::WhatifOptions;
use crate::printing;

/// Analyses the path as it is and each variant of it.
pub fn whatif(options: &WhatifOptions) -> Outcome {
    let mut records = Records {
        records: variant(&options.path, "")?,
    };
    for text in &options.variants {
        records.records.extend(variant(&options.path, text)?);
    }
    if options.output.json {
        printing::line(records.to_json());
    } else {
        let title = format!("Variants of the path \"{}\"", options.path);
        printing::text(pivot(&title, &records.records).to_text(stdout_width()));
    }
    Ok(true)
}

/// The result from end to end with the values of `text`; semicolons separate several values.
fn variant(path: &str, text: &str) -> miette::Result<Vec<Record>> {
    let overrides = text
        .split(';')
        .filter(|part| !part.trim().is_empty())
        .map(|part| Override::parse("KEY=VALUE", part))
        .collect::<Result<Vec<_>, _>>()?;
    let path = Path::load_with(path, &overrides)?;
    let plan = Plan::new(&path).into_diagnostic()?;
    let name = if overrides.is_empty() {
        "as it is"
    } else {
        text
    };
    let mut records = Vec::new();
    for data_path in &plan.data_paths {
        for (case, answer) in data_path.cases() {
            records.extend(answer.records(name, &format!("{} {case}", data_path.data_path.name())));
        }
    }
    Ok(records)
}
