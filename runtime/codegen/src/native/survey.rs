//! The first walk: lists a module's symbols, and their uses.

use std::collections::HashSet;
use std::ffi::CStr;

use inkwell::llvm_sys::core::{
    LLVMGetAlignment, LLVMGetArrayLength2, LLVMGetAsString, LLVMGetElementType,
    LLVMGetEnumAttributeKindForName, LLVMGetInlineAsmAsmString, LLVMGetIntTypeWidth,
    LLVMGetLinkage, LLVMGetSection, LLVMGetTypeKind, LLVMGetUnnamedAddress, LLVMGlobalGetValueType,
    LLVMIsConstantString, LLVMIsNull, LLVMIsThreadLocal, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::target::{
    LLVMABIAlignmentOfType, LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMTargetDataRef,
};
use inkwell::llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMTypeKind, LLVMUnnamedAddr, LLVMValueKind};

use super::mentions::{MentionWalk, MentionedGlobals, numbers};
use super::plain::{PlainType, plain};
use super::uses::{self, Uses};
use crate::context::OwnedModule;
use crate::handles::{FunctionRef, InstructionRef, ValueRef, VariableRef};

/// A function of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Its name: that of a global alias, if the file has one for a local function.
    pub name: String,
    /// Its name in the file, if that is another one.
    pub renamed: Option<String>,
    /// It has a body here that is not only a copy.
    pub defined: bool,
    /// It has a body that is only a copy, for the optimizer.
    pub copy: bool,
    /// It is inlined wherever it is called.
    pub always_inlined: bool,
    /// It is inlined nowhere (`noinline`, which `optnone` functions have, too).
    pub never_inlined: bool,
    /// It may stay undefined.
    pub optional: bool,
    /// Other files do not see it.
    pub local: bool,
    /// Another file may define it, too.
    pub weak: bool,
    /// All other definitions of it have the same body.
    pub same: bool,
    /// It is mentioned outside of calls: its type determines its calling convention.
    pub address_taken: bool,
    /// A weak alias, which stays, stands for it: its type determines its calling convention.
    pub aliased: bool,
    /// Its arguments and result, if all are plain numbers in registers.
    pub plain: Option<PlainType>,
    /// The addresses of its labels are used.
    pub labels: bool,
    /// It has assembly that may mention symbols by their names.
    pub assembly: bool,
    /// Hooks are called in it with its address.
    pub instrumented: bool,
    /// It can be suspended: values computed for a thread do not hold later.
    pub coroutine: bool,
    /// The variables it mentions, by number in the survey.
    pub variables: Vec<u32>,
    /// The functions it mentions, by number in the survey.
    pub functions: Vec<u32>,
    /// Those of `functions` whose addresses it passes to functions without a body here, and that it
    /// uses in no other way: none of their code is in its own.
    pub given: Vec<u32>,
    /// The variables whose addresses it uses for more than reading them, or passing them to
    /// functions without a body here.
    pub kept: Vec<u32>,
}

impl FunctionInfo {
    /// Its name in the file, by which bodies are compared.
    pub fn source_name(&self) -> &str {
        self.renamed.as_deref().unwrap_or(&self.name)
    }
}

/// A variable of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VariableInfo {
    /// Its name; private ones have no symbol by it.
    pub name: String,
    /// It has a value here that is not only a copy.
    pub defined: bool,
    /// Other files do not see it.
    pub local: bool,
    /// No symbol table has its name.
    pub private: bool,
    /// Nothing may write to it.
    pub constant: bool,
    /// Its address is insignificant.
    pub unnamed: bool,
    /// It may stay undefined.
    pub optional: bool,
    /// Each thread has one.
    pub thread_local: bool,
    /// It is mentioned outside of the intrinsic that gets the thread's address of it.
    pub odd_thread_local: bool,
    /// It has addresses of labels.
    pub labels: bool,
    /// LLVM's own, not the program's.
    pub of_compiler: bool,
    /// Bytes that it takes.
    pub size: u64,
    /// Bytes that its address is a multiple of.
    pub align: u32,
    /// A byte that the optimizer may have made a flag, with another encoding.
    pub flag: bool,
    /// The module's uses of it, if it is local.
    pub uses: Uses,
    /// The variables that its first value mentions, by number in the survey.
    pub variables: Vec<u32>,
    /// The functions that its first value mentions, by number in the survey.
    pub functions: Vec<u32>,
    /// The section that it is in, if that has a name.
    pub section: String,
    /// Its bytes, where they are a string.
    pub bytes: Option<Vec<u8>>,
    /// Its address may be compared with others: it is returned, is the value of another variable,
    /// or is kept where pointers are compared.
    pub compared: bool,
}

