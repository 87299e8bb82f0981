//! What attributes say that changes code: how values are passed, and what is asked of a function
//! as a whole.
//!
//! An attribute lives as long as its context, which has each once: what it says is found out
//! once.

use inkwell::llvm_sys::core::{
    LLVMGetAttributeCountAtIndex, LLVMGetAttributesAtIndex, LLVMGetCallSiteAttributeCount,
    LLVMGetCallSiteAttributes, LLVMGetEnumAttributeKind, LLVMGetEnumAttributeKindForName,
    LLVMGetEnumAttributeValue, LLVMGetStringAttributeKind, LLVMGetStringAttributeValue,
    LLVMGetTypeAttributeValue, LLVMIsStringAttribute,
};
use inkwell::llvm_sys::prelude::{LLVMAttributeRef, LLVMTypeRef};
use rustc_hash::FxHashMap;
use uruk_baseline::ir::Extension;

use crate::handles::{FunctionRef, InstructionRef};

/// What one attribute says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Says {
    /// Nothing that code shows.
    Nothing,
    /// A value's bits above its own.
    Extended(Extension),
    /// A copy of what is pointed at is passed.
    ByValue(LLVMTypeRef),
    /// The argument points to where the result goes.
    Result,
    /// It comes in a register of its own.
    Nest,
    /// The alignment of what is pointed at.
    Align(u32),
    /// The alignment of a place on the stack.
    StackAlign(u32),
    /// A call may return more than once.
    ReturnsTwice,
    /// Each page of a frame is touched.
    ProbesStack,
    /// Arrays in a frame are guarded.
    Guarded,
    /// What is not covered.
    Not(&'static str),
}

/// Attributes by name that say something.
const BY_NAME: [(&str, Says); 24] = [
    ("signext", Says::Extended(Extension::Sign)),
    ("zeroext", Says::Extended(Extension::Zero)),
    ("byval", Says::ByValue(std::ptr::null_mut())),
    ("sret", Says::Result),
    ("nest", Says::Nest),
    ("align", Says::Align(0)),
    ("alignstack", Says::StackAlign(0)),
    ("returns_twice", Says::ReturnsTwice),
    ("ssp", Says::Guarded),
    ("sspstrong", Says::Guarded),
    ("sspreq", Says::Guarded),
    ("inreg", Says::Not("inreg")),
    ("inalloca", Says::Not("inalloca")),
    ("preallocated", Says::Not("preallocated")),
    ("swiftself", Says::Not("swiftself")),
    ("swifterror", Says::Not("swifterror")),
    ("swiftasync", Says::Not("swiftasync")),
    ("naked", Says::Not("a naked function")),
    ("presplitcoroutine", Says::Not("a coroutine")),
    ("strictfp", Says::Not("strict floating point")),
    ("safestack", Says::Not("a safe stack")),
    ("shadowcallstack", Says::Not("a shadow stack")),
    ("speculative_load_hardening", Says::Not("hardened loads")),
    ("fn_ret_thunk_extern", Says::Not("return thunks")),
];

/// String attributes that say something: whether they do so only with a value, other than `false`.
const BY_TEXT: [(&str, bool, Says); 15] = [
    ("probe-stack", true, Says::ProbesStack),
    ("split-stack", false, Says::Not("a split stack")),
    ("fentry-call", true, Says::Not("hooks")),
    ("instrument-function-entry", true, Says::Not("hooks")),
    ("instrument-function-exit", true, Says::Not("hooks")),
    (
        "instrument-function-entry-inlined",
        true,
        Says::Not("hooks"),
    ),
    ("instrument-function-exit-inlined", true, Says::Not("hooks")),
    ("no_caller_saved_registers", false, OWN_REGISTERS),
    ("no_callee_saved_registers", false, OWN_REGISTERS),
    (
        "stackrealign",
        false,
        Says::Not("a stack of another alignment"),
    ),
    ("interrupt", false, Says::Not("an interrupt handler")),
    ("use-soft-float", true, Says::Not("soft floating point")),
    ("thunk", false, Says::Not("a thunk")),
    ("kcfi-target", false, Says::Not("checked calls")),
    ("zero-call-used-regs", true, Says::Not("zeroed registers")),
];

const OWN_REGISTERS: Says = Says::Not("a choice of saved registers");

/// How one argument or result is passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    pub(super) extension: Option<Extension>,
    /// The type of what is copied.
    pub(super) by_value: Option<LLVMTypeRef>,
    pub(super) is_result: bool,
    pub(super) is_nest: bool,
    /// In bytes; 0 if nothing is said.
    pub(super) align: u32,
    pub(super) stack_align: u32,
    pub(super) not: Option<&'static str>,
}

