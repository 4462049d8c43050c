//! The analysis of a path.

use midspan_plan::{DataPathPlan, Plan as Inner};
use midspan_records::Record;
use pyo3::prelude::*;

use crate::errors::value;
use crate::path::Path;
use crate::table::{Column, Table};

/// What a proxy gains on a path, where to put it, and how to set it.
#[pyclass(frozen, module = "midspan")]
#[derive(Debug)]
pub struct Plan {
    plan: Inner,
}

#[pymethods]
impl Plan {
    /// Analyses a path.
    #[new]
    fn new(py: Python<'_>, path: &Path) -> PyResult<Self> {
        let plan = py.detach(|| Inner::new(path.inner()));
        Ok(Self {
            plan: plan.map_err(value)?,
        })
    }

    /// The result in sentences.
    #[getter]
    fn text(&self) -> String {
        self.plan.text()
    }

    /// The configuration of a proxy of the path, as the text of a configuration file.
    fn configuration(&self, proxy: &str) -> PyResult<String> {
        self.plan.configuration(proxy).ok_or_else(|| {
            let known = self.plan.proxies().join(", ");
            value(format!(
                "there is no proxy \"{proxy}\"; the path has: {known}"
            ))
        })
    }

    /// All numbers, one a row.
    fn table(&self) -> PyResult<Table> {
        let records: Vec<Record> = (self.plan.data_paths.iter())
            .flat_map(|way: &DataPathPlan| way.records(&self.plan.name))
            .collect();
        let text = |of: fn(&Record) -> &str| {
            Column::Text(records.iter().map(|one| Some(of(one).to_owned())).collect())
        };
        Table::new(vec![
            ("case".to_owned(), text(|one| &one.case)),
            ("quantity".to_owned(), text(|one| &one.quantity)),
            ("unit".to_owned(), text(|one| &one.unit)),
            (
                "value".to_owned(),
                Column::Number(records.iter().map(|one| Some(one.value)).collect()),
            ),
        ])
    }
}
