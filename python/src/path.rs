//! Path files.

use midspan_document::{Override, Source, overrides};
use midspan_path::{Path as Inner, built_in};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::errors::{loading, located, value};

/// A path: hosts, proxies, links and flows, as in a path file.
///
/// `Path("geo")` is a built-in path, `Path("my.toml")` a file. A path does not change: `set` returns
/// another one.
#[pyclass(frozen, module = "midspan")]
#[derive(Debug)]
pub struct Path {
    pub(crate) source: Source,
    pub(crate) overrides: Vec<Override>,
    /// The values of `overrides` as text, for copies of this object in other processes.
    texts: Vec<String>,
    path: Inner,
}

impl Path {
    fn new(py: Python<'_>, source: Source, texts: Vec<String>) -> PyResult<Self> {
        let parse = |text: &String| Override::parse("set", text);
        let changes: Vec<Override> = texts
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map_err(|error| located(py, &error))?;
        let path = overrides::read_with(&source, &changes, Inner::read)
            .map_err(|error| located(py, &error))?;
        Ok(Self {
            source,
            overrides: changes,
            texts,
            path,
        })
    }

    /// The path with all its values.
    pub(crate) const fn inner(&self) -> &Inner {
        &self.path
    }

    fn flow_names(&self) -> Vec<String> {
        self.path
            .flows
            .iter()
            .map(|flow| flow.name.clone())
            .collect()
    }
}

/// A function of Python, and the arguments with which it makes a copy.
type Copied<'py> = (Bound<'py, PyAny>, (String, String, Vec<String>));

/// A Python value as the value of a key.
pub(crate) fn written(given: &Bound<'_, PyAny>) -> PyResult<String> {
    if given.is_instance_of::<PyBool>() {
        return Ok(if given.is_truthy()? { "true" } else { "false" }.to_owned());
    }
    let is_known = given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyInt>()
        || given.is_instance_of::<PyFloat>();
    // Numbers of NumPy have the method `item`, which returns a number of Python.
    if !is_known && let Ok(number) = given.call_method0("item") {
        return written(&number);
    }
    if !is_known {
        let kind = given.get_type().name()?;
        return Err(value(format!(
            "a value is a text such as \"10 ms\", a number or a bool, not {kind}"
        )));
    }
    Ok(given.str()?.to_string())
}

#[pymethods]
impl Path {
    /// Reads the built-in path of this name, or otherwise a file.
    #[new]
    fn load(py: Python<'_>, name: &str) -> PyResult<Self> {
        let source = midspan_path::source(name).map_err(|error| loading(py, &error))?;
        Self::new(py, source, Vec::new())
    }

    /// Reads the text of a path file. `name` is its name in errors and results.
    #[staticmethod]
    #[pyo3(signature = (text, name = "path"))]
    fn from_toml(py: Python<'_>, text: &str, name: &str) -> PyResult<Self> {
        let file = match name.ends_with(".toml") {
            true => name.to_owned(),
            false => format!("{name}.toml"),
        };
        Self::new(py, Source::new(file, text), Vec::new())
    }

    /// The same path with other values: a dict from keys such as "link.satellite.loss" to values such
    /// as "1 %" or 0.01.
    fn set(&self, py: Python<'_>, values: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut texts = self.texts.clone();
        for (key, value) in values {
            texts.push(format!("{}={}", key.extract::<String>()?, written(&value)?));
        }
        Self::new(py, self.source.clone(), texts)
    }

    /// The name of the path.
    #[getter]
    fn name(&self) -> &str {
        &self.path.name
    }

    /// What the path is.
    #[getter]
    fn description(&self) -> &str {
        &self.path.description
    }

    /// The names of the flows.
    #[getter]
    fn flows(&self) -> Vec<String> {
        self.flow_names()
    }

    /// The seed of all random draws.
    #[getter]
    const fn seed(&self) -> u64 {
        self.path.seed
    }

    /// The text of a path file with all values, in a fixed order.
    fn to_toml(&self) -> PyResult<String> {
        let text = self.path.to_text();
        text.ok_or_else(|| value("no path file can have this path"))
    }

    fn __repr__(&self) -> String {
        let values: Vec<String> = self.texts.iter().map(|text| format!(", {text}")).collect();
        format!("<midspan.Path {:?}{}>", self.path.name, values.concat())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.path == other.path
    }

    /// For copies in other processes.
    fn __reduce__(slf: PyRef<'_, Self>) -> PyResult<Copied<'_>> {
        let again = slf.py().get_type::<Self>().getattr("_again")?;
        let (name, text) = (slf.source.name().to_owned(), slf.source.text().to_owned());
        Ok((again, (name, text, slf.texts.clone())))
    }

    #[staticmethod]
    fn _again(py: Python<'_>, name: String, text: String, texts: Vec<String>) -> PyResult<Self> {
        Self::new(py, Source::new(name, text), texts)
    }
}

/// The names of the built-in paths.
#[pyfunction]
pub fn built_in_paths() -> Vec<&'static str> {
    built_in().iter().map(|path| path.name).collect()
}
