//! Producers of first bodies that are no longer needed: their placeholders can never be restored.

use std::sync::Arc;

use crate::api::dylib::Dylib;
use crate::calls::producer::Lazy;
use crate::code::names::Definition;
use crate::fork::gate;

/// Closures of a function that may be kept while other threads replace functions.
const LAPSED: usize = 16;

/// Notes the producer of the function's body, and drops earlier closures whose placeholder can
/// never be restored.
pub(super) fn note_lazy(dylib: &Dylib, name: &str, producer: Arc<dyn Lazy>) {
    let session = dylib.jit.session();
    let own = || match session.names.find_own(&dylib.dylib, name) {
        Some(Definition::Function { id }) => Some(id),
        _ => None,
    };
    let noted = {
        let _pass = gate::enter();
        own().map(|id| (id, session.host.note_lazy(id, Arc::clone(&producer))))
    };
    let Some((id, count)) = noted else {
        // The function was removed meanwhile. The captured state is dropped without a lock: it may
        // use the session.
        return producer.lapse();
    };
    if count == 1 {
        return;
    }
    // While a set is committed or rolled back, its bodies belong neither to functions nor to the
    // history. Only under a turn is it certain that no reference to a placeholder is left.
    let turn = match session.replacing.try_turn() {
        // A thread that redefines a function repeatedly beside other replacements waits at some
        // point.
        None if count > LAPSED => session.replacing.turn().ok(),
        turn => turn,
    };
    let Some(turn) = turn else {
        return;
    };
    let lapsed = {
        let _pass = gate::enter();
        let is_body = |file: &str| session.body(id).is_some_and(|it| it.is_of_file(file));
        let of_use = |it: &dyn Lazy| is_body(it.file()) || session.replacing.keeps(id, it.file());
        session.host.lapsed(id, of_use)
    };
    drop(turn);
    lapsed.iter().for_each(|it| it.lapse());
}
