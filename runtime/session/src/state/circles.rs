//! Cycles of lookups that wait for each other in queues of generators.
//!
//! A lookup that is made on behalf of the one inside a generator, and queues at another generator,
//! keeps the first one busy. A cycle of such lookups, on as many threads, would wait forever; on
//! one thread it is an error. So its members bypass their queues, and the generators are called as
//! on one thread.

use std::sync::Arc;

use super::DylibState;
use super::dylibs::DylibTable;
use crate::effects::Effects;
use crate::generator::GeneratorCell;
use crate::inside::Question;
use crate::job::Job;
use crate::number::{DylibId, GeneratorId};

/// A generator of a dylib.
pub(super) fn generator_mut(
    dylibs: &mut DylibTable<DylibState>,
    dylib: DylibId,
    id: GeneratorId,
) -> Option<&mut GeneratorCell> {
    let state = dylibs.get_mut(&dylib)?;
    state.generators.iter_mut().find(|cell| cell.id == id)
}

/// Whether a lookup queued at a generator would wait for itself: the one inside waits, over any
/// number of queues, for one on whose behalf it is made. If so, the lookups of the cycle bypass
/// their queues.
pub(super) fn open_circle(
    dylibs: &mut DylibTable<DylibState>,
    at: GeneratorId,
    job: &Job,
    effects: &mut Effects,
) -> bool {
    let Some(inside) = &job.inside.question else {
        return false;
    };
    let own: Vec<&Arc<Question>> = inside.chain().collect();
    let is_of = |chain: &[&Arc<Question>], question: &Option<Arc<Question>>| {
        let mut chain = chain.iter();
        question
            .as_ref()
            .is_some_and(|it| chain.any(|other| Arc::ptr_eq(other, it)))
    };
    let cells = dylibs.values().flat_map(|dylib| {
        let cells = dylib.generators.iter().filter(|cell| cell.busy);
        cells.map(|cell| (dylib.shared.id, cell))
    });
    let cells: Vec<(DylibId, &GeneratorCell)> = cells.collect();
    // From the generator to those at which the lookups inside are queued, nearest first.
    let mut found: Vec<(usize, Option<(usize, usize)>)> = Vec::new();
    found.extend(
        cells
            .iter()
            .position(|(_, cell)| cell.id == at)
            .map(|it| (it, None)),
    );
    let mut next = 0;
    let mut closed = None;
    while let (Some(&(from, _)), None) = (found.get(next), closed) {
        for (to, (_, cell)) in cells.iter().enumerate() {
            let waits = cell.line.iter().position(|job| {
                let chain: Vec<_> = job
                    .inside
                    .question
                    .iter()
                    .flat_map(Question::chain)
                    .collect();
                is_of(&chain, &cells[from].1.inside)
            });
            let Some(place) = waits.filter(|_| found.iter().all(|it| it.0 != to)) else {
                continue;
            };
            found.push((to, Some((next, place))));
            if is_of(&own, &cell.inside) {
                closed = Some(found.len() - 1);
                break;
            }
        }
        next += 1;
    }
    let Some(mut last) = closed else {
        return false;
    };
    let mut circle = Vec::new();
    while let (to, Some((before, place))) = found[last] {
        circle.push((cells[to].0, cells[to].1.id, place));
        last = before;
    }
    for (dylib, id, place) in circle {
        let cell = generator_mut(dylibs, dylib, id);
        if let Some(mut job) = cell.and_then(|cell| cell.line.remove(place)) {
            job.past = true;
            effects.resume(job);
        }
    }
    true
}