/// The symbols of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Its functions, LLVM's own aside, in the module's order.
    pub functions: Vec<FunctionInfo>,
    /// Its variables, in the module's order.
    pub variables: Vec<VariableInfo>,
    /// Aliases that the module had for these.
    pub aliases: Vec<String>,
}

/// Attributes by which functions call hooks.
const HOOKS: [&str; 6] = [
    "instrument-function-entry",
    "instrument-function-entry-inlined",
    "instrument-function-exit",
    "instrument-function-exit-inlined",
    "function-instrument",
    "fentry-call",
];

/// Bytes of a pointer.
const POINTER: u64 = 8;

/// Name of the function that gives a thread's address of a variable.
pub(super) const ADDRESS_OF: &str = "llvm.threadlocal.address";

/// The functions that a survey lists.
pub(super) fn functions(module: &OwnedModule) -> impl Iterator<Item = FunctionRef<'_>> {
    module
        .functions()
        .filter(|function| !function.is_intrinsic())
}

/// Surveys a whole module.
pub(super) fn survey(module: &OwnedModule) -> Survey {
    let listed: Vec<FunctionRef<'_>> = functions(module).collect();
    let variables: Vec<VariableRef<'_>> = module.variables().collect();
    let numbered = |raws: Vec<LLVMValueRef>| raws.into_iter().zip(0_u32..).collect();
    let mut walk = MentionWalk {
        functions: numbered(listed.iter().map(|function| function.raw()).collect()),
        variables: numbered(variables.iter().map(|variable| variable.raw()).collect()),
        taken: vec![false; listed.len()],
    };
    let mut survey = Survey::default();
    // SAFETY: the layout is the live module's.
    let layout = unsafe { LLVMGetModuleDataLayout(module.raw()) };
    survey.variables = variables.iter().map(|v| variable(*v, layout)).collect();
    for (info, value) in survey.variables.iter_mut().zip(&variables) {
        let mut found = MentionedGlobals::default();
        // Constructors are called; lists of used globals do not take addresses.
        if let Some(initializer) = value.initializer().filter(|_| !info.of_compiler) {
            walk.mention(initializer, &mut found);
        }
        info.labels = !found.labels.is_empty();
        info.variables = numbers(found.variables);
        info.functions = numbers(found.functions);
    }
    for number in 0..survey.variables.len() {
        // A pointer that has a name is compared by it.
        if survey.variables[number].size == POINTER {
            for value in survey.variables[number].variables.clone() {
                survey.variables[value as usize].compared = true;
            }
        }
    }
    survey.functions = listed
        .iter()
        .map(|f| function(*f, &mut walk, &mut survey.variables))
        .collect();
    for (info, taken) in survey.functions.iter_mut().zip(&walk.taken) {
        info.address_taken = *taken;
    }
    survey
}

pub(super) fn linkage(value: ValueRef<'_>) -> LLVMLinkage {
    // SAFETY: a live global.
    unsafe { LLVMGetLinkage(value.raw()) }
}

pub(super) fn is_local(linkage: LLVMLinkage) -> bool {
    matches!(
        linkage,
        LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage
    )
}

fn is_weak(linkage: LLVMLinkage) -> bool {
    matches!(
        linkage,
        LLVMLinkage::LLVMWeakAnyLinkage
            | LLVMLinkage::LLVMWeakODRLinkage
            | LLVMLinkage::LLVMLinkOnceAnyLinkage
            | LLVMLinkage::LLVMLinkOnceODRLinkage
            | LLVMLinkage::LLVMCommonLinkage
    )
}

