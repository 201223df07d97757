//! FETCH from Python: who fetches, and the answer as Python sees it.

use mq9_core::store::{Fetch, FetchOutcome, GroupFetch, MemberId};
use pyo3::prelude::*;

use crate::access::{Access, Core, Given};
use crate::errors::{Failure, Result};
use crate::messages::{Waiting, to_python};

/// The group and the member of it that fetches.
pub fn group_of(
    group: Option<&str>,
    member: Option<&str>,
    force: bool,
) -> Result<Option<GroupFetch>> {
    if group.is_none() && (member.is_some() || force) {
        let field = if force { "force" } else { "member" };
        return Err(Failure::invalid(field, "it needs a group"));
    }
    let member = member.map_or(MemberId::Conn, |name| MemberId::Named(name.to_owned()));
    Ok(group.map(|name| GroupFetch { name: name.to_owned(), member, force }))
}

/// Carries it out: messages, or that it waits.
pub fn fetch<'py>(
    access: &Access,
    py: Python<'py>,
    request: Fetch,
    now: Given,
) -> Result<Bound<'py, PyAny>> {
    let keeps_position = request.group.is_some();
    let fetch = move |store: &mut Core, now| store.fetch(request, now);
    let outcome =
        if keeps_position { access.write(py, now, fetch) } else { access.read(py, now, fetch) }?;
    Ok(match outcome {
        FetchOutcome::Messages(batch) => to_python(py, &batch)?.into_pyobject(py)?,
        FetchOutcome::Waiting(waiter) => Bound::new(py, Waiting { waiter })?.into_any(),
    })
}
