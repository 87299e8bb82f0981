//! The exits of loops of code of the baseline compiler, compiled when a loop is to be left.
//!
//! Of a program's loops hardly any is ever left, and to describe the values that cross at their heads
//! takes as long as half of a compile. So the first compile leaves that out. When a continuation is
//! wanted, the body is read again, and the exits are compiled into code of their own. Code of the
//! version jumps there from the heads (`uruk_baseline`, `emit/exits.rs`).
//!
//! # Invariants
//! - Exits know the places of values from another compile of the same body. They are used only if
//!   that compile made the very code of the version, by its fingerprint.
//! - Exits never move: words of the loops hold their addresses. They are a version of their own
//!   without an entry, retired when the version that they belong to was freed. Frames that left a
//!   loop are in them, not in the version; so they keep the words of the loops, and with these the
//!   continuations.

use std::sync::Arc;

use uruk_base::{FunctionId, Tier, VersionId};
use uruk_codegen::{BODY_PREFIX, Start};
use uruk_reclaim::Fixed;

use super::baseline::{Assembled, CompiledExits};
use super::findable::NewCode;
use super::link::{self, CountingWords};
use super::offers::Crossing;
use super::plan::BodyOf;
use crate::code::blocks::{LinkedCode, NewBlock, Rest, split};
use crate::code::loops::{Loops, Origin};
use crate::error::{Error, Refusal};
use crate::version::compiler::Compiler;

/// The start of a continuation; its loop's exit is compiled if it was not.
///
/// # Errors
/// The loop cannot be left; no room for the exit. Cancelled if the version was freed.
pub(super) fn start_of(
    compiler: &Arc<Compiler>,
    id: FunctionId,
    origin: &Origin,
) -> Result<Start, Error> {
    if let Some(start) = &origin.elsewhere {
        return Ok(start.clone());
    }
    // Nothing calls a continuation of a version that was freed.
    let loops = origin.loops.upgrade();
    let loops = loops.ok_or_else(|| compiler.cancelled(id))?;
    make(compiler, &loops)?;
    let start = loops.exits().start(origin.place).map(|fingerprint| Start {
        block: loops.heads[origin.place].block,
        fingerprint,
        passed: None,
    });
    start.ok_or_else(|| Error::Version {
        function: compiler.name_of(id),
        cause: Refusal::NoExit,
    })
}

/// Compiles the exits of the loops of a version, if they were left out. Under a pass.
///
/// # Errors
/// No room.
pub(crate) fn make(compiler: &Arc<Compiler>, loops: &Arc<Loops>) -> Result<(), Error> {
    let (Some(fingerprint), Some(function)) = (loops.exits().are_for(), loops.of.upgrade()) else {
        return Ok(());
    };
    let body = BodyOf {
        id: loops.function,
        plan: function.module.plan(),
        function,
        crosses: true,
    };
    let how = compiler.choices.how(Tier::Baseline);
    let made = compiler.exits_without_llvm(&body, &how, fingerprint);
    let all = loops.heads.len();
    let made = made.unwrap_or_else(|| CompiledExits::none(all));
    let (exits, version) = match &made.assembled {
        Some(assembled) => {
            let (start, version) = link(compiler, &body, loops, assembled)?;
            let exits = made.exits.iter().zip(&made.heads.counted);
            let exits = exits.map(|(offset, head)| {
                let address = start + u64::from((*offset)?);
                Some((address, head.fingerprint?))
            });
            (exits.collect(), Some(version))
        }
        None => (vec![None; all], None),
    };
    match (loops.set_exits(&exits, version), version) {
        (true, _) => {
            let some = exits.iter().any(Option::is_some);
            let engines = compiler.engines();
            engines.loops_told(loops.whose, &made.heads, some);
        }
        // Another thread was first.
        (false, Some(version)) => compiler.retire_exits(version),
        (false, None) => {}
    }
    Ok(())
}

/// Links the exits of loops; returns the address of their code, which can be reached from now on.
fn link(
    compiler: &Arc<Compiler>,
    body: &BodyOf,
    loops: &Arc<Loops>,
    assembled: &Assembled,
) -> Result<(u64, VersionId), Error> {
    let function = &body.function;
    let link_name = &body.plan.import(function.symbol).name;
    let file = function.module.readers.bitcode().name();
    let symbol = format!("{BODY_PREFIX}{link_name}");
    let assembly = assembled.assembly(file, &symbol)?;
    let laid = compiler.lay_out(link_name, assembly.object())?;
    let counters = compiler.counts.address(&compiler.heap, body.id)?;
    let counting = CountingWords::of_exits(counters, loops);
    let fixed = compiler.fix_up(body, laid, &symbol, counting, &Crossing::default())?;
    let (linked, place) = (fixed.linked, fixed.function);
    let code = fixed.drafts.code_range();
    let (memory, data) = split(link::write(fixed.drafts, &linked)?);
    let memory = memory.ok_or_else(|| link::no_code(link_name))?;
    compiler.make_findable(&NewCode {
        name: function.name,
        tier: Tier::Baseline,
        stands_in: false,
        body: place.clone(),
        code: code.clone(),
        object: None,
        linked: &linked,
        symbol: &symbol,
    })?;
    let version = compiler.versions.ids.next();
    compiler.sampled.insert(code, body.id, version);
    let rest = Rest::new(data, None, fixed.uses).leaving(loops);
    compiler.notes.live(NewBlock {
        function: Some(body.id),
        version,
        depends: Arc::default(),
        fixed: Some(Fixed::Referenced),
        code: LinkedCode {
            memory,
            entry: place.start,
            body_end: place.end,
            text_size: linked.text_size,
            rows: linked.fdes,
            name: function.name,
            unwind: linked.eh_frame.as_ref().map_or(0, |records| records.size),
            moves: None,
            rest: Arc::new(rest),
        },
    });
    Ok((place.start, version))
}

/// Whether no loop of a function can be left, by its description alone; the reasons are noted then.
pub(super) fn are_none(compiler: &Compiler, body: &BodyOf) -> bool {
    let how = compiler.choices.how(Tier::Baseline);
    let heads = compiler.heads_without_llvm(body, &how).unwrap_or_default();
    let none = heads.counted.iter().all(|head| head.fingerprint.is_none());
    if none {
        compiler.engines().loops_told(body.id, &heads, false);
    }
    none
}
