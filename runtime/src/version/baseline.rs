//! Tier 1 without LLVM: a function is read from its module's bytes, assembled to machine code, and
//! passed in parts to the linker. LLVM reads and compiles functions that are not covered here.
//!
//! [`Compiler::wants_baseline`] selects the functions. All phases after the compile are those of other
//! versions, but no object file exists: tools see none, and object caches keep none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use uruk_base::locks::Mutex;
use uruk_base::parts::{self, Part};
use uruk_base::{FunctionId, Tier};
use uruk_baseline::ir::{Function, Reach, SymbolData};
use uruk_baseline::{Code, Features, FixupKind, Options, Uncovered, UnwindTarget};
use uruk_codegen::{Compile, Compiled, Counters, Heads, Labels, NotPlain, Plain, Read, Reason};
use uruk_link::{Assembly, Form, LinkError, Part as LinkPart, Target};

use super::plan::BodyOf;
use crate::events::baseline::BaselineStats;
use crate::version::compiler::Compiler;

/// The functions that the baseline compiler compiles at tier 1, of those that it covers; LLVM
/// compiles the others there, and all at higher tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Baseline {
    /// None.
    Off,
    /// All. LLVM compiles functions whose IR or objects an embedder changes, and those for which a
    /// debugger needs lines.
    #[default]
    On,
    /// For tests, of programs and of this library: a half of the functions, selected by the seed.
    /// Equal seeds select the same functions.
    Half(u64),
}

impl Baseline {
    /// Whether it must compile that function, if it can.
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
    /// With their buffers, each with the thread that used it last.
    idle: Mutex<Vec<(ThreadId, Desk)>>,
    compiled: AtomicU64,
    uncovered: Mutex<BTreeMap<&'static str, u64>>,
}

/// Maximal number of idle compilers: for two workers of first calls, one that compiles ahead, and
/// some that compile on request. A thread without its own takes another's.
const MOST_DESKS: usize = 6;

/// A compiler and a reader, with buffers that are reused.
#[derive(Default)]
struct Desk {
    compiler: uruk_baseline::Compiler,
    plain: Plain,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// The analysis of a function, its code, and the function itself.
type BaselineResult = (Compiled, Assembled, Function);

/// The reason if a module cannot be read without LLVM.
pub(crate) const UNREAD: &str = "a module for LLVM to read";

/// A compiled function, with the names it refers to.
#[derive(Debug)]
pub(super) struct Assembled {
    symbols: Vec<SymbolData>,
    code: Code,
}

impl Compilers {
    /// The compilers of a session with that setting.
    pub(crate) fn new(setting: Baseline) -> Compilers {
        Compilers {
            setting,
            ..Compilers::default()
        }
    }

    /// Whether loading LLVM can wait until it is needed.
    pub(crate) fn is_on(&self) -> bool {
        self.setting == Baseline::On
    }

    /// Counts of functions that were compiled, and that were not.
    pub(crate) fn stats(&self) -> BaselineStats {
        let uncovered = self.uncovered.lock();
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
        let mut all = self.uncovered.lock();
        *all.entry(uncovered.what).or_default() += 1;
    }

