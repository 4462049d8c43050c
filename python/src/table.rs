//! Results as tables, which other libraries read by Arrow's C interface.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::errors::value;

/// The values of a column.
#[derive(Debug)]
pub enum Column {
    /// Texts.
    Text(Vec<Option<String>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// Whole numbers from 0.
    Whole(Vec<u64>),
}

/// A table of results.
///
/// Libraries that know Arrow's PyCapsule interface take it as it is: `polars.DataFrame(table)`,
/// `pyarrow.table(table)`, `duckdb.sql("select * from table")`.
#[pyclass(frozen, module = "midspan")]
#[derive(Debug)]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    /// A table of columns of the same length, with their names.
    pub fn new(columns: Vec<(String, Column)>) -> PyResult<Self> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
        for (name, column) in columns {
            let (kind, array): (DataType, ArrayRef) = match column {
                Column::Text(values) => (DataType::Utf8, Arc::new(StringArray::from(values))),
                Column::Number(values) => (DataType::Float64, Arc::new(Float64Array::from(values))),
                Column::Whole(values) => (DataType::UInt64, Arc::new(UInt64Array::from(values))),
            };
            fields.push(Field::new(name, kind, true));
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(Self {
            batch: batch.map_err(value)?,
        })
    }

    fn column<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyList>> {
        let array = self.batch.column(index).as_any();
        if let Some(texts) = array.downcast_ref::<StringArray>() {
            return PyList::new(py, texts.iter());
        }
        if let Some(numbers) = array.downcast_ref::<Float64Array>() {
            return PyList::new(py, numbers.iter());
        }
        match array.downcast_ref::<UInt64Array>() {
            Some(whole) => PyList::new(py, whole.iter()),
            None => Err(value("a column of an unknown type")),
        }
    }
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        let schema = self.batch.schema();
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        let (rows, names) = (self.batch.num_rows(), self.column_names().join(", "));
        format!("<midspan.Table of {rows} rows: {names}>")
    }

    /// A dict with a list for each column.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (index, name) in self.column_names().into_iter().enumerate() {
            columns.set_item(name, self.column(py, index)?)?;
        }
        Ok(columns)
    }

    /// The table as an Arrow stream, for other libraries.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows to ignore the request.
        let _ = requested_schema;
        let schema = self.batch.schema();
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
