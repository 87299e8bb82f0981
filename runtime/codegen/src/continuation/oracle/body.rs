//! One body, read by the definition: how each variable crosses, and where it is used.

use std::collections::{BTreeMap, HashMap, HashSet};

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMConstIntGetZExtValue, LLVMGetAllocatedType, LLVMGetInstructionParent, LLVMGetOrdering,
    LLVMGetTypeKind, LLVMGetVolatile, LLVMIsAConstantInt, LLVMIsConstant, LLVMPrintTypeToString,
    LLVMPrintValueToString, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};
use inkwell::llvm_sys::{LLVMAtomicOrdering, LLVMTypeKind};

use super::super::intrinsics::{Meaning, is_intrinsic};
use super::super::parts::{incoming, parameters};
use crate::context::OwnedModule;
use crate::flow::Flow;
use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// How a variable crosses, in terms independent of the code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Itself,
    Content,
    ByAddress,
    Stays,
}

/// The events of one variable in a block, in order, and on the edges that leave it.
#[derive(Default)]
struct Events {
    /// In blocks: true for a use, false for an event that ends the walk.
    inside: HashMap<u32, Vec<bool>>,
    /// Uses by phis, by the block they come from.
    edges: HashSet<u32>,
    /// The block that it is a phi of.
    phi: Option<u32>,
}

/// A body, read once more.
pub(super) struct Body<'m> {
    flow: Flow<'m>,
    pub(super) ways: BTreeMap<usize, Way>,
    events: HashMap<usize, Events>,
    pub(super) names: HashMap<usize, LLVMValueRef>,
}

pub(super) fn key(value: ValueRef<'_>) -> usize {
    value.raw() as usize
}

