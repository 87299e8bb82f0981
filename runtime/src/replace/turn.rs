//! All steps of one replacement, in its turn: it is prepared, committed and reported.

use crate::Replaced;
use crate::Replacement;
use crate::error::Error;
use crate::fork::gate;
use crate::fork::sacrificial::spared;
use crate::fork::shield::Shield;
use crate::replace::SessionHandle;
use crate::replace::commit::Way;
use crate::replace::prepare::{Allowed, Prepared};
use crate::replace::quiet;
use crate::replace::staging::Staging;
use crate::replace::state::Replacing;
use std::sync::Arc;
use uruk_base::FunctionId;
use uruk_base::Level;
use uruk_session::Dylib;

/// Exchanges code of functions of `dylib` in its turn ([`Dylib::replace`](crate::Dylib::replace)).
pub(crate) fn replace(
    (replacing, handle): (&Arc<Replacing>, SessionHandle),
    dylib: &Dylib,
    replacement: Replacement,
) -> Result<Replaced, Error> {
    // A signal handler may have left code addresses here. They would lie in the holes of the frame
    // below for as long as it waits.
    let shield = Shield::raise();
    quiet::scrub_stack();
    let replaced = replace_in_turn((replacing, handle), dylib, replacement, shield);
    quiet::scrub_stack();
    replaced
}

/// Replaces in the caller's turn. Signals are blocked until `shield` is dropped, so that the frame
/// lies on cleared memory.
#[inline(never)]
fn replace_in_turn(
    (replacing, handle): (&Arc<Replacing>, SessionHandle),
    dylib: &Dylib,
    replacement: Replacement,
    shield: Shield,
) -> Result<Replaced, Error> {
    drop(shield);
    replacing.admit(&replacement.input.clone().source(&replacement.name)?)?;
    let _turn = replacing.turn()?;
    let begun = replacing.events.now();
    let (staging, prepared) = staged(replacing, dylib, &replacement)?;
    let undo = |cause: Error| {
        let _pass = gate::enter();
        staging.undo();
        cause
    };
    let Prepared {
        changes,
        names,
        hooks,
        moves,
    } = prepared;
    let way = Way {
        moves,
        back: Vec::new(),
        withdrawal: replacement.withdrawal.clone(),
    };
    let skipped = match replacement.constructors {
        true => {
            // Constructors may store addresses of new definitions: these stay, whatever fails.
            staging.settle();
            replacing.run_hooks(hooks)?
        }
        false => hooks.names(),
    };
    let level = replacement.level;
    let osr = replacement.osr && level == Level::Immediate;
    let members: Vec<FunctionId> = changes.iter().map(|change| change.id).collect();
    let looping = replacing.looping(osr, &members);
    let done = match level.wait() {
        None => replacing.commit_set(changes, way, level),
        Some(_) => {
            // Addresses of old and new code must not be found on this stack. Nor may handlers leave
            // any in the frames of the wait: handlers run from then on, below these frames.
            let _shield = Shield::raise();
            quiet::scrub_stack();
            let what = replacement.name.clone();
            let done =
                replacing.on_compile_thread(what, move |it| Ok(it.commit_set(changes, way, level)));
            done.unwrap_or_else(|cause| Err((cause, Vec::new())))
        }
    };
    let done = done.map_err(|(cause, changes)| {
        drop(changes);
        match replacement.constructors {
            true => cause,
            false => undo(cause),
        }
    })?;
    staging.settle();
    if osr {
        // The caller is not in a loop: clear the addresses that the work above left on this stack.
        quiet::scrub_stack();
    }
    let loops = replacing.lead(osr, members, looping, &done.old);
    let session = (replacing, handle);
    let replaced = done.finish(session, names, &replacement, begun, skipped, loops);
    Ok(replaced)
}

/// Prepares a replacement: does everything that can fail, and changes nothing. It runs on this
/// thread if it needs no LLVM and may leave addresses on this stack, else on a thread that LLVM can
/// take down. It begins anew if the dylib, and with it the prepared code, was cleared meanwhile.
pub(super) fn staged(
    replacing: &Arc<Replacing>,
    dylib: &Dylib,
    replacement: &Replacement,
) -> Result<(Arc<Staging>, Prepared), Error> {
    let source = || replacement.input.clone().source(&replacement.name);
    let mut here = source()?.may_be_spared() && matches!(replacement.level, Level::Immediate);
    loop {
        let staging = {
            let _pass = gate::enter();
            Arc::new(Staging::new(replacing, dylib)?)
        };
        let ready = match here {
            true => spared(|| {
                let allowed = Allowed::by(replacement);
                replacing.prepare_source(dylib, source()?, &allowed, &staging)
            }),
            false => Some(prepare(replacing, dylib, replacement, &staging)),
        };
        let failed = match ready {
            Some(Ok(prepared)) => return Ok((staging, prepared)),
            Some(Err(cause)) => Some(cause),
            None => None,
        };
        let _pass = gate::enter();
        let cleared = staging.session_tracker().is_defunct() && !dylib.is_defunct();
        staging.undo();
        match failed {
            Some(cause) if !(cleared && cause.is_defunct_tracker()) => return Err(cause),
            Some(_) => {}
            None => here = false,
        }
    }
}

/// Prepares a replacement as [`staged`] does, on a thread that LLVM can take down.
fn prepare(
    replacing: &Arc<Replacing>,
    dylib: &Dylib,
    replacement: &Replacement,
    staging: &Arc<Staging>,
) -> Result<Prepared, Error> {
    let (staging, names) = (Arc::clone(staging), dylib.clone());
    let Replacement { name, input, .. } = replacement.clone();
    let allowed = Allowed::by(replacement);
    replacing.on_compile_thread(name.clone(), move |replacing| {
        replacing.prepare_source(&names, input.source(&name)?, &allowed, &staging)
    })
}
