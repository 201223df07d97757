//! JSON that somebody else wrote, checked and cut down before Python makes objects of it.

use mq9_core::json::{Rules, select};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The object in `text` with the fields `names` alone, each as it was written.
#[pyfunction]
#[pyo3(signature = (text, names, *, max_depth, unique))]
pub fn json_select<'py>(
    py: Python<'py>,
    text: &[u8],
    mut names: Vec<String>,
    max_depth: usize,
    unique: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    names.sort_unstable();
    let picked = select(text, &names, Rules { max_depth, unique })
        .map_err(|flaw| PyValueError::new_err(flaw.to_string()))?;
    Ok(PyBytes::new(py, &picked))
}
