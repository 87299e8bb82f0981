//! Limits LLVM's trust in tags of loads and stores that do not run in each round of a loop.
//!
//! Tags say which of them do not alias: those of types, and scopes, which come of `noalias`
//! arguments once calls are inlined. A tag holds only for executed instructions, and a scope
//! declared within a loop only for one round. LLVM up to 23 assumes more, in two ways:
//!
//! - `licm` keeps the value at an address that a loop loads from and stores to in a register. The
//!   load moves before the loop, the store behind it, and always runs. To check this, LLVM asked
//!   the tags of a store that may not have run: issues 60860 and 217052 of llvm-project, fixed in
//!   24 by not asking.
//! - `gvn`, `dse` and others carry the value at an address from round to round, past stores in
//!   rounds that did not use the address: issue 223170, open.
//!
//! In `while (c[0]) halves(c, c + c[0], (c[0] + 1) / 2)`, `halves(restrict a, restrict b, n)`
//! exchanges `a[i]` and `b[-i]` for `n` numbers, written out. There `c[1]` is in a register in
//! rounds in which `b` is `c + 1`, and clang's code (-O1 to -O3) runs for ever. Rust's `reverse`
//! takes this form if its loop is unrolled: the bench's fannkuch never ended.
//!
//! So tags are limited if the address may be the same in each round of a loop, and a path round the
//! loop or out of it avoids the load, store or call:
//!
//! - an access with scopes, in a loop that declares some, [loses](forget) them before passes that
//!   look back through loops;
//! - tags of stores are put [`aside`] before `licm` runs and come [`back`] after it and the loop
//!   passes beside it, so that other passes use them as before.
//!
//! [`Gate`](crate::gate::Gate) decides when. A way out from a loop's head does not count:
//! `loop-rotate` puts it before the loop.
//!
//! Invariants:
//! - A tag that is aside stays attached to its own store, under another name: it shares the fate of
//!   the store.
//! - No tag is aside once passes are done.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMGetInstructionParent, LLVMGetMDKindIDInContext, LLVMGetMetadata, LLVMGetOperand,
    LLVMSetMetadata,
};
use inkwell::llvm_sys::prelude::{LLVMBasicBlockRef, LLVMContextRef};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::flow::{Flow, Loop};
use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef, is_call};

/// Kinds of tags, and their names while they are aside.
const KINDS: [(&str, &str); 4] = [
    ("tbaa", "uruk.tbaa"),
    ("tbaa.struct", "uruk.tbaa.struct"),
    ("alias.scope", "uruk.alias.scope"),
    ("noalias", "uruk.noalias"),
];

/// Steps from an address to its operands, beyond which it counts as the same in each round.
const STEPS: u32 = 8;

/// The intrinsic that declares a scope.
const DECLARES: &str = "llvm.experimental.noalias.scope.decl";

/// The numbers of [`KINDS`] in a context.
#[derive(Clone, Copy)]
pub(crate) struct TagKinds([(u32, u32); 4]);

impl TagKinds {
    /// # Safety
    /// The context is live.
    pub(crate) unsafe fn of(context: LLVMContextRef) -> TagKinds {
        let number = |name: &str| {
            // SAFETY: by the caller's promise; pointer and length describe the name.
            unsafe { LLVMGetMDKindIDInContext(context, name.as_ptr().cast(), name.len() as u32) }
        };
        TagKinds(KINDS.map(|(tag, aside)| (number(tag), number(aside))))
    }

    fn has_tags(self, it: InstructionRef<'_>) -> bool {
        self.0.iter().any(|&(tag, _)| has(it, tag))
    }

    /// The kinds of scopes, which are the last.
    fn scopes(self) -> [u32; 2] {
        let [.., (scope, _), (noalias, _)] = self.0;
        [scope, noalias]
    }

    fn has_scopes(self, it: InstructionRef<'_>) -> bool {
        self.scopes().iter().any(|&tag| has(it, tag))
    }

    /// Moves the tags of `store` from one kind of each pair to the other.
    fn rename(self, store: InstructionRef<'_>, pair: impl Fn((u32, u32)) -> (u32, u32)) {
        for (from, to) in self.0.map(pair) {
            // SAFETY: a live instruction; the node is one of its own.
            unsafe {
                let node = LLVMGetMetadata(store.raw(), from);
                if !node.is_null() {
                    LLVMSetMetadata(store.raw(), to, node);
                    LLVMSetMetadata(store.raw(), from, std::ptr::null_mut());
                }
            }
        }
    }
}

/// Whether an instruction has a tag.
fn has(it: InstructionRef<'_>, tag: u32) -> bool {
    // SAFETY: a live instruction.
    !unsafe { LLVMGetMetadata(it.raw(), tag) }.is_null()
}

fn is_store(it: &InstructionRef<'_>) -> bool {
    it.opcode() == LLVMOpcode::LLVMStore
}

fn accesses(it: &InstructionRef<'_>) -> bool {
    let opcode = it.opcode();
    matches!(opcode, LLVMOpcode::LLVMLoad | LLVMOpcode::LLVMStore) || is_call(opcode)
}

/// Removes scopes from accesses that may not run in a round of a loop that declares some.
pub(crate) fn forget(function: FunctionRef<'_>, kinds: TagKinds) {
    let all = function.instructions();
    let all = all.filter(|it| accesses(it) && kinds.has_scopes(*it));
    each_missed(function, all.collect(), |it, declares| {
        for tag in kinds.scopes().into_iter().filter(|_| declares) {
            // SAFETY: a live instruction.
            unsafe { LLVMSetMetadata(it.raw(), tag, std::ptr::null_mut()) };
        }
    });
}

