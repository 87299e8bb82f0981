//! Constructors that come with a replacement, and their destructors.
//!
//! They run on the thread that replaces: guest code never runs on a thread of the session. No lock
//! of the session is held then, except the turn to replace. It is lent to first bodies, since a
//! constructor may be the first to call a function.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

use uruk_base::FunctionId;

use crate::code::life::Life;
use crate::code::module::Module;
use crate::error::Error;
use crate::exits;
use crate::load::hooks::priority_of;
use crate::load::hooks::run::construct;
use crate::load::input::function_base;
use crate::replace::state::Replacing;

use super::plan::Planned;

/// Constructors and destructors of an input: priority, address and name.
#[derive(Default)]
pub(super) struct InputHooks {
    /// Number of the image.
    pub(super) image: u64,
    pub(super) life: Arc<Life>,
    pub(super) constructors: Vec<(u32, u64, String)>,
    /// In running order.
    pub(super) destructors: Vec<(u32, u64, String)>,
    /// Constructors of variables that exist.
    pub(super) again: Vec<String>,
}

impl InputHooks {
    /// Names of all of them.
    pub(super) fn names(self) -> Vec<String> {
        let hooks = self.constructors.into_iter().chain(self.destructors);
        self.again
            .into_iter()
            .chain(hooks.map(|(.., name)| name))
            .collect()
    }
}

/// The image whose destructors run at a program's exit.
struct ExitDestructors {
    replacing: Weak<Replacing>,
    image: u64,
}

impl Replacing {
    /// Collects the constructors and destructors of the module. Constructors that are members are
    /// called at their new code, which nothing else reaches yet.
    pub(super) fn hooks_of(
        &self,
        module: &Module,
        planned: &Planned,
        entries: &HashMap<FunctionId, u64>,
    ) -> InputHooks {
        let summary = module.readers.summary();
        let mut hooks = InputHooks {
            image: planned.image,
            life: Arc::clone(&module.life),
            ..InputHooks::default()
        };
        let of = |entry: &uruk_codegen::Structor| {
            let base = function_base(summary, entry.function)?;
            let link_name = &planned.plan.import(base).name;
            let stub = self.address_of(&module.dylib, link_name)?;
            let name = summary.symbols[base.index()].name.clone();
            Some((priority_of(entry), stub, name))
        };
        for entry in &summary.constructors {
            let Some((priority, stub, name)) = of(entry) else {
                continue;
            };
            let id = self.stubs.function_at(stub);
            let address = id.and_then(|id| entries.get(&id).copied()).unwrap_or(stub);
            match entry.key.is_some_and(|key| planned.kept.contains(&key)) {
                true => hooks.again.push(name),
                false => hooks.constructors.push((priority, address, name)),
            }
        }
        hooks.constructors.sort_by_key(|hook| hook.0);
        hooks.destructors = summary.destructors.iter().filter_map(of).collect();
        hooks.destructors.sort_by_key(|hook| hook.0);
        hooks.destructors.reverse();
        hooks
    }

    /// Runs constructors and registers destructors; returns the names of `again`.
    ///
    /// # Errors
    /// An error or panic of a function of the host, or a trap, in a constructor, outside a program.
    /// Those after it are not run.
    pub(super) fn run_hooks(self: &Arc<Self>, hooks: InputHooks) -> Result<Vec<String>, Error> {
        let nothing = [std::ptr::null()];
        let lent = self.lend_turn();
        for &(_, address, _) in &hooks.constructors {
            // SAFETY: duty 1 of `Replacement::run_constructors`; empty vectors end themselves.
            unsafe {
                match self.is_program() {
                    true => {
                        uruk_stubs::call_init(address, 0, nothing.as_ptr(), nothing.as_ptr());
                    }
                    false => construct(address)?,
                }
            }
        }
        drop(lent);
        let destructors = hooks.destructors.iter();
        let destructors: Vec<(u32, u64)> = destructors.map(|it| (it.0, it.1)).collect();
        if destructors.is_empty() {
            return Ok(hooks.again);
        }
        self.note_destructors(hooks.image, &hooks.life, &destructors);
        if self.is_program() {
            let what = ExitDestructors {
                replacing: Arc::downgrade(self),
                image: hooks.image,
            };
            let what = Box::into_raw(Box::new(what));
            // SAFETY: the handler takes the box, and is part of this executable.
            unsafe { exits::at_exit_with(run_at_exit, what.cast::<c_void>()) };
        }
        Ok(hooks.again)
    }
}

unsafe extern "C-unwind" fn run_at_exit(what: *mut c_void) {
    // SAFETY: `run_hooks` registered it with a box, once.
    let ExitDestructors { replacing, image } =
        *unsafe { Box::from_raw(what.cast::<ExitDestructors>()) };
    // The session of a program lives until the process ends.
    let Some(replacing) = replacing.upgrade() else {
        return;
    };
    while let Some(address) = replacing.next_destructor(|of, _| of == image) {
        // SAFETY: destructors of an input that was allowed to run its constructors.
        unsafe { uruk_stubs::call_void(address) };
    }
}
