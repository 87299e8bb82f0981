//! Producers of first bodies that are of no use any more: nothing can bring their placeholders back.

use std::sync::Arc;

use super::lazy::Lazy;
use crate::api::dylib::Dylib;
use crate::fork::gate;
use crate::load::names::Definition;

/// Closures of a function that may stay because others replace functions meanwhile.
const LAPSED: usize = 16;

/// Notes who produces the function's body, and has earlier closures go whose placeholder nothing
/// can bring back.
pub(super) fn note_lazy(dylib: &Dylib, name: &str, producer: Arc<dyn Lazy>) {
    let core = dylib.jit.core();
    let own = || match core.names.find_own(&dylib.dylib, name) {
        Some(Definition::Function { id }) => Some(id),
        _ => None,
    };
    let noted = {
        let _pass = gate::enter();
        own().map(|id| (id, core.host.note_lazy(id, Arc::clone(&producer))))
    };
    let Some((id, count)) = noted else {
        // It was removed meanwhile. What was captured is dropped without a lock: it may use the
        // session.
        return producer.lapse();
    };
    if count == 1 {
        return;
    }
    // While a set is committed or rolled back, its bodies are neither functions' nor in the
    // history: only under a turn is it known that nothing leads to a placeholder.
    let turn = match core.replacing.try_turn() {
        // Who redefines a function again and again beside others waits at some time.
        None if count > LAPSED => core.replacing.turn().ok(),
        turn => turn,
    };
    let Some(turn) = turn else {
        return;
    };
    let lapsed = {
        let _pass = gate::enter();
        let is_body = |file: &str| core.body(id).is_some_and(|it| it.is_of_file(file));
        let of_use = |it: &dyn Lazy| is_body(it.file()) || core.replacing.keeps(id, it.file());
        core.host.lapsed(id, of_use)
    };
    drop(turn);
    lapsed.iter().for_each(|it| it.lapse());
}
