//! First bodies of functions that are produced when they are called (`calls::lazy`).
//!
//! A first body is committed as a replacement of the placeholder, in a turn, with differences:
//!
//! - It is dropped if the function has become another one since: replaced, defined anew, or
//!   removed. The turn excludes other replacements, so that this is checked once. A removal is not
//!   excluded, and a commit leaves out a function that was removed.
//! - The turn may be one that is lent: by a replacement whose constructor needs the body, or that
//!   waits for a thread which needs it to leave old code.
//! - It is no entry of the history: there is no earlier body.

use uruk_base::FunctionId;
use uruk_session::Dylib;

use super::Replacement;
use super::commit::Way;
use super::prepare::Prepared;
use crate::code::names::Definition;
use crate::error::Error;
use crate::fork::gate;
use crate::replace::SessionHandle;
use crate::replace::state::Replacing;
use crate::replace::turn::staged;
use std::sync::Arc;

/// A function that is to get its first body.
pub(crate) struct FirstBody<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// The file of the body that it has until then.
    pub(crate) file: &'a str,
}

impl FirstBody<'_> {
    /// The function, as long as it has no other body than the placeholder.
    pub(crate) fn function(&self, replacing: &Replacing, dylib: &Dylib) -> Option<FunctionId> {
        let _pass = gate::enter();
        let Some(Definition::Function { id }) = replacing.names.find_own(dylib, self.name) else {
            return None;
        };
        let body = replacing.body(id);
        body.is_some_and(|body| body.is_of_file(self.file))
            .then_some(id)
    }
}

/// Exchanges the code of a function for its first body, unless `first` says that the function has
/// become another one; returns whether it was done. The function has no earlier body to roll back
/// to; other functions of the replacement can be rolled back.
///
/// # Errors
/// The errors of [`Dylib::replace`].
pub(crate) fn put_first_body(
    (replacing, handle): (&Arc<Replacing>, SessionHandle),
    dylib: &Dylib,
    body: Replacement,
    first: &FirstBody<'_>,
) -> Result<bool, Error> {
    replacing.admit(&body.input.clone().source(&body.name)?)?;
    let _turn = replacing.turn_for_first_body()?;
    let begun = replacing.events.now();
    let Some(id) = first.function(replacing, dylib) else {
        return Ok(false);
    };
    let (staging, prepared) = staged(replacing, dylib, &body)?;
    let undo = || {
        let _pass = gate::enter();
        staging.undo();
    };
    let Prepared {
        changes,
        names,
        hooks,
        moves,
    } = prepared;
    // If the name was removed and defined anew, it belongs to another function.
    if !changes.iter().any(|change| change.id == id) {
        drop(changes);
        undo();
        return Ok(false);
    }
    let way = Way {
        moves,
        ..Way::default()
    };
    let mut done = match replacing.commit_set(changes, way, body.level) {
        Ok(done) => done,
        Err((cause, changes)) => {
            drop(changes);
            undo();
            return Err(cause);
        }
    };
    staging.settle();
    let before = done.set.before.len();
    done.set.before.retain(|before| before.id != id);
    let placed = done.set.before.len() != before;
    match done.set.before.is_empty() {
        true => {
            let _pass = gate::enter();
            drop(done);
            replacing.retry_failed();
        }
        false => drop(done.finish(
            (replacing, handle),
            names,
            &body,
            begun,
            hooks.names(),
            Vec::new(),
        )),
    }
    Ok(placed)
}
