//! The Python module `midspan._midspan`: paths, plans, sweeps and tables.
//!
//! | module | content |
//! | --- | --- |
//! | [`errors`] | errors of Midspan as Python exceptions |
//! | [`path`] | path files |
//! | [`plan`] | the analysis of a path |
//! | [`sweep`] | simulated runs |
//! | [`table`] | results, as Arrow tables |
//!
//! The Python package around it has what is easier in Python: executors, the lab as a process, pandas.

mod errors;
mod path;
mod plan;
mod sweep;
mod table;

use pyo3::prelude::*;

/// The module.
#[pymodule]
fn _midspan(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<path::Path>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<sweep::Runs>()?;
    module.add_class::<sweep::RunStore>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(path::built_in_paths, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::merge, module)?)
}
