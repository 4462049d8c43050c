//! `midspan paths`: the built-in paths.

use midspan_report::{Alignment, Cell, Table, stdout_width};

use super::Outcome;
use crate::output_arguments::Output;
use crate::printing;

/// Lists the built-in paths.
pub fn paths(output: Output) -> Outcome {
    let known = midspan_path::built_in();
    if output.json {
        let list: Vec<_> = known
            .iter()
            .map(|path| serde_json::json!({"name": path.name, "description": path.description}))
            .collect();
        printing::line(format_args!("{:#}", serde_json::json!({ "paths": list })));
        return Ok(true);
    }
    let mut table = Table::new("Built-in paths");
    table.add_column("name", Alignment::Left);
    table.add_column("what it is", Alignment::Left);
    for path in known {
        table.add_row(vec![Cell::new(path.name), Cell::new(path.description)]);
    }
    printing::text(table.to_text(stdout_width()));
    Ok(true)
}
