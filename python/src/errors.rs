//! Errors of Midspan as Python exceptions.

use std::fmt::Display;

use midspan_document::Located;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// The exception `midspan.PathError`: an error at a place of a path file, or of a value.
pub fn located(py: Python<'_>, error: &Located) -> PyErr {
    let made = || -> PyResult<Bound<'_, PyAny>> {
        let class = py.import("midspan._errors")?.getattr("PathError")?;
        let (line, column) = (error.line(), error.column());
        class.call1((
            error.to_string(),
            line,
            column,
            error.message(),
            error.help(),
        ))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// The exception of an error when a path is loaded.
pub fn loading(py: Python<'_>, error: &midspan_path::Error) -> PyErr {
    match error {
        midspan_path::Error::Located(error) => located(py, error),
        midspan_path::Error::Load(error) => PyOSError::new_err(error.to_string()),
        midspan_path::Error::Unknown { .. } => value(error),
    }
}

/// The exception of an error of a sweep.
pub fn sweeping(py: Python<'_>, error: &midspan_sweep::Error) -> PyErr {
    match error {
        midspan_sweep::Error::Located(error) => located(py, error),
        midspan_sweep::Error::Store(error) => storing(error),
        _ => value(error),
    }
}

/// The exception of an error of a file of finished runs.
pub fn storing(error: &midspan_records::StoreError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// `ValueError`.
pub fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
