//! Messages on their way in and out, as Python sees them: frozen.

use mq9_core::mailbox::Level;
use mq9_core::protocol::{self, WireOptions};
use mq9_core::store::{self, Fetched, Send};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};

use crate::enum_names;
use crate::errors::{Failure, Result};
use crate::types::or_none;

/// Bytes of a payload that are shown in full.
const SHOWN: usize = 64;

/// A message to be sent.
#[pyclass(frozen, module = "mq9._core")]
pub struct NewMessage {
    level: Level,
    /// The payload.
    #[pyo3(get)]
    payload: PyBackedBytes,
    /// Compaction key; empty is none.
    #[pyo3(get)]
    key: String,
    /// Tags, joined by commas.
    #[pyo3(get)]
    tags: String,
    /// Header lines, `Name: value` each with CRLF.
    #[pyo3(get)]
    headers: PyBackedBytes,
    /// How long it stays invisible; 0 is not at all.
    #[pyo3(get)]
    delay_ms: u64,
    /// How long it lives; 0 is as long as the mailbox.
    #[pyo3(get)]
    ttl_ms: u64,
}

#[pymethods]
impl NewMessage {
    #[new]
    #[pyo3(signature = (payload, *, level=5, key=String::new(), tags=String::new(), headers=None, delay_ms=0, ttl_ms=0))]
    #[pyo3(
        text_signature = "(payload, *, level=5, key='', tags='', headers=b'', delay_ms=0, ttl_ms=0)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        payload: PyBackedBytes,
        level: u8,
        key: String,
        tags: String,
        headers: Option<PyBackedBytes>,
        delay_ms: u64,
        ttl_ms: u64,
    ) -> Result<NewMessage> {
        Ok(NewMessage {
            level: enum_names::level("level", level)?,
            payload,
            key,
            tags,
            headers: headers.unwrap_or_else(|| PyBytes::new(py, b"").into()),
            delay_ms,
            ttl_ms,
        })
    }

    /// Priority, 1 (highest) to 10 (lowest).
    #[getter]
    fn level(&self) -> u8 {
        self.level.number()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let NewMessage { level, payload, key, tags, headers, delay_ms, ttl_ms } = self;
        let (payload, headers) = (shown(py, payload)?, shown(py, headers)?);
        let level = level.number();
        Ok(format!(
            "NewMessage({payload}, level={level}, key={key:?}, tags={tags:?}, headers={headers}, \
             delay_ms={delay_ms}, ttl_ms={ttl_ms})"
        ))
    }
}

/// One element of a batch to be sent.
pub enum Sent {
    /// A bare payload.
    Payload(PyBackedBytes),
    /// A message.
    Message(Py<NewMessage>),
}

impl Sent {
    /// Takes the elements of a batch.
    pub fn collect(messages: &Bound<'_, PyAny>) -> Result<Vec<Sent>> {
        let elements = messages.try_iter()?.enumerate();
        elements.map(|(index, element)| Sent::new(index, &element?)).collect()
    }

    fn new(index: usize, element: &Bound<'_, PyAny>) -> Result<Sent> {
        if let Ok(message) = element.cast::<NewMessage>() {
            return Ok(Sent::Message(message.clone().unbind()));
        }
        element.extract().map(Sent::Payload).map_err(|_| {
            let said = match element.get_type().name() {
                Ok(name) => format!("message {index}: a {name} is neither bytes nor a NewMessage"),
                Err(_) => format!("message {index} is neither bytes nor a NewMessage"),
            };
            Failure::Raised(pyo3::exceptions::PyTypeError::new_err(said))
        })
    }

    /// The same for the core.
    pub fn borrow(&self) -> Send<'_> {
        match self {
            Sent::Payload(payload) => Send::new(payload),
            Sent::Message(message) => {
                let NewMessage { level, payload, key, tags, headers, delay_ms, ttl_ms } =
                    message.get();
                let (level, delay_ms, ttl_ms) = (*level, *delay_ms, *ttl_ms);
                Send { level, key, tags, headers, payload, delay_ms, ttl_ms, memory: false }
            }
        }
    }
}

/// A stored message.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct Message {
    /// Its offset in the mailbox.
    msg_id: u64,
    /// Priority, 1 (highest) to 10 (lowest).
    level: u8,
    /// When it was sent, wall time.
    sent_ms: u64,
    /// When it got its `msg_id`, wall time.
    create_ms: u64,
    /// When it expires, wall time; 0 is never.
    expires_ms: u64,
    /// How often the group has been given it, this time included; 0 without a group.
    deliveries: u32,
    /// Whether the group is not given it again.
    last_delivery: bool,
    /// Compaction key; empty is none.
    key: String,
    /// Tags, joined by commas.
    tags: String,
    /// Header lines, as they were sent.
    headers: Py<PyBytes>,
    /// The payload.
    payload: Py<PyBytes>,
}