impl Passed {
    fn note(&mut self, says: Says) {
        match says {
            Says::Extended(extension) => self.extension = Some(extension),
            Says::ByValue(ty) => self.by_value = Some(ty),
            Says::Result => self.is_result = true,
            Says::Nest => self.is_nest = true,
            Says::Align(bytes) => self.align = bytes,
            Says::StackAlign(bytes) => self.stack_align = bytes,
            Says::Not(what) => self.not = Some(what),
            Says::Nothing | Says::ReturnsTwice | Says::ProbesStack | Says::Guarded => {}
        }
    }
}

/// The attributes of one context.
pub(super) struct Attributes {
    says: FxHashMap<LLVMAttributeRef, Says>,
    /// By number of their kind.
    kinds: Vec<(u32, Says)>,
    buffer: Vec<LLVMAttributeRef>,
}

impl Attributes {
    pub(super) fn new() -> Attributes {
        let kind = |name: &str| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
        };
        let kinds = BY_NAME.iter().map(|&(name, says)| (kind(name), says));
        Attributes {
            says: FxHashMap::default(),
            kinds: kinds.filter(|(kind, _)| *kind != 0).collect(),
            buffer: Vec::new(),
        }
    }

    /// Tells what each attribute at an index of a function says.
    pub(super) fn of_function(
        &mut self,
        function: FunctionRef<'_>,
        index: u32,
        each: impl FnMut(Says),
    ) {
        // SAFETY: a live function; the buffer has room for the count.
        unsafe {
            let count = LLVMGetAttributeCountAtIndex(function.raw(), index) as usize;
            if count == 0 {
                return;
            }
            self.make_room(count);
            LLVMGetAttributesAtIndex(function.raw(), index, self.buffer.as_mut_ptr());
        }
        self.tell(each);
    }

    /// Likewise, of a call.
    pub(super) fn of_call(&mut self, call: InstructionRef<'_>, index: u32, each: impl FnMut(Says)) {
        // SAFETY: a live call; the buffer has room for the count.
        unsafe {
            let count = LLVMGetCallSiteAttributeCount(call.raw(), index) as usize;
            if count == 0 {
                return;
            }
            self.make_room(count);
            LLVMGetCallSiteAttributes(call.raw(), index, self.buffer.as_mut_ptr());
        }
        self.tell(each);
    }

    /// How a parameter of a function (from 1) or its result (0) is passed.
    pub(super) fn passed(&mut self, function: FunctionRef<'_>, index: u32) -> Passed {
        let mut passed = Passed::default();
        self.of_function(function, index, |says| passed.note(says));
        passed
    }

    /// Adds what a call says of an argument or its result.
    pub(super) fn passed_by(&mut self, call: InstructionRef<'_>, index: u32, passed: &mut Passed) {
        self.of_call(call, index, |says| passed.note(says));
    }

    fn make_room(&mut self, count: usize) {
        self.buffer.clear();
        self.buffer.resize(count, std::ptr::null_mut());
    }

    fn tell(&mut self, mut each: impl FnMut(Says)) {
        let (kinds, known) = (&self.kinds, &mut self.says);
        for &attribute in &self.buffer {
            // SAFETY: an attribute of a live function.
            let says = known
                .entry(attribute)
                .or_insert_with(|| unsafe { read(attribute, kinds) });
            if *says != Says::Nothing {
                each(*says);
            }
        }
    }
}

/// # Safety
/// A live attribute.
unsafe fn read(attribute: LLVMAttributeRef, kinds: &[(u32, Says)]) -> Says {
    // SAFETY: by the caller's promise; what is asked fits the kind. LLVM keeps texts as long as
    // the context.
    unsafe {
        if LLVMIsStringAttribute(attribute) != 0 {
            let text = |get: unsafe extern "C" fn(_, *mut u32) -> _| {
                let mut length = 0;
                let start: *const std::ffi::c_char = get(attribute, &mut length);
                std::slice::from_raw_parts(start.cast::<u8>(), length as usize)
            };
            let (key, value) = (
                text(LLVMGetStringAttributeKind),
                text(LLVMGetStringAttributeValue),
            );
            let known = BY_TEXT.iter().find(|(name, ..)| name.as_bytes() == key);
            return match known {
                Some((_, true, _)) if value.is_empty() || value == b"false" => Says::Nothing,
                Some(&(_, _, says)) => says,
                None => Says::Nothing,
            };
        }
        let kind = LLVMGetEnumAttributeKind(attribute);
        let known = kinds.iter().find(|(known, _)| *known == kind);
        match known.map(|&(_, says)| says) {
            Some(Says::ByValue(_)) => Says::ByValue(LLVMGetTypeAttributeValue(attribute)),
            Some(Says::Align(_)) => Says::Align(LLVMGetEnumAttributeValue(attribute) as u32),
            Some(Says::StackAlign(_)) => {
                Says::StackAlign(LLVMGetEnumAttributeValue(attribute) as u32)
            }
            Some(says) => says,
            None => Says::Nothing,
        }
    }
}
