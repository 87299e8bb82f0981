//! What cannot be left in the middle, and why.
//!
//! | reason | what would go wrong |
//! |---|---|
//! | [`Reason::Arguments`] | `va_start` behind the head would look for arguments in the wrong frame |
//! | [`Reason::FrameAddress`] | the address of a frame, or of a return address, would be the continuation's |
//! | [`Reason::SavedStack`] | going back to a stack pointer that is not seen to be saved in this frame |
//! | [`Reason::Labels`] | an address of a label means a place in the old code |
//! | [`Reason::TailCall`] | a `musttail` call gives its frame up, which would now be two |
//! | [`Reason::Coroutine`] | its frame is not on the stack yet |
//! | [`Reason::Type`] | tokens, and vectors of unknown size, cannot be kept in memory |
//! | [`Reason::Exception`] | which handler a landing pad chose is a number, and each function numbers its own |
//! | [`Reason::Entry`] | the head is a landing pad, or no head in the loop's own right |
//! | [`Reason::TooLarge`] | the analysis would take too long |
//! | [`Reason::Other`] | `asm goto`, collectors of garbage, funclets, functions that return twice |
//! | [`Reason::Changed`] | an embedder changes what is compiled |

use std::fmt;
use std::sync::OnceLock;

use inkwell::llvm_sys::core::{
    LLVMGetCallSiteEnumAttribute, LLVMGetEnumAttributeKindForName, LLVMGetGC,
    LLVMGetInstructionParent, LLVMGetNumArgOperands, LLVMGetTailCallKind, LLVMIsAInlineAsm,
    LLVMLookupIntrinsicID,
};
use inkwell::llvm_sys::{LLVMOpcode, LLVMTailCallKind, LLVMValueKind};

use super::frame::is_static;
use crate::flow::{Flow, Loop};
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::source::AttributeKinds;

/// Why a loop cannot be left for a continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Variable arguments are looked for behind the head.
    Arguments,
    /// The function asks for the address of its frame.
    FrameAddress,
    /// The stack pointer is set to something that is not seen to be this frame's.
    SavedStack,
    /// Addresses of labels.
    Labels,
    /// A `musttail` call behind the head.
    TailCall,
    /// The function is a coroutine that is not split yet.
    Coroutine,
    /// Something lives across that cannot be stored.
    Type,
    /// What a landing pad chose lives across.
    Exception,
    /// The head is a landing pad, or the loop is entered beside it.
    Entry,
    /// Too many values times blocks, or too much would cross.
    TooLarge,
    /// A construct that nobody has needed in a loop that runs for long.
    Other,
    /// The embedder changes code before it is optimized.
    Changed,
}

impl Reason {
    /// All of them, in the order of the table.
    pub const ALL: [Reason; 12] = [
        Reason::Arguments,
        Reason::FrameAddress,
        Reason::SavedStack,
        Reason::Labels,
        Reason::TailCall,
        Reason::Coroutine,
        Reason::Type,
        Reason::Exception,
        Reason::Entry,
        Reason::TooLarge,
        Reason::Other,
        Reason::Changed,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Arguments => "variable arguments",
            Reason::FrameAddress => "frame address",
            Reason::SavedStack => "saved stack",
            Reason::Labels => "labels",
            Reason::TailCall => "tail call",
            Reason::Coroutine => "coroutine",
            Reason::Type => "type",
            Reason::Exception => "exception",
            Reason::Entry => "entry",
            Reason::TooLarge => "too large",
            Reason::Other => "other",
            Reason::Changed => "changed code",
        })
    }
}

/// What an intrinsic is to this.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    LifetimeStart,
    LifetimeEnd,
    StackSave,
    StackRestore,
    /// Copies or sets memory, and keeps no address.
    Memory,
    /// Looks for variable arguments.
    Arguments,
    /// The number of a type among those that a function catches.
    TypeNumber,
    /// Has to do with the frame it is called in.
    Frame,
    /// Each time it is passed, a scope of aliasing begins anew.
    Scope,
    Other,
}

impl Meaning {
    /// Marks the beginning or the end of an `alloca`'s life.
    pub(crate) fn is_marker(self) -> bool {
        matches!(self, Meaning::LifetimeStart | Meaning::LifetimeEnd)
    }
}