#[pymethods]
impl Message {
    /// The message as JSON, as the replies to FETCH show it; one of `query_delayed` with `delayed`.
    #[pyo3(signature = (*, always_base64=false, delayed=false))]
    fn entry<'py>(
        &self,
        py: Python<'py>,
        always_base64: bool,
        delayed: bool,
    ) -> Bound<'py, PyBytes> {
        let meta = store::Meta {
            msg_id: self.msg_id,
            level: Level::new(self.level).unwrap_or(Level::NORMAL),
            create_ms: self.create_ms,
            deliveries: self.deliveries,
            last_delivery: self.last_delivery,
        };
        let message = mq9_core::wire::op::Message {
            msg_id: self.msg_id,
            sent_ms: self.sent_ms,
            create_ms: self.create_ms,
            expires_ms: self.expires_ms,
            level: self.level,
            address: "",
            key: &self.key,
            tags: &self.tags,
            headers: self.headers.bind(py).as_bytes(),
            payload: self.payload.bind(py).as_bytes(),
        };
        let write = if delayed { protocol::delayed_entry } else { protocol::entry };
        PyBytes::new(
            py,
            &write(&meta, &message, WireOptions { always_base64, ..WireOptions::default() }),
        )
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Message { msg_id, level, key, tags, deliveries, payload, .. } = self;
        let payload = shown(py, payload.bind(py).as_bytes())?;
        Ok(format!(
            "Message(msg_id={msg_id}, level={level}, key={key:?}, tags={tags:?}, \
             deliveries={deliveries}, payload={payload})"
        ))
    }
}

/// The messages of a batch.
pub fn to_python(py: Python<'_>, batch: &Fetched) -> PyResult<Vec<Py<Message>>> {
    let message = |(meta, message): (store::Meta, mq9_core::wire::op::Message<'_>)| {
        let message = Message {
            msg_id: meta.msg_id,
            level: meta.level.number(),
            sent_ms: message.sent_ms,
            create_ms: meta.create_ms,
            expires_ms: message.expires_ms,
            deliveries: meta.deliveries,
            last_delivery: meta.last_delivery,
            key: message.key.to_owned(),
            tags: message.tags.to_owned(),
            headers: PyBytes::new(py, message.headers).unbind(),
            payload: PyBytes::new(py, message.payload).unbind(),
        };
        Py::new(py, message)
    };
    batch.iter().map(message).collect()
}

/// A fetch that waits: its answer comes as the completion of this waiter.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct Waiting {
    /// The waiter's number.
    pub waiter: u64,
}

#[pymethods]
impl Waiting {
    fn __repr__(&self) -> String {
        format!("Waiting(waiter={})", self.waiter)
    }
}

/// The answer to a fetch that waited.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct Completion {
    /// The waiter's number.
    waiter: u64,
    /// Its messages; none if the wait is over.
    messages: Py<PyTuple>,
    /// Why there is no answer, if so.
    error: Option<Py<PyAny>>,
}

impl Completion {
    pub fn new(py: Python<'_>, completion: store::Completion) -> PyResult<Completion> {
        let (messages, error) = match completion.outcome {
            Ok(batch) => (to_python(py, &batch)?, None),
            Err(error) => {
                let exception = PyErr::from(Failure::from(error));
                (Vec::new(), Some(exception.into_value(py).into_any()))
            }
        };
        let messages = PyTuple::new(py, messages)?.unbind();
        Ok(Completion { waiter: completion.waiter, messages, error })
    }
}

#[pymethods]
impl Completion {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Completion { waiter, messages, error } = self;
        let messages = messages.bind(py).repr()?;
        let error = error.as_ref().map(|error| error.bind(py).repr()).transpose()?;
        let error = or_none(error);
        Ok(format!("Completion(waiter={waiter}, messages={messages}, error={error})"))
    }
}

fn shown(py: Python<'_>, bytes: &[u8]) -> PyResult<String> {
    if bytes.len() > SHOWN {
        return Ok(format!("<{} bytes>", bytes.len()));
    }
    Ok(PyBytes::new(py, bytes).repr()?.to_string())
}