fn variable(variable: VariableRef<'_>, layout: LLVMTargetDataRef) -> VariableInfo {
    let linkage = linkage(*variable);
    let name = variable.name();
    let initializer = variable.initializer();
    let copy = linkage == LLVMLinkage::LLVMAvailableExternallyLinkage;
    // SAFETY: a live variable, here and below.
    let (thread_local, unnamed) = unsafe {
        (
            LLVMIsThreadLocal(variable.raw()) != 0,
            LLVMGetUnnamedAddress(variable.raw()) != LLVMUnnamedAddr::LLVMNoUnnamedAddr,
        )
    };
    let own = linkage == LLVMLinkage::LLVMInternalLinkage && initializer.is_some() && !thread_local;
    VariableInfo {
        defined: initializer.is_some() && !copy,
        local: is_local(linkage),
        private: linkage == LLVMLinkage::LLVMPrivateLinkage,
        constant: variable.is_constant(),
        optional: linkage == LLVMLinkage::LLVMExternalWeakLinkage,
        thread_local,
        unnamed,
        // SAFETY: the type is sized, as a variable has it.
        size: unsafe { LLVMABISizeOfType(layout, LLVMGlobalGetValueType(variable.raw())) },
        align: alignment(variable, layout),
        flag: own && uses::is_flag(variable, layout),
        uses: match own {
            true => uses::uses(variable, layout),
            false => Uses::Any,
        },
        of_compiler: name.starts_with("llvm."),
        section: section(variable),
        bytes: initializer.and_then(string),
        name,
        ..VariableInfo::default()
    }
}

/// Bytes that a variable's address is a multiple of: its explicit alignment, or that of its type.
pub(super) fn alignment(variable: VariableRef<'_>, layout: LLVMTargetDataRef) -> u32 {
    // SAFETY: a live variable and its module's layout; the type is sized, as a variable has it.
    unsafe {
        match LLVMGetAlignment(variable.raw()) {
            0 => LLVMABIAlignmentOfType(layout, LLVMGlobalGetValueType(variable.raw())),
            align => align,
        }
    }
}

fn section(variable: VariableRef<'_>) -> String {
    // SAFETY: a live variable; the name is null or a C string.
    unsafe {
        let name = LLVMGetSection(variable.raw());
        match name.is_null() {
            true => String::new(),
            false => CStr::from_ptr(name).to_string_lossy().into_owned(),
        }
    }
}

/// The bytes of a constant string.
fn string(value: ValueRef<'_>) -> Option<Vec<u8>> {
    let is_data = value.kind() == LLVMValueKind::LLVMConstantDataArrayValueKind;
    // SAFETY: a live constant of the kind that has this property; its bytes live as it does.
    unsafe {
        // The empty one is a zero like others.
        let kind = LLVMTypeOf(value.raw());
        if LLVMIsNull(value.raw()) != 0
            && LLVMGetTypeKind(kind) == LLVMTypeKind::LLVMArrayTypeKind
            && LLVMGetArrayLength2(kind) == 1
            && LLVMGetTypeKind(LLVMGetElementType(kind)) == LLVMTypeKind::LLVMIntegerTypeKind
            && LLVMGetIntTypeWidth(LLVMGetElementType(kind)) == 8
        {
            return Some(vec![0]);
        }
        if !is_data || LLVMIsConstantString(value.raw()) == 0 {
            return None;
        }
        let mut length = 0;
        let start = LLVMGetAsString(value.raw(), &mut length);
        Some(std::slice::from_raw_parts(start.cast::<u8>(), length).to_vec())
    }
}

/// The globals that the operands of a body mention, by what it does with them.
#[derive(Default)]
struct BodyMentions {
    found: MentionedGlobals,
    /// Functions whose addresses are passed to functions of other modules.
    given: HashSet<u32>,
    /// Functions that are called, or whose addresses are used otherwise.
    used: HashSet<u32>,
    /// Variables whose addresses may be kept.
    kept: Vec<u32>,
    assembly: bool,
}

impl BodyMentions {
    /// Adds the operands of an instruction; `compares` tells whether its body compares pointers.
    fn add(
        &mut self,
        instruction: InstructionRef<'_>,
        compares: bool,
        walk: &mut MentionWalk,
        variables: &mut [VariableInfo],
    ) {
        let callee = instruction.callee();
        self.assembly |= callee.is_some_and(|callee| names_symbols(instruction, callee));
        let asked = callee.is_some_and(|callee| callee.name().starts_with(ADDRESS_OF));
        let last = instruction.operands().len().wrapping_sub(1);
        let away = callee.and_then(|callee| callee.as_function());
        let opcode = instruction.opcode();
        let reads =
            away.is_some_and(|callee| callee.is_intrinsic()) || opcode == LLVMOpcode::LLVMLoad;
        let away = away.is_some_and(|callee| callee.is_declaration() && !callee.is_intrinsic());
        let compared = match opcode {
            LLVMOpcode::LLVMICmp | LLVMOpcode::LLVMPtrToInt | LLVMOpcode::LLVMRet => true,
            LLVMOpcode::LLVMStore | LLVMOpcode::LLVMSelect | LLVMOpcode::LLVMPHI => compares,
            _ => false,
        };
        for (place, operand) in instruction.operands().flatten().enumerate() {
            let function = walk.functions.get(&operand.raw()).copied();
            if let Some(number) = function.filter(|_| callee == Some(operand) && place == last) {
                self.found.functions.push(number);
                self.used.insert(number);
                continue;
            }
            let before = self.found.variables.len();
            let listed = self.found.functions.len();
            walk.mention(operand, &mut self.found);
            let mentioned = self.found.functions[listed..].iter().copied();
            match away && function.is_some() {
                true => self.given.extend(mentioned),
                false => self.used.extend(mentioned),
            }
            let mentioned = &self.found.variables[before..];
            if !away && !reads {
                self.kept.extend(mentioned);
            }
            for &number in mentioned {
                let variable = &mut variables[number as usize];
                let direct = walk.variables.get(&operand.raw()) == Some(&number);
                variable.compared |= compared;
                variable.odd_thread_local |= variable.thread_local && !(asked && direct);
            }
        }
    }
}

