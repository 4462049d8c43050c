//! Writes a report with invented numbers, to show the layout: `cargo run -p midspan-report
//! --example sample -- OUT.html`. Its table goes to standard output, its pictures to SVG files next
//! to OUT.html.

mod data;

use std::path::PathBuf;

use midspan_report::{Content, stdout_width};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err("write the name of the file to make: sample OUT.html".into());
    };
    let report = data::report();
    std::fs::write(&path, report.to_html()?)?;
    if let Some(picture) = &report.picture {
        std::fs::write(path.with_extension("path.svg"), picture.to_svg()?)?;
    }
    let content = report.sections.iter().flat_map(|section| &section.content);
    for (number, content) in content.enumerate() {
        let svg = match content {
            Content::Table(table) => {
                print!("{}", table.to_text(stdout_width()));
                continue;
            }
            Content::Bars(plot) => plot.to_svg()?,
            Content::Lines(plot) => plot.to_svg()?,
            Content::Intervals(plot) => plot.to_svg()?,
            Content::Panels(plot) => plot.to_svg()?,
            Content::Heat(plot) => plot.to_svg()?,
        };
        std::fs::write(path.with_extension(format!("{number}.svg")), svg)?;
    }
    println!("report written to {}", path.display());
    Ok(())
}
