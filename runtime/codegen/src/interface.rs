//! What code outside of a module relies on: signatures, layouts and constants as text that
//! can be compared between modules, who mentions a symbol, and whether the module's
//! functions know each other's bodies already.
//!
//! Who compares asks readers that [name structs as their files do](crate::ReaderPool::faithful).
//! Text is compared because two modules live in two contexts. Named structs are written
//! out, as their names mean nothing between modules; so are the constants that a constant
//! refers to, as far as they are local.

use std::ffi::c_uint;

use inkwell::llvm_sys::core::{
    LLVMCountParamTypes, LLVMCountStructElementTypes, LLVMDisposeMessage, LLVMGetArrayLength2,
    LLVMGetAttributeCountAtIndex, LLVMGetAttributesAtIndex, LLVMGetBasicBlockParent,
    LLVMGetElementType, LLVMGetEnumAttributeKind, LLVMGetEnumAttributeKindForName,
    LLVMGetEnumAttributeValue, LLVMGetFirstUse, LLVMGetFunctionCallConv, LLVMGetInitializer,
    LLVMGetInstructionParent, LLVMGetLinkage, LLVMGetNextUse, LLVMGetNumOperands, LLVMGetOperand,
    LLVMGetParamTypes, LLVMGetReturnType, LLVMGetTypeAttributeValue, LLVMGetTypeKind,
    LLVMGetUnnamedAddress, LLVMGetUser, LLVMGetValueKind, LLVMGlobalGetValueType,
    LLVMIsFunctionVarArg, LLVMIsGlobalConstant, LLVMIsOpaqueStruct, LLVMIsPackedStruct,
    LLVMIsStringAttribute, LLVMIsTypeAttribute, LLVMModuleCreateWithNameInContext,
    LLVMPrintTypeToString, LLVMPrintValueToString, LLVMStructGetTypeAtIndex,
};
use inkwell::llvm_sys::prelude::{LLVMAttributeRef, LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};
use inkwell::llvm_sys::{LLVMLinkage, LLVMTypeKind, LLVMUnnamedAddr, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::context::OwnedModule;
use crate::error::CodegenError;
use crate::extract::{OF_CALLS, has_function_attribute};
use crate::reader::{Reader, Verify, value_name};
use crate::summary::{Kind, SymbolId};

/// The type of a variable, and its size in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// As LLVM writes it, named structs written out.
    pub ty: String,
    /// Bytes.
    pub size: u64,
}

/// Types and constants inside each other that are written out; deeper ones go by name.
const DEPTH: u32 = 32;

/// Constants that are written out for one; those after them go by name.
const CONSTANTS: u32 = 1 << 18;

impl Reader {
    /// How a function is called: its type, and what changes how values are passed.
    pub fn signature(&self, function: SymbolId) -> String {
        debug_assert!(self.names_as_in_file());
        let value = self.table().values[function.index()];
        // SAFETY: a live function and its own type; parameters fit the vector.
        unsafe {
            let ty = LLVMGlobalGetValueType(value);
            let mut parameters = vec![std::ptr::null_mut(); LLVMCountParamTypes(ty) as usize];
            LLVMGetParamTypes(ty, parameters.as_mut_ptr());
            let mut words: Vec<String> = Vec::new();
            for (index, &ty) in (1..).zip(&parameters) {
                words.push(self.type_text(ty, 0) + &self.passing(value, index));
            }
            if LLVMIsFunctionVarArg(ty) != 0 {
                words.push(String::from("..."));
            }
            let convention = match LLVMGetFunctionCallConv(value) {
                0 => String::new(),
                number => format!(" cc{number}"),
            };
            let result = self.type_text(LLVMGetReturnType(ty), 0) + &self.passing(value, 0);
            format!("{result} ({}){convention}", words.join(", "))
        }
    }

    /// What the attributes at `index` say about how the value is passed.
    fn passing(&self, function: LLVMValueRef, index: c_uint) -> String {
        let kinds = &self.kinds().of_calls;
        let mut text = String::new();
        // SAFETY: a live function; the buffer has room for the count; values are asked
        // for of attributes that have them.
        unsafe {
            let count = LLVMGetAttributeCountAtIndex(function, index) as usize;
            let mut attributes: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
            if count != 0 {
                LLVMGetAttributesAtIndex(function, index, attributes.as_mut_ptr());
            }
            for attribute in attributes {
                if LLVMIsStringAttribute(attribute) != 0 {
                    continue;
                }
                let kind = LLVMGetEnumAttributeKind(attribute);
                let Some(at) = kinds.iter().position(|&known| known == kind) else {
                    continue;
                };
                text += &format!(" {}", OF_CALLS[at]);
                if LLVMIsTypeAttribute(attribute) != 0 {
                    let ty = LLVMGetTypeAttributeValue(attribute);
                    text += &format!("({})", self.type_text(ty, 0));
                } else if LLVMGetEnumAttributeValue(attribute) != 0 {
                    text += &format!("({})", LLVMGetEnumAttributeValue(attribute));
                }
            }
        }
        text
    }