/// Intrinsics that mean something here.
const INTRINSICS: [(&str, Meaning); 36] = [
    ("llvm.lifetime.start", Meaning::LifetimeStart),
    ("llvm.lifetime.end", Meaning::LifetimeEnd),
    ("llvm.stacksave", Meaning::StackSave),
    ("llvm.stackrestore", Meaning::StackRestore),
    ("llvm.va_start", Meaning::Arguments),
    ("llvm.eh.typeid.for", Meaning::TypeNumber),
    ("llvm.memcpy", Meaning::Memory),
    ("llvm.memcpy.inline", Meaning::Memory),
    ("llvm.memmove", Meaning::Memory),
    ("llvm.memset", Meaning::Memory),
    ("llvm.memset.inline", Meaning::Memory),
    ("llvm.frameaddress", Meaning::Frame),
    ("llvm.returnaddress", Meaning::Frame),
    ("llvm.addressofreturnaddress", Meaning::Frame),
    ("llvm.sponentry", Meaning::Frame),
    ("llvm.eh.dwarf.cfa", Meaning::Frame),
    ("llvm.eh.return.i32", Meaning::Frame),
    ("llvm.eh.return.i64", Meaning::Frame),
    ("llvm.eh.unwind.init", Meaning::Frame),
    ("llvm.read_register", Meaning::Frame),
    ("llvm.read_volatile_register", Meaning::Frame),
    ("llvm.write_register", Meaning::Frame),
    ("llvm.get.dynamic.area.offset", Meaning::Frame),
    ("llvm.stackguard", Meaning::Frame),
    ("llvm.experimental.noalias.scope.decl", Meaning::Scope),
    ("llvm.localescape", Meaning::Other),
    ("llvm.localrecover", Meaning::Other),
    ("llvm.eh.sjlj.setjmp", Meaning::Other),
    ("llvm.eh.sjlj.longjmp", Meaning::Other),
    ("llvm.eh.sjlj.callsite", Meaning::Other),
    ("llvm.eh.sjlj.functioncontext", Meaning::Other),
    ("llvm.eh.sjlj.lsda", Meaning::Other),
    ("llvm.call.preallocated.setup", Meaning::Other),
    ("llvm.gcroot", Meaning::Other),
    ("llvm.experimental.deoptimize", Meaning::Other),
    ("llvm.swift.async.context.addr", Meaning::Other),
];

/// True if an instruction calls an intrinsic that means what is asked for.
pub(crate) fn is_intrinsic(
    instruction: InstructionRef<'_>,
    is: impl FnOnce(Meaning) -> bool,
) -> bool {
    static KNOWN: OnceLock<Vec<(u32, Meaning)>> = OnceLock::new();
    let callee = instruction.callee().and_then(ValueRef::as_function);
    let id = callee.map_or(0, FunctionRef::intrinsic);
    if id == 0 {
        return false;
    }
    let known = KNOWN.get_or_init(|| {
        let id = |name: &str| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
        };
        let known = INTRINSICS.map(|(name, meaning)| (id(name), meaning));
        known.into_iter().filter(|(id, _)| *id != 0).collect()
    });
    let found = known.iter().find(|(known, _)| *known == id);
    found.is_some_and(|&(_, meaning)| is(meaning))
}

/// What of a body forbids to leave it in the middle, at all or at some heads.
pub(crate) struct Forbidden {
    /// Blocks behind which no head may be, with the reason.
    blocks: Vec<(u32, Reason)>,
}

impl Forbidden {
    /// Of a body.
    ///
    /// # Errors
    /// Why no head of it can be left.
    pub(crate) fn of(
        kinds: &AttributeKinds,
        function: FunctionRef<'_>,
        flow: &Flow<'_>,
    ) -> Result<Forbidden, Reason> {
        if function.has(kinds.presplit_coroutine) {
            return Err(Reason::Coroutine);
        }
        // SAFETY: a live function.
        let collected = unsafe { !LLVMGetGC(function.raw()).is_null() };
        if collected || function.has(kinds.naked) || function.has(kinds.returns_twice) {
            return Err(Reason::Other);
        }
        let mut blocks = Vec::new();
        for (block, index) in flow.blocks.iter().zip(0u32..) {
            let named = block.value().users().any(|user| {
                let kind = user.kind();
                kind == LLVMValueKind::LLVMBlockAddressValueKind
            });
            if named {
                return Err(Reason::Labels);
            }
            for instruction in block.instructions() {
                if let Some(reason) = forbids(instruction)? {
                    blocks.push((index, reason));
                }
            }
        }
        Ok(Forbidden { blocks })
    }

    /// Why the head of a loop cannot be left, if it cannot.
    pub(crate) fn at(&self, flow: &Flow<'_>, of: &Loop) -> Option<Reason> {
        let head = flow.blocks[of.head as usize];
        let behind = head
            .instructions()
            .find(|it| it.opcode() != LLVMOpcode::LLVMPHI);
        let is_pad = behind.is_none_or(|it| {
            matches!(
                it.opcode(),
                LLVMOpcode::LLVMLandingPad
                    | LLVMOpcode::LLVMCatchPad
                    | LLVMOpcode::LLVMCleanupPad
                    | LLVMOpcode::LLVMCatchSwitch
            )
        });
        if of.irreducible || is_pad {
            return Some(Reason::Entry);
        }
        if self.blocks.is_empty() {
            return None;
        }
        let mut reached = vec![false; flow.blocks.len()];
        let mut work = vec![of.head];
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut reached[block as usize], true) {
                work.extend(flow.graph.successors(block));
            }
        }
        let mut found = self.blocks.iter();
        found
            .find(|(block, _)| reached[*block as usize])
            .map(|(_, reason)| *reason)
    }
}

