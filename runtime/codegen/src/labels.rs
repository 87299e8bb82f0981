//! Addresses of a function's labels (`&&label`): their form in code, and where they go.
//!
//! The address of a label is a *place in the label space* of its function: the number of the
//! label's block behind a symbol that no code lies at ([`space_name`]). It is the same in all
//! versions of the function, in code of other functions and in data, so it can be stored, compared
//! and jumped to later, by another version. A jump looks it up in a table of the version's own
//! (`jumps`).
//!
//! Optimized code whose labels stay inside a call has the plain addresses of its blocks instead,
//! also in private copies of the tables that it loads them from. A walk over uses finds whether
//! they stay inside. It follows the address from the block through instructions that only pass it
//! on: phi, select, freeze, casts, and sums. It also follows loads from local tables that only this
//! function mentions and nothing writes to, and local variables that are only loaded and stored.
//! Ends in `indirectbr` and in comparisons are harmless, every other use counts as an escape.
//! Differences of labels are integers that are walked the same way.
//!
//! # Why
//! A table need not be `const`: interpreters with computed `goto` seldom declare it so. LLVM sees
//! only uses in bodies that were read, so `mentions` says whether other bodies use the table.
//!
//! The frame of a coroutine that is split here holds addresses of its parts, which are code: such a
//! function keeps its first version.

pub(crate) mod places;

use inkwell::llvm_sys::core::{
    LLVMGetLinkage, LLVMIntrinsicGetName, LLVMIsExternallyInitialized, LLVMIsThreadLocal,
};
use inkwell::llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::handles::{FunctionRef, InstructionRef, ValueRef, VariableRef};

/// Prefix of the names of label spaces; the link name of the function follows.
const SPACE: &str = "uruk.labels.";

/// The symbol of the label space of the function with a link name.
pub fn space_name(link_name: &str) -> String {
    format!("{SPACE}{link_name}")
}

/// The link name of the function whose label space a symbol is.
pub fn labelled(symbol: &str) -> Option<&str> {
    symbol.strip_prefix(SPACE)
}

/// The use that a function makes of the addresses of its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Labels {
    /// It takes none.
    #[default]
    None,
    /// They are used for jumps within a call.
    Inside,
    /// They may be elsewhere: in memory, in other functions. Or it uses labels of other functions.
    Escape,
    /// Addresses of its code may outlive a call: the function must keep the version that took
    /// them.
    Fixed,
}

/// Visited values beyond which an escape is assumed.
const WORK: usize = 1_000_000;

/// Whether the address of a block of `function` is a constant somewhere.
pub(crate) fn has_labels(function: FunctionRef<'_>) -> bool {
    let mut users = function.blocks().flat_map(|block| block.value().users());
    users.any(|user| user.kind() == LLVMValueKind::LLVMBlockAddressValueKind)
}

/// Whether addresses of labels of `function` are taken, or jumped to.
pub(crate) fn matter(function: FunctionRef<'_>) -> bool {
    let mut ends = function.blocks().filter_map(|block| block.terminator());
    has_labels(function) || ends.any(|it| it.opcode() == LLVMOpcode::LLVMIndirectBr)
}