    /// Type and size of a variable.
    pub fn layout(&self, variable: SymbolId) -> Layout {
        debug_assert!(self.names_as_in_file());
        let value = self.table().values[variable.index()];
        // SAFETY: a live variable, its own type, and the target's layout, as the module a
        // unit is compiled in has it: the reader's may have none.
        unsafe {
            let ty = LLVMGlobalGetValueType(value);
            let context = self.context().raw();
            let unit = LLVMModuleCreateWithNameInContext(c"layout".as_ptr(), context);
            let unit = OwnedModule::new(unit);
            self.prepare(unit.raw());
            Layout {
                ty: self.type_text(ty, 0),
                size: LLVMABISizeOfType(LLVMGetModuleDataLayout(unit.raw()), ty),
            }
        }
    }

    /// The value of a variable's initializer, local constants written out; `None` for a
    /// declaration.
    pub fn initializer(&self, variable: SymbolId) -> Option<String> {
        debug_assert!(self.names_as_in_file());
        let value = self.table().values[variable.index()];
        // SAFETY: a live variable.
        let initializer = unsafe { LLVMGetInitializer(value) };
        (!initializer.is_null()).then(|| constant_text(initializer, 0, &mut CONSTANTS.clone()))
    }

    /// Functions and variables that mention `symbol`, each once, aliases of it included.
    /// Reads every body.
    ///
    /// # Errors
    /// An unreadable body.
    pub fn mentions(&self, symbol: SymbolId) -> Result<Vec<SymbolId>, CodegenError> {
        for (index, info) in self.summary().symbols.iter().enumerate() {
            if info.kind == Kind::Function && info.linkage.is_definition() {
                self.materialize(self.table().values[index], Verify::No)?;
            }
        }
        let mut found = FxHashSet::default();
        self.collect(self.table().values[symbol.index()], &mut found, 0);
        let mut found: Vec<SymbolId> = found.into_iter().collect();
        found.sort_unstable();
        Ok(found)
    }

    fn collect(&self, value: LLVMValueRef, found: &mut FxHashSet<SymbolId>, depth: u32) {
        if depth > DEPTH {
            return;
        }
        // SAFETY: walks the use list of a live value; users are live values.
        unsafe {
            let mut item = LLVMGetFirstUse(value);
            while !item.is_null() {
                let user = LLVMGetUser(item);
                let owner = match LLVMGetValueKind(user) {
                    LLVMValueKind::LLVMInstructionValueKind => {
                        let block = LLVMGetInstructionParent(user);
                        (!block.is_null()).then(|| LLVMGetBasicBlockParent(block))
                    }
                    _ => Some(user),
                };
                let known = owner.and_then(|owner| self.table().index.get(&owner));
                match (known, owner) {
                    (Some(&id), _) => {
                        found.insert(id);
                    }
                    (None, Some(constant)) => self.collect(constant, found, depth + 1),
                    (None, None) => {}
                }
                item = LLVMGetNextUse(item);
            }
        }
    }

    /// A reason to believe that passes which look at several functions at once have seen
    /// this module: some function may then hold the body of another, or rely on it, and no
    /// record says so. `None` for what a front end emits at `-O0`, or at `-O1` and up with
    /// `-Xclang -disable-llvm-passes`.
    ///
    /// The evidence is what only such passes write: `local_unnamed_addr` (GlobalOpt), and
    /// `nofree`, `nosync` or `norecurse` on a definition (FunctionAttrs; a front end itself
    /// writes `norecurse` at `main` and at what is `optnone`).
    pub fn interprocedural(&self) -> Option<String> {
        let kind = |name: &str| {
            // SAFETY: pointer and length describe `name`.
            unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
        };
        let inferred = ["nofree", "nosync", "norecurse"].map(|name| (name, kind(name)));
        for (index, info) in self.summary().symbols.iter().enumerate() {
            if !info.linkage.is_definition() || !matches!(info.kind, Kind::Function | Kind::Data) {
                continue;
            }
            let value = self.table().values[index];
            // SAFETY: a live function or variable.
            let address = unsafe { LLVMGetUnnamedAddress(value) };
            if address == LLVMUnnamedAddr::LLVMLocalUnnamedAddr {
                return Some(format!("`{}` is local_unnamed_addr", info.name));
            }
            let has = |kind| has_function_attribute(value, kind);
            if info.kind != Kind::Function || has(self.kinds().optnone) {
                continue;
            }
            let found = inferred
                .iter()
                .find(|(name, kind)| has(*kind) && !(*name == "norecurse" && info.name == "main"));
            if let Some((name, _)) = found {
                return Some(format!("`{}` is {name}", info.name));
            }
        }
        None
    }

