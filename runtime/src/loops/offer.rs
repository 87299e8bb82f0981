//! Continuations as functions of the session: made, offered, and removed.

use std::sync::Arc;

use tracing::debug;
use uruk_base::FunctionId;
use uruk_codegen::{Compiled, Start};

use super::watch::WatchedLoops;
use crate::code::body::ModuleFunction;
use crate::code::loops::Loops;
use crate::code::loops::Origin;
use crate::code::static_names::continued;
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::fork::confine;
use crate::loops::state::Continuations;
use crate::version::{BodyOf, exits};

impl Continuations {
    /// The words of the loops of a version that is being linked.
    ///
    /// # Errors
    /// No room.
    pub(crate) fn loops_of(
        self: &Arc<Self>,
        of: &BodyOf,
        compiled: &Compiled,
    ) -> Result<Option<Arc<Loops>>, Error> {
        self.refuse(of.id, &compiled.heads);
        let heads = &compiled.heads.counted;
        if heads.is_empty() {
            return Ok(None);
        }
        let all = self;
        let loops = Loops::new(
            &self.heap,
            of.id,
            &of.function,
            compiled,
            &all.ended,
            &all.gone,
        )?;
        if let Some(passes) = self.choices.leaves_after() {
            exits::make(self, &loops)?;
            for place in 0..heads.len() {
                let continuation = self.continuation(&loops, place)?;
                if let Some(continuation) = continuation {
                    loops.offer(place, self.stubs.stub_address(continuation));
                    loops.ask_after(place, passes(of.id, place));
                }
            }
        }
        let watched = WatchedLoops::new(&loops, compiled, self.events.now());
        self.watched().push(&loops, watched);
        if !confine::may_read_cycles() {
            loops.note_times(false);
        }
        Ok(Some(loops))
    }

    /// The function that continues at the head of a loop, made if there is none; `None` if nothing
    /// is offered any more, or the loop cannot be left. Its first compile makes the exits of the
    /// loops: a continuation of a loop that has none then fails.
    ///
    /// # Errors
    /// No room for a stub.
    pub(crate) fn continuation(
        self: &Arc<Self>,
        loops: &Arc<Loops>,
        place: usize,
    ) -> Result<Option<FunctionId>, Error> {
        if let Some(known) = loops.continuation(place) {
            return Ok(Some(known));
        }
        let Some(function) = loops.of.upgrade() else {
            return Ok(None);
        };
        if loops.exits().lack(place) {
            loops.fail(place);
            return Ok(None);
        }
        let id = self.new_continuation(loops, place, function, None)?;
        if loops.note(place, id) {
            return Ok(Some(id));
        }
        // Another thread was first, or the loops were closed.
        self.drop_continuation(id);
        Ok(loops.continuation(place))
    }

    /// A function that starts in `function`'s body, for threads that leave a loop: `elsewhere`, or at
    /// the head of that loop.
    ///
    /// # Errors
    /// No room for a stub.
    pub(crate) fn new_continuation(
        self: &Arc<Self>,
        loops: &Arc<Loops>,
        place: usize,
        function: ModuleFunction,
        elsewhere: Option<Start>,
    ) -> Result<FunctionId, Error> {
        let id = match self.take_free().filter(|id| self.stubs.revive(*id)) {
            Some(id) => id,
            None => self.stubs.allocate()?,
        };
        let name = function.name.to_string_lossy();
        let name = format!("{}@loop{}", continued(&name).unwrap_or(&name), place + 1);
        let origin = Origin {
            loops: Arc::downgrade(loops),
            whose: loops.whose,
            place,
            elsewhere,
        };
        self.set_function(
            id,
            ModuleFunction {
                name: static_name(&name),
                origin: Some(Arc::new(origin)),
                ..function
            },
        );
        Ok(id)
    }

    /// Removes a continuation that was never offered.
    pub(crate) fn drop_continuation(&self, id: FunctionId) {
        let ended = &self.ended;
        let mut ended = ended.lock();
        ended.continuations.push(id);
    }

    /// Offers a continuation to threads in the loop, if `id` is one that was published; or notes
    /// that there is none.
    pub(crate) fn continuation_made(self: &Arc<Self>, id: FunctionId, published: bool) {
        let Some(origin) = self.origin_of(id) else {
            return;
        };
        let Some(loops) = origin.loops.upgrade() else {
            return;
        };
        if !published {
            return loops.fail(origin.place);
        }
        // A thread that forbids continuations adds the function to the list first and takes offers
        // back then.
        let forbidden = self.forbidden();
        if forbidden.contains(&loops.whose.index()) {
            return;
        }
        if loops.offer(origin.place, self.stubs.stub_address(id)) {
            debug!(function = self.name_of(id), "offered");
            self.count_offer();
        }
    }

    /// Removes the continuations that can no longer be called, and drops the loops of freed
    /// versions.
    pub(crate) fn remove_ended(self: &Arc<Self>) {
        let ended = {
            let ended = &self.ended;
            std::mem::take(&mut *ended.lock())
        };
        if !ended.versions.is_empty() {
            self.watched().forget_gone(&ended.versions);
        }
        for exits in ended.exits {
            self.retire_exits(exits);
        }
        for id in ended.continuations {
            self.remove_continuation(id);
        }
    }

    fn remove_continuation(self: &Arc<Self>, id: FunctionId) {
        self.engines().remove_function(id);
        self.give_free(id);
    }
}