fn operand(instruction: InstructionRef<'_>, index: usize) -> Option<ValueRef<'_>> {
    instruction.operands().nth(index).flatten()
}

fn is_constant(value: ValueRef<'_>) -> bool {
    // SAFETY: a live value.
    unsafe { LLVMIsConstant(value.raw()) != 0 }
}

pub(super) fn text_of(value: LLVMValueRef) -> String {
    // SAFETY: a live value; the text is LLVM's, and leaked by a test.
    let text = unsafe { std::ffi::CStr::from_ptr(LLVMPrintValueToString(value)) };
    text.to_string_lossy().trim().chars().take(90).collect()
}

/// Properties of the pointers made of one `alloca`.
struct Pointers {
    /// Pointers that can be recomputed anywhere: from constants.
    fixed: HashSet<usize>,
    leaves: bool,
    special: bool,
    only_stack: bool,
}

impl<'m> Body<'m> {
    pub(super) fn of(module: &OwnedModule, function: FunctionRef<'m>) -> Body<'m> {
        let flow = Flow::of(function);
        let mut body = Body {
            flow,
            ways: BTreeMap::new(),
            events: HashMap::new(),
            names: HashMap::new(),
        };
        // Values that stand for another variable, or for none, wherever they are mentioned.
        let mut stands_for: HashMap<usize, Option<usize>> = HashMap::new();
        let entry = body.flow.blocks[0];
        let mut allocas = HashSet::new();
        for alloca in entry.instructions() {
            let counted = alloca.opcode() == LLVMOpcode::LLVMAlloca
                // SAFETY: a live value.
                && operand(alloca, 0).is_some_and(|it| unsafe { !LLVMIsAConstantInt(it.raw()).is_null() });
            if !counted {
                continue;
            }
            allocas.insert(key(*alloca));
            let pointers = follow(alloca);
            let way = match pointers.only_stack {
                true => None,
                false => Some(body.way_of(module, alloca, &pointers)),
            };
            for &pointer in &pointers.fixed {
                stands_for.insert(pointer, way.map(|_| key(*alloca)));
            }
            if let Some(way) = way {
                body.note(*alloca, way);
            }
        }
        for instruction in function.instructions() {
            if is_intrinsic(instruction, |it| it == Meaning::TypeNumber) {
                stands_for.insert(key(*instruction), None);
            }
        }
        let given = parameters(function);
        for value in given
            .into_iter()
            .chain(function.instructions().map(|it| *it))
        {
            if !stands_for.contains_key(&key(value)) && value.users().next().is_some() {
                body.note(value, Way::Itself);
            }
        }
        body.read(&stands_for, &allocas);
        body
    }

    fn note(&mut self, value: ValueRef<'m>, way: Way) {
        self.ways.entry(key(value)).or_insert(way);
        self.names.insert(key(value), value.raw());
    }

    fn way_of(&self, module: &OwnedModule, alloca: InstructionRef<'_>, of: &Pointers) -> Way {
        // SAFETY: an alloca of the module with a constant count.
        let (ty, bytes, count) = unsafe {
            let ty = LLVMGetAllocatedType(alloca.raw());
            let data = LLVMGetModuleDataLayout(module.raw());
            let count = operand(alloca, 0).map_or(1, |it| LLVMConstIntGetZExtValue(it.raw()));
            (ty, LLVMABISizeOfType(data, ty).saturating_mul(count), count)
        };
        // SAFETY: a live type; LLVM's text is leaked by a test.
        let ty = unsafe { std::ffi::CStr::from_ptr(LLVMPrintTypeToString(ty)) };
        // Types that fill their bytes: memory of an `i1` crosses as the byte it is.
        let scalar = ["i8", "i16", "i32", "i64", "float", "double"];
        let ty = ty.to_string_lossy();
        match () {
            () if of.leaves || of.special || bytes > 512 => Way::Stays,
            () if count == 1 && (scalar.contains(&&*ty) || ty.starts_with("ptr")) => Way::Content,
            () => Way::ByAddress,
        }
    }

    /// Notes the events of all variables.
    fn read(&mut self, stands_for: &HashMap<usize, Option<usize>>, allocas: &HashSet<usize>) {
        let numbers: HashMap<usize, u32> = {
            let blocks = self.flow.blocks.iter().zip(0u32..);
            blocks.map(|(it, at)| (it.raw() as usize, at)).collect()
        };
        for at in 0..self.flow.blocks.len() as u32 {
            let block = self.flow.blocks[at as usize];
            for instruction in block.instructions() {
                let own = key(*instruction);
                if instruction.opcode() == LLVMOpcode::LLVMPHI {
                    for (value, from) in incoming(instruction) {
                        if let Some(of) = self.meant(value, stands_for) {
                            self.events_of(of).edges.insert(numbers[&from]);
                        }
                    }
                    self.events_of(own).phi = Some(at);
                    continue;
                }
                let fills = self.fills(instruction, stands_for, allocas);
                let marker = is_intrinsic(instruction, Meaning::is_marker);
                for (place, value) in instruction.operands().enumerate() {
                    let Some(of) = value.and_then(|it| self.meant(it, stands_for)) else {
                        continue;
                    };
                    if marker {
                        // Code that has the address keeps it across lives.
                        if self.ways[&of] != Way::Stays || !self.leaves(of) {
                            self.events_of(of).inside.entry(at).or_default().push(false);
                        }
                    } else if !(fills && place == 1) {
                        self.events_of(of).inside.entry(at).or_default().push(true);
                    }
                }
                if fills && let Some(to) = operand(instruction, 1) {
                    self.events_of(key(to))
                        .inside
                        .entry(at)
                        .or_default()
                        .push(false);
                }
                if self.ways.get(&own) == Some(&Way::Itself) {
                    self.events_of(own)
                        .inside
                        .entry(at)
                        .or_default()
                        .push(false);
                }
            }
        }
    }

    /// True if the address of an `alloca` that stays is known to others.
    pub(super) fn leaves(&self, alloca: usize) -> bool {
        // SAFETY: a live alloca of the body.
        let alloca = unsafe { InstructionRef::of(self.names[&alloca]) };
        follow(alloca).leaves
    }

    /// True for a store that fills all of an `alloca` that crosses as its content.
    fn fills(
        &self,
        store: InstructionRef<'_>,
        stands_for: &HashMap<usize, Option<usize>>,
        allocas: &HashSet<usize>,
    ) -> bool {
        let (Some(value), Some(to)) = (operand(store, 0), operand(store, 1)) else {
            return false;
        };
        if store.opcode() != LLVMOpcode::LLVMStore
            || !allocas.contains(&key(to))
            || stands_for.get(&key(to)) == Some(&None)
            || self.ways.get(&key(to)) != Some(&Way::Content)
        {
            return false;
        }
        // SAFETY: a live value and an alloca.
        unsafe { LLVMTypeOf(value.raw()) == LLVMGetAllocatedType(to.raw()) }
    }

    /// The variable that an operand means.
    fn meant(
        &self,
        value: ValueRef<'_>,
        stands_for: &HashMap<usize, Option<usize>>,
    ) -> Option<usize> {
        match stands_for.get(&key(value)) {
            Some(of) => *of,
            None => self.ways.contains_key(&key(value)).then(|| key(value)),
        }
    }

    fn events_of(&mut self, variable: usize) -> &mut Events {
        self.events.entry(variable).or_default()
    }

    /// Walks from behind the phis of a head: true if a use is found. Takes steps.
    pub(super) fn is_live(&self, variable: usize, head: u32, steps: &mut usize) -> bool {
        let Some(events) = self.events.get(&variable) else {
            return false;
        };
        let mut seen = HashSet::new();
        let mut work = vec![head];
        while let Some(block) = work.pop() {
            *steps += 1;
            match events.inside.get(&block).and_then(|it| it.first()) {
                Some(&is_use) if is_use => return true,
                Some(_) => continue,
                None => {}
            }
            if events.edges.contains(&block) {
                return true;
            }
            for &next in self.flow.graph.successors(block) {
                if events.phi != Some(next) && seen.insert(next) {
                    work.push(next);
                }
            }
        }
        false
    }

    /// Walks back from a head: true if the variable is mentioned on a way there.
    pub(super) fn is_met(&self, variable: usize, head: u32) -> bool {
        let Some(events) = self.events.get(&variable) else {
            return false;
        };
        let before = self.flow.graph.predecessors();
        let mut seen = HashSet::new();
        let mut work = before.of(head).to_vec();
        while let Some(block) = work.pop() {
            if seen.insert(block) {
                if events.inside.contains_key(&block) || events.edges.contains(&block) {
                    return true;
                }
                work.extend(before.of(block));
            }
        }
        false
    }
}

/// Follows the pointers that are made of an `alloca`.
fn follow(alloca: InstructionRef<'_>) -> Pointers {
    let mut found = Pointers {
        fixed: HashSet::from([key(*alloca)]),
        leaves: false,
        special: false,
        only_stack: true,
    };
    let mut saves = 0;
    let mut pointers = vec![alloca];
    while let Some(pointer) = pointers.pop() {
        let is_fixed = found.fixed.contains(&key(*pointer));
        for user in pointer.users() {
            let Some(user) = user.as_instruction() else {
                found.leaves = true;
                continue;
            };
            // SAFETY: live instructions.
            let apart = unsafe {
                LLVMGetInstructionParent(user.raw()) != LLVMGetInstructionParent(pointer.raw())
            };
            // It would have to cross as itself.
            found.leaves |= apart && !is_fixed;
            let is_stack =
                |meaning| move |it: InstructionRef<'_>| is_intrinsic(it, |of| of == meaning);
            match user.opcode() {
                LLVMOpcode::LLVMLoad => {
                    found.special |= is_special(user);
                    let goes_back = is_stack(Meaning::StackRestore);
                    found.only_stack &= user
                        .users()
                        .all(|it| it.as_instruction().is_some_and(goes_back));
                }
                LLVMOpcode::LLVMStore => {
                    found.special |= is_special(user);
                    found.leaves |= operand(user, 0) == Some(*pointer);
                    let saved = operand(user, 0).and_then(ValueRef::as_instruction);
                    match saved.is_some_and(is_stack(Meaning::StackSave)) {
                        true => saves += 1,
                        false => found.only_stack = false,
                    }
                }
                LLVMOpcode::LLVMGetElementPtr => {
                    found.only_stack = false;
                    // SAFETY: a live value.
                    let kind = unsafe { LLVMGetTypeKind(LLVMTypeOf(user.raw())) };
                    let base = operand(user, 0) == Some(*pointer);
                    let rest = user.operands().skip(1).flatten().collect::<Vec<_>>();
                    if !base
                        || rest.contains(&*pointer)
                        || kind != LLVMTypeKind::LLVMPointerTypeKind
                    {
                        found.leaves = true;
                        continue;
                    }
                    if is_fixed && rest.into_iter().all(is_constant) {
                        found.fixed.insert(key(*user));
                    }
                    pointers.push(user);
                }
                _ if is_intrinsic(user, Meaning::is_marker) => {}
                _ if is_intrinsic(user, |it| it == Meaning::Memory) => {
                    found.only_stack = false;
                    // SAFETY: the flag is a constant number.
                    let flag =
                        operand(user, 3).map(|it| unsafe { LLVMConstIntGetZExtValue(it.raw()) });
                    found.special |= flag != Some(0);
                }
                _ => {
                    found.only_stack = false;
                    found.leaves = true;
                }
            }
        }
    }
    found.only_stack &= saves > 0 && !found.leaves && !found.special;
    found
}

/// True for an access that is volatile or atomic.
fn is_special(access: InstructionRef<'_>) -> bool {
    // SAFETY: a load or store.
    unsafe {
        LLVMGetVolatile(access.raw()) != 0
            || LLVMGetOrdering(access.raw()) != LLVMAtomicOrdering::LLVMAtomicOrderingNotAtomic
    }
}
