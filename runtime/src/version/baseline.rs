//! Tier 1 without LLVM: a function read from its module's bytes, machine code from that, and its
//! parts for the linker. What is not read or covered here, LLVM reads and compiles.
//!
//! Who gets it: [`Core::wants_baseline`]. Everything after the compile is as for other versions,
//! but that there is no object file: tools get to see none, and object caches keep nothing.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use uruk_base::locks::Mutex;
use uruk_base::parts::{self, Part};
use uruk_base::{FunctionId, Tier};
use uruk_baseline::ir::{Function, Reach, SymbolData};
use uruk_baseline::{Code, Compiler, Features, FixupKind, Options, Uncovered, UnwindTarget};
use uruk_codegen::{Compile, Compiled, Counters, Labels, NotPlain, Plain, Read};
use uruk_link::{Assembly, Form, LinkError, Part as LinkPart, Target};

use super::plan::BodyOf;
use crate::core::Core;
use crate::told::baseline::BaselineStats;

/// Which functions the baseline compiler compiles at tier 1, of those that it covers; LLVM
/// compiles the others there, and all at higher tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Baseline {
    /// None.
    Off,
    /// All. Functions whose IR or objects an embedder changes, and those whose lines a debugger
    /// wants, are LLVM's.
    #[default]
    On,
    /// For tests, of programs and of this library: a half, which the number seeds. The same
    /// functions are taken each time.
    Half(u64),
}

impl Baseline {
    /// Whether it is to compile that function, if it can.
    fn takes(self, id: FunctionId) -> bool {
        match self {
            Baseline::Off => false,
            Baseline::On => true,
            Baseline::Half(seed) => {
                let mixed =
                    (seed ^ u64::from(id.index()) << 32).wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed >> 63 != 0
            }
        }
    }
}

/// The baseline compilers of a session.
#[derive(Debug, Default)]
pub(crate) struct Compilers {
    setting: Baseline,
    /// With their buffers, each of the thread that used it last.
    idle: Mutex<Vec<(ThreadId, Desk)>>,
    compiled: AtomicU64,
    uncovered: Mutex<BTreeMap<&'static str, u64>>,
}

/// Desks that are kept: for two workers of first calls, one that compiles ahead, and some that
/// compile what they are asked for. A thread that finds no own one takes another's.
const MOST_DESKS: usize = 6;

/// What is kept from function to function.
#[derive(Default)]
struct Desk {
    compiler: Compiler,
    plain: Plain,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// What is found out of a function, its code, and itself.
type Made = (Compiled, Assembled, Function);

/// Why nothing of a module is read without LLVM.
pub(super) const UNREAD: &str = "a module for LLVM to read";

/// A function that was compiled, with the names it refers to.
#[derive(Debug)]
pub(super) struct Assembled {
    symbols: Vec<SymbolData>,
    code: Code,
}

impl Compilers {
    /// Of a session with that setting.
    pub(crate) fn new(setting: Baseline) -> Compilers {
        Compilers {
            setting,
            ..Compilers::default()
        }
    }

    /// Whether LLVM is to be waited for until it is needed.
    pub(crate) fn is_on(&self) -> bool {
        self.setting == Baseline::On
    }

    /// What was compiled, and what was not.
    pub(crate) fn stats(&self) -> BaselineStats {
        let uncovered = self.uncovered.lock();
        let uncovered = uncovered.unwrap_or_else(PoisonError::into_inner);
        let mut uncovered: Vec<_> = uncovered
            .iter()
            .map(|(&what, &count)| (what, count))
            .collect();
        uncovered.sort_by_key(|&(what, count)| (std::cmp::Reverse(count), what));
        BaselineStats {
            compiled: self.compiled.load(Ordering::Relaxed),
            uncovered,
        }
    }

    fn note(&self, uncovered: Uncovered) {
        let mut all = self
            .uncovered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *all.entry(uncovered.what).or_default() += 1;
    }

    /// Counts what was compiled, and what was not.
    fn noted(&self, done: Result<Made, Uncovered>) -> Option<Made> {
        match done {
            Ok(made) => {
                self.compiled.fetch_add(1, Ordering::Relaxed);
                Some(made)
            }
            Err(uncovered) => {
                self.note(uncovered);
                None
            }
        }
    }