/// Puts the tags aside of stores that may not run in a round of a loop; returns whether there are
/// any.
pub(crate) fn aside(function: FunctionRef<'_>, kinds: TagKinds) -> bool {
    let stores = function.instructions().filter(is_store);
    let stores = stores.filter(|it| kinds.has_tags(*it)).collect();
    let mut any = false;
    each_missed(function, stores, |store, _| {
        kinds.rename(store, |(tag, aside)| (tag, aside));
        any = true;
    });
    any
}

/// Calls `tell` with each access that some round may not run, and whether its loop declares scopes.
fn each_missed<'m>(
    function: FunctionRef<'m>,
    all: Vec<InstructionRef<'m>>,
    mut tell: impl FnMut(InstructionRef<'m>, bool),
) {
    if all.is_empty() {
        return;
    }
    let flow = Flow::of(function);
    let Some(loops) = flow.graph.loops(&flow.graph.back_edges()) else {
        // If loops cannot be distinguished, each access may be in one.
        return all.into_iter().for_each(|it| tell(it, true));
    };
    let mut rounds = Rounds::of(&flow, &loops);
    for it in all {
        if let Some(declares) = rounds.may_miss(it) {
            tell(it, declares);
        }
    }
}

/// Restores the tags of stores.
pub(crate) fn back(function: FunctionRef<'_>, kinds: TagKinds) {
    for it in function.instructions() {
        if is_store(&it) {
            kinds.rename(it, |(tag, aside)| (aside, tag));
        }
    }
}

/// The blocks that a round of a loop may avoid.
struct Rounds<'f> {
    flow: &'f Flow<'f>,
    loops: &'f [Loop],
    numbers: FxHashMap<LLVMBasicBlockRef, u32>,
    /// For each loop, whether scopes are declared in it.
    declaring: Vec<bool>,
    /// By loop and block, as far as computed.
    missed: FxHashMap<(usize, u32), bool>,
}

impl<'f> Rounds<'f> {
    fn of(flow: &'f Flow<'f>, loops: &'f [Loop]) -> Rounds<'f> {
        let numbers = flow.blocks.iter().map(|block| block.raw()).zip(0..);
        let declares = |block: &BlockRef<'_>| block.instructions().any(declares_scope);
        let places = (0..).zip(&flow.blocks).filter(|(_, block)| declares(block));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        let declaring = |it: &Loop| places.iter().any(|&place| it.inside[place]);
        Rounds {
            flow,
            loops,
            numbers: numbers.collect(),
            declaring: loops.iter().map(declaring).collect(),
            missed: FxHashMap::default(),
        }
    }

    /// Whether scopes are declared in a loop of which a round may avoid an access; `None` if there
    /// is no such loop. Only addresses that may be the same in other rounds count.
    fn may_miss(&mut self, it: InstructionRef<'_>) -> Option<bool> {
        let block = self.block_of(it)?;
        let mut found = None;
        for index in 0..self.loops.len() {
            let inside = self.loops[index].inside[block as usize];
            let missed = inside && self.passes_by(index, block);
            if missed && self.is_same(index, address(it), STEPS) {
                found = Some(found.unwrap_or(false) || self.declaring[index]);
            }
        }
        found
    }

    fn block_of(&self, it: InstructionRef<'_>) -> Option<u32> {
        // SAFETY: a live instruction.
        let block = unsafe { LLVMGetInstructionParent(it.raw()) };
        self.numbers.get(&block).copied()
    }

    /// Whether a loop has a path from its head to its head, or out of it, that avoids `block`.
    fn passes_by(&mut self, index: usize, block: u32) -> bool {
        if let Some(&known) = self.missed.get(&(index, block)) {
            return known;
        }
        let Loop { head, inside, .. } = &self.loops[index];
        let mut seen = FxHashSet::default();
        let mut work = vec![*head];
        let mut missed = false;
        while let Some(from) = work.pop().filter(|_| *head != block) {
            for &to in self.flow.graph.successors(from) {
                let is_way = to == *head || !inside[to as usize];
                if is_way {
                    missed |= to == *head || from != *head;
                } else if to != block && seen.insert(to) {
                    work.push(to);
                }
            }
            if missed {
                break;
            }
        }
        self.missed.insert((index, block), missed);
        missed
    }

    /// Whether a value may be the same in each round: within the limit of steps, it depends on
    /// nothing that changes.
    fn is_same(&self, index: usize, value: Option<ValueRef<'_>>, steps: u32) -> bool {
        let Some(made) = value.and_then(ValueRef::as_instruction) else {
            return true;
        };
        let block = self.block_of(made);
        let inside = block.is_some_and(|block| self.loops[index].inside[block as usize]);
        if !inside || steps == 0 {
            return true;
        }
        let mut operands = made.operands();
        made.opcode() != LLVMOpcode::LLVMPHI
            && operands.all(|operand| self.is_same(index, operand, steps - 1))
    }
}

/// Whether it is the intrinsic that declares a scope.
fn declares_scope(it: InstructionRef<'_>) -> bool {
    let callee = it.callee().and_then(ValueRef::as_function);
    callee.is_some_and(|callee| callee.is_intrinsic() && callee.name() == DECLARES)
}

/// The address that a load or store accesses; `None` for a call, which may access any.
fn address(it: InstructionRef<'_>) -> Option<ValueRef<'_>> {
    let operand = match it.opcode() {
        LLVMOpcode::LLVMLoad => 0,
        LLVMOpcode::LLVMStore => 1,
        _ => return None,
    };
    // SAFETY: a live instruction of that kind, which has that operand.
    Some(unsafe { ValueRef::of(LLVMGetOperand(it.raw(), operand)) })
}