    /// Counts a function as compiled or uncovered.
    fn noted(&self, done: Result<BaselineResult, Uncovered>) -> Option<BaselineResult> {
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

    /// Runs `work` with a compiler: the thread's own if possible, whose buffers are in its
    /// processor's caches and from its own arena of the C library.
    fn with<T>(&self, work: impl FnOnce(&mut Desk) -> T) -> T {
        let me = thread::current().id();
        let idle = || self.idle.lock();
        let desk = {
            let mut idle = idle();
            let own = idle.iter().position(|(owner, _)| *owner == me);
            let any = (idle.len() >= MOST_DESKS).then_some(0);
            own.or(any).map(|at| idle.swap_remove(at).1)
        };
        let mut desk = desk.unwrap_or_else(|| Desk {
            compiler: uruk_baseline::Compiler::new(Options {
                features: features(),
            }),
            plain: Plain::default(),
        });
        let done = work(&mut desk);
        let mut idle = idle();
        // A compiler is not returned after a panic.
        if idle.len() < MOST_DESKS {
            idle.push((me, desk));
        }
        done
    }
}

/// The features of this processor.
pub(crate) fn features() -> Features {
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
    /// Code with the names that its function refers to.
    fn new(mut symbols: Vec<SymbolData>, code: Code) -> Assembled {
        symbols.extend(code.library.iter().map(|&name| SymbolData {
            name: name.into(),
            reach: Reach::Indirect,
            is_weak: false,
        }));
        Assembled { symbols, code }
    }

    /// The linker's form of the code, under the name `function`; `file` names it in errors.
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
                // An absolute address: not relative to a place.
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

impl Compiler {
    /// Whether the baseline compiler should try a compile.
    pub(super) fn wants_baseline(&self, id: FunctionId, how: &Compile) -> bool {
        let asked = how.tier == Tier::Baseline && self.baseline.setting.takes(id);
        asked
            && how.start.is_none()
            && how.transform.is_none()
            && how.counters != Counters::Full
            && !self.layers.changes_objects()
    }

    /// Compiles a function from its module's bytes; `None` if LLVM must compile it. On the way it
    /// reports the function's calls to the speculation, and sets `sketched` then.
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
            if read.is_ok() && self.engines().wants_sketch(body.id) {
                let sketch = numbered.sketch_of(&desk.plain);
                self.engines()
                    .sketched(body.id, &function.module, &body.plan, sketch);
                *sketched = true;
            }
            let read = read.and_then(|()| {
                numbered.baseline(&body.plan, function.symbol, how, &mut desk.plain)
            });
            let over_native = self.choices.is_over_native();
            let read =
                read.and_then(
                    |read| match over_native && read.compiled.labels != Labels::None {
                        // Only LLVM finds whether native code has addresses of them.
                        true => Err(NotPlain::Unread("labels over native code")),
                        false => Ok(read),
                    },
                );
            let done = match read {
                Ok(read) => assemble(desk, read),
                // LLVM reports the error, if the function is invalid.
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

/// The exits of loops, compiled.
pub(super) struct CompiledExits {
    pub(super) heads: Heads,
    /// The code, if a loop has an exit.
    pub(super) assembled: Option<Assembled>,
    /// For each loop, the offset of its exit.
    pub(super) exits: Vec<Option<u32>>,
}

impl CompiledExits {
    /// No exits for so many loops: the code of the version cannot be told any more.
    pub(super) fn none(loops: usize) -> CompiledExits {
        CompiledExits {
            heads: Heads {
                refused: vec![(Reason::Lost, loops as u32)],
                ..Heads::default()
            },
            assembled: None,
            exits: vec![None; loops],
        }
    }
}

impl Compiler {
    /// The loops of a function, and which of them can be left; `None` if it cannot be read.
    pub(super) fn heads_without_llvm(&self, body: &BodyOf, how: &Compile) -> Option<Heads> {
        let function = &body.function;
        let numbered = function.module.readers.numbered()?;
        self.baseline.with(|desk| {
            let plain = &mut desk.plain;
            numbered.read_into(function.symbol, plain).ok()?;
            let read = numbered.baseline_exits(&body.plan, function.symbol, how, plain);
            let Read { compiled, function } = read.ok()?;
            desk.plain.take_back(function);
            Some(compiled.heads)
        })
    }

    /// Compiles the exits of loops of a function whose code has that fingerprint; `None` if other code
    /// would be compiled now, or none.
    pub(super) fn exits_without_llvm(
        &self,
        body: &BodyOf,
        how: &Compile,
        fingerprint: u64,
    ) -> Option<CompiledExits> {
        let function = &body.function;
        let numbered = function.module.readers.numbered()?;
        self.baseline.with(|desk| {
            numbered.read_into(function.symbol, &mut desk.plain).ok()?;
            let read = numbered.baseline_exits(&body.plan, function.symbol, how, &mut desk.plain);
            let read = read.ok()?;
            let (code, exits) = desk.compiler.compile_exits(&read.function).ok()?;
            if code.fingerprint() != fingerprint {
                return None;
            }
            let mut heads = read.compiled.heads;
            let all = heads.counted.len();
            let mut offsets = vec![None; all];
            for head in &read.function.counting.heads {
                let is_this = |&place: &usize| Heads::places(place, all).exit as u32 == head.exit;
                let exit = exits.blocks.iter().find(|exit| exit.0 == head.block);
                if let (Some(place), Some(&(_, offset))) = ((0..all).find(is_this), exit) {
                    offsets[place] = Some(offset);
                }
            }
            let known = heads.counted.iter().zip(&offsets);
            let lost = known.filter(|(head, exit)| head.fingerprint.is_some() && exit.is_none());
            let lost = lost.count() as u32;
            if lost != 0 {
                heads.refused.push((Reason::Lost, lost));
            }
            let mut function = read.function;
            let symbols = std::mem::take(&mut function.symbols);
            desk.plain.take_back(function);
            Some(CompiledExits {
                heads,
                assembled: (!exits.blocks.is_empty()).then(|| Assembled::new(symbols, exits)),
                exits: offsets,
            })
        })
    }
}

/// Assembles a function that was read; the function is returned without its names.
fn assemble(desk: &mut Desk, read: Read) -> Result<BaselineResult, Uncovered> {
    let _assembling = parts::enter(Part::Assembling);
    let code = desk.compiler.compile(&read.function)?;
    let mut function = read.function;
    let mut compiled = read.compiled;
    if !function.counting.heads.is_empty() {
        compiled.fingerprint = Some(code.fingerprint());
    }
    let symbols = std::mem::take(&mut function.symbols);
    Ok((compiled, Assembled::new(symbols, code), function))
}

#[cfg(test)]
mod tests;
