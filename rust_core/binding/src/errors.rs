//! The exceptions of `mq9._core`, and the one place where errors become exceptions.

use std::io;

use mq9_core::error::Error;
use pyo3::exceptions::{PyException, PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// A class of exceptions, made when it is first needed.
struct Class {
    name: &'static str,
    doc: &'static str,
    /// A builtin class that it is as well, for callers who know only that one.
    also: Option<fn(Python<'_>) -> Bound<'_, PyType>>,
    made: PyOnceLock<Py<PyType>>,
}

impl Class {
    const fn new(name: &'static str, doc: &'static str) -> Class {
        Class { name, doc, also: None, made: PyOnceLock::new() }
    }

    const fn also(
        builtin: fn(Python<'_>) -> Bound<'_, PyType>,
        name: &'static str,
        doc: &'static str,
    ) -> Class {
        Class { name, doc, also: Some(builtin), made: PyOnceLock::new() }
    }

    fn get<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<&'a Bound<'py, PyType>> {
        self.made.get_or_try_init(py, || self.make(py)).map(|class| class.bind(py))
    }

    fn make(&self, py: Python<'_>) -> PyResult<Py<PyType>> {
        let body = PyDict::new(py);
        body.set_item("__module__", "mq9._core")?;
        body.set_item("__doc__", self.doc)?;
        let mut bases = Vec::new();
        if std::ptr::eq(self, &STORE_ERROR) {
            body.set_item("index", py.None())?;
            body.set_item("stored", PyTuple::empty(py))?;
        } else {
            bases.push(STORE_ERROR.get(py)?.clone());
        }
        bases.extend(self.also.map(|builtin| builtin(py)));
        let class = py.get_type::<PyType>().call1((self.name, PyTuple::new(py, bases)?, body))?;
        Ok(class.cast_into::<PyType>()?.unbind())
    }
}

static STORE_ERROR: Class = Class::also(
    |py| py.get_type::<PyException>(),
    "StoreError",
    "What a store refuses; for a batch, index is the message refused and stored the ids before it.",
);
static MAILBOX_NOT_FOUND: Class = Class::new("MailboxNotFound", "No mailbox of that address.");
static MAILBOX_EXISTS: Class = Class::new("MailboxExists", "The address is taken.");
static MESSAGE_NOT_FOUND: Class = Class::new("MessageNotFound", "No stored message of that id.");
static INVALID_ADDRESS: Class = Class::also(
    |py| py.get_type::<PyValueError>(),
    "InvalidAddress",
    "The address breaks a rule of the address format.",
);
static INVALID_FIELD: Class =
    Class::also(|py| py.get_type::<PyValueError>(), "InvalidField", "A value is out of its range.");
static MESSAGE_TOO_LARGE: Class =
    Class::new("MessageTooLarge", "The message is larger than the store or the mailbox takes.");
static MAILBOX_FULL: Class =
    Class::new("MailboxFull", "The mailbox is at a limit and refuses new messages.");
static MORE_MESSAGES: Class = Class::new(
    "MoreMessages",
    "The mailbox holds more messages than whoever wants them gone has seen.",
);
static TOO_MANY_GROUPS: Class =
    Class::new("TooManyGroups", "The mailbox has as many groups as it may have.");
static QUOTA_EXCEEDED: Class = Class::new(
    "QuotaExceeded",
    "Clients, or this one, have as much as a setting of the broker allows.",
);
static GROUP_NOT_FOUND: Class =
    Class::new("GroupNotFound", "The mailbox has no group of that name, or it was removed.");
static NOT_GIVEN: Class =
    Class::new("NotGiven", "An acknowledgement of a message that the group was never given.");
static STORE_LOCKED: Class = Class::new("StoreLocked", "The directory is in use.");
static DISK_FULL: Class = Class::also(
    |py| py.get_type::<PyOSError>(),
    "DiskFull",
    "There is no space for more; reading goes on.",
);
static STORAGE_ERROR: Class = Class::also(
    |py| py.get_type::<PyOSError>(),
    "StorageError",
    "The operating system refused a file operation.",
);
static WRITES_STOPPED: Class =
    Class::new("WritesStopped", "A sync has failed: nothing more is acknowledged until a restart.");
static NEWER_FORMAT: Class = Class::new("NewerFormat", "A file was written by a newer version.");
static EXPORT_ERROR: Class = Class::new("ExportError", "An export cannot be made, or go on.");

static ALL: [&Class; 19] = [
    &STORE_ERROR,
    &MAILBOX_NOT_FOUND,
    &MAILBOX_EXISTS,
    &MESSAGE_NOT_FOUND,
    &INVALID_ADDRESS,
    &INVALID_FIELD,
    &MESSAGE_TOO_LARGE,
    &MAILBOX_FULL,
    &MORE_MESSAGES,
    &TOO_MANY_GROUPS,
    &QUOTA_EXCEEDED,
    &GROUP_NOT_FOUND,
    &NOT_GIVEN,
    &STORE_LOCKED,
    &DISK_FULL,
    &STORAGE_ERROR,
    &WRITES_STOPPED,
    &NEWER_FORMAT,
    &EXPORT_ERROR,
];

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ALL.iter().try_for_each(|class| module.add(class.name, class.get(module.py())?))
}

/// Exhaustive, so that a new error cannot be forgotten here.
fn class_of(error: &Error) -> &'static Class {
    match error {
        Error::MailboxNotFound(_) => &MAILBOX_NOT_FOUND,
        Error::MailboxExists(_) => &MAILBOX_EXISTS,
        Error::MessageNotFound => &MESSAGE_NOT_FOUND,
        Error::InvalidAddress { .. } => &INVALID_ADDRESS,
        Error::InvalidField { .. } => &INVALID_FIELD,
        Error::MessageTooLarge { .. } => &MESSAGE_TOO_LARGE,
        Error::MailboxFull { .. } => &MAILBOX_FULL,
        Error::MoreMessages { .. } => &MORE_MESSAGES,
        Error::TooManyGroups { .. } => &TOO_MANY_GROUPS,
        Error::QuotaExceeded { .. } => &QUOTA_EXCEEDED,
        Error::GroupNotFound { .. } => &GROUP_NOT_FOUND,
        Error::NotGiven { .. } => &NOT_GIVEN,
        Error::Locked => &STORE_LOCKED,
        Error::DiskFull(_) => &DISK_FULL,
        Error::Io { .. } => &STORAGE_ERROR,
        Error::WritesStopped(_) => &WRITES_STOPPED,
        // Of a node of a cluster; and a mistake.
        Error::NotLeading | Error::StreamBehind | Error::NotTied(_) | Error::Internal(_) => {
            &STORE_ERROR
        }
        Error::NewerFormat { .. } => &NEWER_FORMAT,
    }
}

/// Why a call failed.
pub enum Failure {
    /// The store refused it.
    Refused(Error),
    /// The store refused one message of a batch.
    InBatch {
        /// Which.
        index: usize,
        /// What became of those before it.
        stored: Vec<i64>,
        /// Why.
        cause: Error,
    },
    /// The store is closed.
    Closed,
    /// A panic left the store in the middle of a change.
    Broken,
    /// The same, found when it was closed.
    BrokenAtClose,
    /// The store was opened to be read only.
    ReadOnly,
    /// An export cannot be made, or go on.
    Export(mq9_export::Error),
    /// The export is closed.
    ExportClosed,
    /// It took longer than the caller would wait.
    TimedOut,
    /// Python raised it.
    Raised(PyErr),
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A value that cannot be what `field` expects.
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Failure {
        Failure::Refused(Error::InvalidField { field, problem: problem.into() })
    }

    /// The operating system refused something around the store's files.
    pub fn io(action: &'static str, file: impl Into<String>, source: io::Error) -> Failure {
        Failure::Refused(Error::Io { action, file: file.into(), source })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(error)
    }
}

impl From<mq9_runtime::Failure> for Failure {
    fn from(failure: mq9_runtime::Failure) -> Failure {
        match failure {
            mq9_runtime::Failure::Refused(error) => Failure::Refused(error),
            mq9_runtime::Failure::Closed => Failure::Closed,
            mq9_runtime::Failure::Broken => Failure::Broken,
            mq9_runtime::Failure::BrokenAtClose => Failure::BrokenAtClose,
            mq9_runtime::Failure::ReadOnly => Failure::ReadOnly,
        }
    }
}

impl From<mq9_export::Error> for Failure {
    fn from(error: mq9_export::Error) -> Failure {
        match error {
            mq9_export::Error::Log(error) => Failure::Refused(error),
            mq9_export::Error::Io { action, path, source } => Failure::io(action, path, source),
            other => Failure::Export(other),
        }
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Raised(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| raise(py, failure).unwrap_or_else(|e| e))
    }
}

fn raise(py: Python<'_>, failure: Failure) -> PyResult<PyErr> {
    match failure {
        Failure::Refused(error) => refused(py, &error, ""),
        Failure::InBatch { index, stored, cause } => {
            let exception = refused(py, &cause, &format!("message {index}: "))?;
            exception.value(py).setattr("index", index)?;
            exception.value(py).setattr("stored", PyTuple::new(py, stored)?)?;
            Ok(exception)
        }
        Failure::Closed => {
            Ok(PyErr::from_type(STORE_ERROR.get(py)?.clone(), "the store is closed"))
        }
        Failure::Broken => {
            let text = "an internal error left the store in the middle of a change: \
                        close it and open it again";
            Ok(PyErr::from_type(STORE_ERROR.get(py)?.clone(), text))
        }
        Failure::BrokenAtClose => {
            let text = "an internal error left the store in the middle of a change: it was not saved, \
                        and what was acknowledged is there when it is opened again";
            Ok(PyErr::from_type(STORE_ERROR.get(py)?.clone(), text))
        }
        Failure::ReadOnly => {
            let text = "the store was opened with read_only=True: nothing can be changed";
            Ok(PyErr::from_type(STORE_ERROR.get(py)?.clone(), text))
        }
        Failure::Export(error) => {
            Ok(PyErr::from_type(EXPORT_ERROR.get(py)?.clone(), error.to_string()))
        }
        Failure::ExportClosed => {
            Ok(PyErr::from_type(EXPORT_ERROR.get(py)?.clone(), "the export is closed"))
        }
        Failure::TimedOut => Ok(PyTimeoutError::new_err("not acknowledged in time")),
        Failure::Raised(exception) => Ok(exception),
    }
}

fn refused(py: Python<'_>, error: &Error, prefix: &str) -> PyResult<PyErr> {
    let class = class_of(error).get(py)?.clone();
    // The arguments by which an OSError gets its errno, strerror and filename.
    Ok(match error {
        Error::Io { action, file, source } => {
            let said = format!("{prefix}cannot {action}: {source}");
            PyErr::from_type(class, (source.raw_os_error(), said, file.clone()))
        }
        Error::DiskFull(source) => {
            PyErr::from_type(class, (source.raw_os_error(), format!("{prefix}{error}")))
        }
        _ => PyErr::from_type(class, format!("{prefix}{error}")),
    })
}