    /// Has work done at a desk: at the thread's own, whose buffers are in its processor's caches
    /// and of its own arena of the C library's.
    fn with<T>(&self, work: impl FnOnce(&mut Desk) -> T) -> T {
        let me = thread::current().id();
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let desk = {
            let mut idle = idle();
            let own = idle.iter().position(|(owner, _)| *owner == me);
            let any = (idle.len() >= MOST_DESKS).then_some(0);
            own.or(any).map(|at| idle.swap_remove(at).1)
        };
        let mut desk = desk.unwrap_or_else(|| Desk {
            compiler: Compiler::new(Options {
                features: features(),
            }),
            plain: Plain::default(),
        });
        let done = work(&mut desk);
        let mut idle = idle();
        // One that panics does not come back.
        if idle.len() < MOST_DESKS {
            idle.push((me, desk));
        }
        done
    }
}

/// What this processor has.
pub(super) fn features() -> Features {
    Features {
        popcnt: is_x86_feature_detected!("popcnt"),
        lzcnt: is_x86_feature_detected!("lzcnt"),
        bmi1: is_x86_feature_detected!("bmi1"),
        ssse3: is_x86_feature_detected!("ssse3"),
        sse41: is_x86_feature_detected!("sse4.1"),
        cx16: is_x86_feature_detected!("cmpxchg16b"),
    }
}

impl Assembled {
    /// As the linker takes it, under the name `function`; `file` is what errors call it.
    pub(super) fn assembly<'a>(
        &'a self,
        file: &'a str,
        function: &'a str,
    ) -> Result<Assembly<'a>, LinkError> {
        let Code {
            bytes, size, align, ..
        } = &self.code;
        let assembly = Assembly::new(file, function, bytes, (*size).into(), (*align).into())?;
        let handlers = self.code.handlers.as_ref();
        let mut assembly = assembly
            .with_unwind(&self.code.unwind)
            .with_handlers(handlers.map_or(&[], |handlers| &handlers.bytes));
        let library = self.code.library.iter();
        let named = self.symbols.iter();
        let named = named.map(|symbol| (&*symbol.name, symbol.is_weak));
        let all = named.chain(library.map(|&name| (name, false)));
        assembly.reserve(
            self.symbols.len() + self.code.library.len(),
            self.code.fixups.len(),
        );
        let targets: Vec<Target> = all
            .map(|(name, is_weak)| assembly.external(name, is_weak))
            .collect();
        for fixup in &self.code.fixups {
            let (form, width) = match fixup.kind {
                FixupKind::Distance => (Form::Distance, 4),
                FixupKind::CallThrough => (Form::CallWord, 4),
                FixupKind::AddressWord => (Form::LoadWord, 4),
                FixupKind::Word => (Form::Word, 4),
                FixupKind::ThreadLocalPair => (Form::ThreadLocalWords, 4),
                // Counts from nowhere.
                FixupKind::Absolute64 => (Form::Absolute, 0),
            };
            let (at, to) = (fixup.at.into(), targets[fixup.symbol.index()]);
            assembly.fill(LinkPart::Code, at, form, to, fixup.addend - width);
        }
        for &(at, symbol) in handlers.map_or(&[][..], |handlers| &handlers.types) {
            let to = targets[symbol.index()];
            assembly.fill(LinkPart::Handlers, at.into(), Form::Word, to, 0);
        }
        for fixup in &self.code.unwind_fixups {
            let (form, to) = match fixup.to {
                UnwindTarget::Function => (Form::Distance, Target::FUNCTION),
                UnwindTarget::Handlers => (Form::Distance, Target::HANDLERS),
                UnwindTarget::Personality(symbol) => (Form::Word, targets[symbol.index()]),
            };
            assembly.fill(LinkPart::Unwind, fixup.at.into(), form, to, 0);
        }
        Ok(assembly)
    }
}

impl Core {
    /// Whether the baseline compiler is to try a compile.
    pub(super) fn wants_baseline(&self, id: FunctionId, how: &Compile) -> bool {
        let asked = how.tier == Tier::Baseline && self.baseline.setting.takes(id);
        asked
            && how.start.is_none()
            && how.transform.is_none()
            && how.counters != Counters::Full
            && !self.layers.changes_objects()
    }

    /// Compiles a function from its module's bytes; nothing if LLVM is to. On the way, whoever
    /// compiles ahead is told what it calls, and `sketched` that it was.
    pub(super) fn compile_without_llvm(
        &self,
        body: &BodyOf,
        how: &Compile,
        sketched: &mut bool,
    ) -> Option<(Compiled, Assembled)> {
        let function = &body.function;
        let Some(numbered) = function.module.readers.numbered() else {
            self.baseline.note(Uncovered { what: UNREAD });
            return None;
        };
        self.baseline.with(|desk| {
            let read = numbered.read_into(function.symbol, &mut desk.plain);
            if read.is_ok() && self.speculation.wants(body.id) {
                let sketch = numbered.sketch_of(&desk.plain);
                self.speculation
                    .sketched(body.id, &function.module, &body.plan, sketch);
                *sketched = true;
            }
            let read = read.and_then(|()| {
                numbered.baseline(&body.plan, function.symbol, how, &mut desk.plain)
            });
            let over_native = self.tiers.is_over_native();
            let read =
                read.and_then(
                    |read| match over_native && read.compiled.labels != Labels::None {
                        // LLVM tells whether native code has addresses of them.
                        true => Err(NotPlain::Unread("labels over native code")),
                        false => Ok(read),
                    },
                );
            let done = match read {
                Ok(read) => assemble(desk, read),
                // LLVM says what of it is invalid, if anything is.
                Err(refused) => Err(Uncovered {
                    what: refused.what(),
                }),
            };
            let (compiled, assembled, function) = self.baseline.noted(done)?;
            desk.plain.take_back(function);
            Some((compiled, assembled))
        })
    }
}

/// Machine code of a function that was read, which is given back without its names.
fn assemble(desk: &mut Desk, read: Read) -> Result<Made, Uncovered> {
    let _assembling = parts::enter(Part::Assembling);
    let code = desk.compiler.compile(&read.function)?;
    let mut function = read.function;
    let mut symbols = std::mem::take(&mut function.symbols);
    symbols.extend(code.library.iter().map(|&name| SymbolData {
        name: name.into(),
        reach: Reach::Indirect,
        is_weak: false,
    }));
    Ok((read.compiled, Assembled { symbols, code }, function))
}

#[cfg(test)]
mod tests;