/// Why nothing before an instruction can be left for a continuation that would have it.
///
/// # Errors
/// Why nothing of the body can be.
fn forbids(instruction: InstructionRef<'_>) -> Result<Option<Reason>, Reason> {
    match instruction.opcode() {
        LLVMOpcode::LLVMIndirectBr => Err(Reason::Labels),
        LLVMOpcode::LLVMCallBr
        | LLVMOpcode::LLVMCatchSwitch
        | LLVMOpcode::LLVMCatchPad
        | LLVMOpcode::LLVMCleanupPad
        | LLVMOpcode::LLVMCatchRet
        | LLVMOpcode::LLVMCleanupRet => Err(Reason::Other),
        LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke => {
            if is_intrinsic(instruction, |it| it == Meaning::Frame) {
                return Err(Reason::FrameAddress);
            }
            if is_intrinsic(instruction, |it| it == Meaning::Other) || passes_specially(instruction)
            {
                return Err(Reason::Other);
            }
            if is_intrinsic(instruction, |it| it == Meaning::StackRestore)
                && !is_own_stack(instruction)
            {
                return Err(Reason::SavedStack);
            }
            // SAFETY: a call.
            let must = instruction.opcode() == LLVMOpcode::LLVMCall
                && unsafe { LLVMGetTailCallKind(instruction.raw()) }
                    == LLVMTailCallKind::LLVMTailCallKindMustTail;
            if must {
                return Ok(Some(Reason::TailCall));
            }
            let arguments = is_intrinsic(instruction, |it| it == Meaning::Arguments);
            Ok(arguments.then_some(Reason::Arguments))
        }
        _ => Ok(None),
    }
}

/// True if a stack pointer is gone back to that this body saved: a result of `stacksave`, or
/// what an `alloca` holds. That the latter holds nothing else is seen by its uses.
fn is_own_stack(restore: InstructionRef<'_>) -> bool {
    let saved = restore.operands().next().flatten();
    let Some(saved) = saved.and_then(ValueRef::as_instruction) else {
        return false;
    };
    if saved.opcode() == LLVMOpcode::LLVMLoad {
        let from = saved.operands().next().flatten();
        let from = from.and_then(ValueRef::as_instruction);
        return from.is_some_and(|it| {
            is_static(it)
                && is_in_entry(it)
                && it.users().all(|user| {
                    user.as_instruction()
                        .is_some_and(|user| is_stack_access(user, *it))
                })
        });
    }
    is_intrinsic(saved, |it| it == Meaning::StackSave)
}

fn is_in_entry(instruction: InstructionRef<'_>) -> bool {
    let entry = instruction.function().and_then(|it| it.blocks().next());
    // SAFETY: a live instruction.
    let block = unsafe { LLVMGetInstructionParent(instruction.raw()) };
    entry.is_some_and(|entry| entry.raw() == block)
}

/// True for a load of an `alloca` that serves to go back, a store of a saved stack pointer, and
/// markers.
fn is_stack_access(user: InstructionRef<'_>, alloca: ValueRef<'_>) -> bool {
    match user.opcode() {
        LLVMOpcode::LLVMLoad => user.users().all(|it| {
            let it = it.as_instruction();
            it.is_some_and(|it| is_intrinsic(it, |it| it == Meaning::StackRestore))
        }),
        LLVMOpcode::LLVMStore => {
            let value = user.operands().next().flatten();
            let value = value.filter(|it| *it != alloca);
            let value = value.and_then(ValueRef::as_instruction);
            value.is_some_and(|it| is_intrinsic(it, |it| it == Meaning::StackSave))
        }
        _ => is_intrinsic(user, Meaning::is_marker),
    }
}

/// True for a call with arguments that are no values: what a `swifterror` or `inalloca`
/// argument is made of must stay what it is.
fn passes_specially(call: InstructionRef<'_>) -> bool {
    static KINDS: OnceLock<[u32; 3]> = OnceLock::new();
    let kinds = KINDS.get_or_init(|| {
        ["swifterror", "inalloca", "preallocated"].map(|name| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
        })
    });
    // SAFETY: a call, and arguments below their count.
    unsafe {
        let is_asm = call
            .callee()
            .is_some_and(|it| !LLVMIsAInlineAsm(it.raw()).is_null());
        !is_asm
            && (1..=LLVMGetNumArgOperands(call.raw())).any(|index| {
                let has =
                    |kind: &u32| !LLVMGetCallSiteEnumAttribute(call.raw(), index, *kind).is_null();
                kinds.iter().any(has)
            })
    }
}