/// The tables that the labels of `function` are loaded from. The labels must stay inside of it, as
/// far as bodies were read, and all its jumps must go to them; `None` if they escape. The body is
/// well-formed.
pub(crate) fn tables(function: FunctionRef<'_>) -> Option<Vec<VariableRef<'_>>> {
    walk(function).map(|it| it.tables)
}

/// The values of `function` that are labels, are made of labels, or lead to some. `None` if labels
/// escape.
pub(crate) fn carriers(function: FunctionRef<'_>) -> Option<FxHashSet<ValueRef<'_>>> {
    walk(function).map(|it| it.seen)
}

fn walk(function: FunctionRef<'_>) -> Option<LabelWalk<'_>> {
    let mut walk = LabelWalk {
        function,
        seen: FxHashSet::default(),
        read_only: FxHashSet::default(),
        open: Vec::new(),
        tables: Vec::new(),
    };
    for user in function.blocks().flat_map(|block| block.value().users()) {
        if user.kind() == LLVMValueKind::LLVMBlockAddressValueKind {
            walk.add(user, false);
        }
    }
    (!walk.escapes() && walk.leads_all_jumps()).then_some(walk)
}

struct LabelWalk<'m> {
    function: FunctionRef<'m>,
    seen: FxHashSet<ValueRef<'m>>,
    /// Addresses in tables, and values loaded from there: nothing may be stored to them.
    read_only: FxHashSet<ValueRef<'m>>,
    open: Vec<ValueRef<'m>>,
    tables: Vec<VariableRef<'m>>,
}

impl<'m> LabelWalk<'m> {
    fn add(&mut self, value: ValueRef<'m>, read_only: bool) {
        let first = self.seen.insert(value);
        let also = read_only && self.read_only.insert(value);
        if first || also {
            self.open.push(value);
        }
    }

    /// Follows all that was added.
    fn escapes(&mut self) -> bool {
        while let Some(value) = self.open.pop() {
            if self.seen.len() > WORK {
                return true;
            }
            if value.users().any(|user| self.use_escapes(value, user)) {
                return true;
            }
        }
        false
    }

    /// Whether all jumps are by addresses that were followed.
    fn leads_all_jumps(&self) -> bool {
        let ends = self
            .function
            .blocks()
            .filter_map(|block| block.terminator());
        let mut jumps = ends.filter(|it| it.opcode() == LLVMOpcode::LLVMIndirectBr);
        jumps.all(|jump| {
            let address = jump.operands().next().flatten();
            address.is_some_and(|it| self.seen.contains(&it))
        })
    }

    /// Whether `value` escapes by being used by `user`, which is followed if that depends.
    fn use_escapes(&mut self, value: ValueRef<'m>, user: ValueRef<'m>) -> bool {
        if let Some(table) = user.as_variable() {
            if !self.seen.contains(&user) {
                self.tables.push(table);
            }
            self.add(user, true);
            return !is_own(table);
        }
        let read_only = self.read_only.contains(&value);
        if user.is_composite() {
            self.add(user, read_only);
            return false;
        }
        let Some(instruction) = user.as_instruction() else {
            return true;
        };
        if instruction.function() != Some(self.function) {
            return true;
        }
        match instruction.opcode() {
            LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMICmp => false,
            LLVMOpcode::LLVMPHI
            | LLVMOpcode::LLVMSelect
            | LLVMOpcode::LLVMFreeze
            | LLVMOpcode::LLVMBitCast
            | LLVMOpcode::LLVMIntToPtr
            | LLVMOpcode::LLVMPtrToInt
            | LLVMOpcode::LLVMTrunc
            | LLVMOpcode::LLVMSExt
            | LLVMOpcode::LLVMZExt
            | LLVMOpcode::LLVMAdd
            | LLVMOpcode::LLVMSub
            | LLVMOpcode::LLVMLoad
            | LLVMOpcode::LLVMGetElementPtr => {
                self.add(user, read_only);
                false
            }
            // A stored value is followed from the variable, if this is the value's only role;
            // storing to a local variable that is followed adds nothing.
            LLVMOpcode::LLVMStore => {
                let mut operands = instruction.operands().flatten();
                let (stored, place) = (operands.next(), operands.next());
                (place == Some(value) && read_only)
                    || (stored == Some(value)
                        && !place.is_some_and(|place| self.follow_local(place)))
            }
            LLVMOpcode::LLVMCall => self.call_escapes(value, instruction),
            _ => true,
        }
    }

    /// Whether `value` escapes by being an argument of a call. Intrinsics about lifetimes and debug
    /// information keep nothing, and a table may be copied to a local variable.
    fn call_escapes(&mut self, value: ValueRef<'m>, call: InstructionRef<'m>) -> bool {
        let callee = call.callee().and_then(ValueRef::as_function);
        let id = callee.map_or(0, FunctionRef::intrinsic);
        if id == 0 {
            return true;
        }
        let mut length = 0;
        // SAFETY: the number of an intrinsic, whose name LLVM keeps.
        let name = unsafe {
            let start = LLVMIntrinsicGetName(id, &mut length);
            std::slice::from_raw_parts(start.cast::<u8>(), length)
        };
        if name == b"llvm.memcpy" {
            let mut operands = call.operands().flatten();
            let (to, from) = (operands.next(), operands.next());
            let is_written = to == Some(value) && self.read_only.contains(&value);
            let mut is_followed = || to.is_some_and(|to| self.follow_local(to));
            return is_written || (from == Some(value) && !is_followed());
        }
        !(name.starts_with(b"llvm.lifetime.") || name.starts_with(b"llvm.dbg."))
    }

    /// Whether `place` is a local variable; its uses are followed then.
    fn follow_local(&mut self, place: ValueRef<'m>) -> bool {
        let instruction = place.as_instruction();
        let local = instruction.is_some_and(|it| it.opcode() == LLVMOpcode::LLVMAlloca);
        if local {
            self.add(place, false);
        }
        local
    }
}

/// Whether a variable is local to the module, and only its code can write to it.
fn is_own(table: VariableRef<'_>) -> bool {
    // SAFETY: a live variable.
    unsafe {
        let linkage = LLVMGetLinkage(table.raw());
        matches!(
            linkage,
            LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage
        ) && LLVMIsThreadLocal(table.raw()) == 0
            && LLVMIsExternallyInitialized(table.raw()) == 0
    }
}
