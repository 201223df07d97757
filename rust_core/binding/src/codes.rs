//! Vectors of small whole numbers, compared with one: a quarter of what floats are to read.
//!
//! Knows neither scales nor ranks: what a product means is up to who asks.

use std::sync::{Mutex, MutexGuard};

use multiversion::multiversion;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

use crate::panics::left_in_the_middle;
use pyo3::types::PyBytes;

/// Rows of signed bytes, without gaps.
#[pyclass(module = "mq9._core", frozen)]
pub struct Codes {
    dimensions: usize,
    codes: Mutex<Vec<i8>>,
}

#[pymethods]
impl Codes {
    #[new]
    fn new(dimensions: usize) -> PyResult<Codes> {
        if dimensions == 0 {
            return Err(PyValueError::new_err("a vector has at least one dimension"));
        }
        Ok(Codes { dimensions, codes: Mutex::default() })
    }

    fn __len__(&self) -> usize {
        self.lock().len() / self.dimensions
    }

    /// Adds a row, a signed byte for each dimension.
    fn append(&self, row: &[u8]) -> PyResult<()> {
        if row.len() != self.dimensions {
            return Err(self.wrong_length("row", row.len()));
        }
        self.lock().extend(row.iter().map(|byte| byte.cast_signed()));
        Ok(())
    }

    /// Removes a row; the last one takes its place.
    fn remove(&self, row: usize) -> PyResult<()> {
        let mut codes = self.lock();
        let rows = codes.len() / self.dimensions;
        if row >= rows {
            return Err(PyIndexError::new_err(format!("row {row} of {rows}")));
        }
        let last = (rows - 1) * self.dimensions;
        codes.copy_within(last.., row * self.dimensions);
        codes.truncate(last);
        Ok(())
    }

    /// The product of each row with the query (native i16), one native i32 after the other.
    fn products<'py>(&self, py: Python<'py>, query: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let (numbers, rest) = query.as_chunks();
        let query: Vec<i16> = numbers.iter().map(|bytes| i16::from_ne_bytes(*bytes)).collect();
        if query.len() != self.dimensions || !rest.is_empty() {
            return Err(self.wrong_length("query", query.len()));
        }
        let most: i64 = query.iter().map(|number| i64::from(*number).abs() * 128).sum();
        if most > i64::from(i32::MAX) {
            return Err(PyValueError::new_err("the query is too long: its products overflow"));
        }
        let found = py.detach(|| products(&self.lock(), &query));
        Ok(PyBytes::new(py, &found))
    }
}

impl Codes {
    fn lock(&self) -> MutexGuard<'_, Vec<i8>> {
        self.codes.lock().unwrap_or_else(left_in_the_middle)
    }

    fn wrong_length(&self, what: &str, length: usize) -> PyErr {
        let wanted = self.dimensions;
        PyValueError::new_err(format!("a {what} of {length} numbers: it must have {wanted}"))
    }
}

/// Compiled for wide registers as well, and chosen where the processor has them: half the time.
#[multiversion(targets("x86_64+avx2"))]
fn products(codes: &[i8], query: &[i16]) -> Vec<u8> {
    let rows = codes.chunks_exact(query.len());
    let mut found = Vec::with_capacity(rows.len() * size_of::<i32>());
    for row in rows {
        let product: i32 = row.iter().zip(query).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
        found.extend(product.to_ne_bytes());
    }
    found
}