fn function(
    function: FunctionRef<'_>,
    walk: &mut MentionWalk,
    variables: &mut [VariableInfo],
) -> FunctionInfo {
    let linkage = linkage(*function);
    let copy = linkage == LLVMLinkage::LLVMAvailableExternallyLinkage;
    let mut mentions = BodyMentions::default();
    let compares = function.instructions().any(compares_pointers);
    for instruction in function.instructions() {
        mentions.add(instruction, compares, walk, variables);
    }
    let BodyMentions {
        found,
        given,
        used,
        kept,
        assembly,
    } = mentions;
    FunctionInfo {
        name: function.name(),
        renamed: None,
        defined: !function.is_declaration() && !copy,
        copy: !function.is_declaration() && copy,
        always_inlined: has(function, "alwaysinline"),
        never_inlined: has(function, "noinline"),
        optional: linkage == LLVMLinkage::LLVMExternalWeakLinkage,
        local: is_local(linkage),
        weak: is_weak(linkage),
        same: is_same_everywhere(linkage),
        address_taken: false,
        aliased: false,
        plain: plain(function),
        labels: !found.labels.is_empty(),
        assembly,
        instrumented: HOOKS.iter().any(|hook| !function.text(hook).is_empty()),
        coroutine: has(function, "presplitcoroutine"),
        variables: numbers(found.variables),
        functions: numbers(found.functions),
        given: numbers(given.difference(&used).copied().collect()),
        kept: numbers(kept),
    }
}

/// Whether all definitions of a global of that linkage are equal.
fn is_same_everywhere(linkage: LLVMLinkage) -> bool {
    matches!(
        linkage,
        LLVMLinkage::LLVMWeakODRLinkage | LLVMLinkage::LLVMLinkOnceODRLinkage
    )
}

/// Whether it compares a pointer with one that is not null.
fn compares_pointers(instruction: InstructionRef<'_>) -> bool {
    let is_address = |operand: ValueRef<'_>| {
        // SAFETY: a live value, and its type.
        unsafe {
            let kind = LLVMGetTypeKind(LLVMTypeOf(operand.raw()));
            kind == LLVMTypeKind::LLVMPointerTypeKind && LLVMIsNull(operand.raw()) == 0
        }
    };
    let is_comparison = instruction.opcode() == LLVMOpcode::LLVMICmp;
    is_comparison && instruction.operands().flatten().all(is_address)
}

/// Whether a call is assembly that may mention symbols: in its text, or as operands.
fn names_symbols(instruction: InstructionRef<'_>, callee: ValueRef<'_>) -> bool {
    const SIGNS: [&str; 6] = ["call", "jmp", "%rip", "@", "${", "section"];
    if callee.kind() != LLVMValueKind::LLVMInlineAsmValueKind {
        return false;
    }
    // SAFETY: live assembly; LLVM returns pointer and length of a string it keeps.
    let text = unsafe {
        let mut length = 0;
        let start = LLVMGetInlineAsmAsmString(callee.raw(), &mut length);
        String::from_utf8_lossy(std::slice::from_raw_parts(start.cast::<u8>(), length)).into_owned()
    };
    let operands = instruction.operands().flatten();
    let is_symbol = |operand: ValueRef<'_>| operand != callee && operand.is_global();
    SIGNS.iter().any(|sign| text.contains(sign)) || operands.into_iter().any(is_symbol)
}

/// Whether a function has an attribute of that name.
fn has(function: FunctionRef<'_>, name: &str) -> bool {
    // SAFETY: pointer and length describe the name.
    let kind = unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) };
    function.has(kind)
}