    fn type_text(&self, ty: LLVMTypeRef, depth: u32) -> String {
        if depth > DEPTH {
            return printed_type(ty);
        }
        // SAFETY: a live type; each question fits its kind.
        unsafe {
            match LLVMGetTypeKind(ty) {
                LLVMTypeKind::LLVMStructTypeKind if LLVMIsOpaqueStruct(ty) == 0 => {
                    let fields: Vec<String> = (0..LLVMCountStructElementTypes(ty))
                        .map(|i| self.type_text(LLVMStructGetTypeAtIndex(ty, i), depth + 1))
                        .collect();
                    let fields = fields.join(", ");
                    match LLVMIsPackedStruct(ty) {
                        0 => format!("{{ {fields} }}"),
                        _ => format!("<{{ {fields} }}>"),
                    }
                }
                LLVMTypeKind::LLVMArrayTypeKind => {
                    let element = self.type_text(LLVMGetElementType(ty), depth + 1);
                    format!("[{} x {element}]", LLVMGetArrayLength2(ty))
                }
                _ => printed_type(ty),
            }
        }
    }
}

fn printed_type(ty: LLVMTypeRef) -> String {
    // SAFETY: a live type; the string is ours, and disposed of after it was copied.
    unsafe {
        let raw = LLVMPrintTypeToString(ty);
        let text = std::ffi::CStr::from_ptr(raw).to_string_lossy().into_owned();
        LLVMDisposeMessage(raw);
        text
    }
}

fn printed_value(value: LLVMValueRef) -> String {
    // SAFETY: a live constant; the string is ours, and disposed of after it was copied.
    unsafe {
        let raw = LLVMPrintValueToString(value);
        let text = std::ffi::CStr::from_ptr(raw).to_string_lossy().into_owned();
        LLVMDisposeMessage(raw);
        text
    }
}

fn constant_text(value: LLVMValueRef, depth: u32, left: &mut u32) -> String {
    *left = left.saturating_sub(1);
    let deeper = depth < DEPTH && *left != 0;
    // SAFETY: a live constant; operands of constants are constants.
    unsafe {
        match LLVMGetValueKind(value) {
            LLVMValueKind::LLVMGlobalVariableValueKind => {
                let local = matches!(
                    LLVMGetLinkage(value),
                    LLVMLinkage::LLVMPrivateLinkage | LLVMLinkage::LLVMInternalLinkage
                );
                let initializer = LLVMGetInitializer(value);
                if local && LLVMIsGlobalConstant(value) != 0 && !initializer.is_null() && deeper {
                    return format!("&({})", constant_text(initializer, depth + 1, left));
                }
                format!("@{}", value_name(value))
            }
            LLVMValueKind::LLVMFunctionValueKind
            | LLVMValueKind::LLVMGlobalAliasValueKind
            | LLVMValueKind::LLVMGlobalIFuncValueKind => format!("@{}", value_name(value)),
            LLVMValueKind::LLVMConstantArrayValueKind
            | LLVMValueKind::LLVMConstantStructValueKind
            | LLVMValueKind::LLVMConstantVectorValueKind
                if deeper =>
            {
                operands(value, depth, left)
            }
            LLVMValueKind::LLVMConstantExprValueKind if deeper => {
                // The expression's own text tells operation and types; local names in it
                // are numbered by module, so they are left out.
                let text = printed_value(value);
                let kept: Vec<&str> = text
                    .split([' ', ',', '(', ')'])
                    .filter(|word| !word.starts_with('@') && !word.is_empty())
                    .collect();
                format!("{} {}", kept.join(" "), operands(value, depth, left))
            }
            _ => printed_value(value),
        }
    }
}

/// # Safety
/// A live constant with operands that are constants.
unsafe fn operands(value: LLVMValueRef, depth: u32, left: &mut u32) -> String {
    // SAFETY: by the caller's promise.
    let each = (0..unsafe { LLVMGetNumOperands(value) }.max(0) as u32)
        // SAFETY: an operand that is there.
        .map(|i| constant_text(unsafe { LLVMGetOperand(value, i) }, depth + 1, left));
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}
