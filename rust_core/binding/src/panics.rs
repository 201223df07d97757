//! Ends the process after a panic. Knows nothing of what panicked.
//!
//! A panic is a mistake in mq9: whatever was being changed is half changed. A server ends at once and recovers at
//! its next start; a program that uses the store as a library gets an exception, and the store is of no use any more.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::sync::PoisonError;

use pyo3::prelude::*;

use mq9_runtime::clock;

/// From now on a panic anywhere in this process ends it, after a line to the standard error output and to the end of
/// `log_file`. Nothing is closed in order.
#[pyfunction]
#[pyo3(signature = (log_file=None))]
pub fn end_process_on_panic(log_file: Option<PathBuf>) {
    std::panic::set_hook(Box::new(move |info| {
        let mut text = line(info);
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            text += &format!("{trace}\n");
        }
        // There is nobody left to tell that this has failed.
        let _ = std::io::stderr().write_all(text.as_bytes());
        if let Some(file) = &log_file {
            let opened = OpenOptions::new().append(true).create(true).open(file);
            let _ = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        }
        std::process::abort();
    }));
}

/// One line in the form of the log.
fn line(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let said = text.unwrap_or("no reason given").replace('\n', "\\n");
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let (pid, time_ms) = (std::process::id(), clock::now().wall_ms);
    format!(
        "[{pid}] [FTL] panic in thread {name} at {place}: {said}; \
         the process ends, the next start recovers time_ms={time_ms}\n"
    )
}

/// A lock was let go by a panic: what it guards was left in the middle of a change, and is not to be used.
pub fn left_in_the_middle<T>(_: PoisonError<T>) -> T {
    panic!("an earlier panic left this in the middle of a change")
}
