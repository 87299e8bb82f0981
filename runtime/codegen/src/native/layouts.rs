//! Layouts of variables and of structures: kinds of the numbers in their bytes.
//!
//! | source | for | members have |
//! |---|---|---|
//! | debug information (`-g`) | variables, structures that have a name | names |
//! | types of the IR | variables, if these are numbers, arrays, and structures of them | places only |
//!
//! Old and new code that share memory have to agree on it: each member keeps its place, and each
//! place has a number of the same kind. Integers are one kind, signed or unsigned; a member may get
//! another name.
//!
//! # Why
//! Types of the IR do not describe unions: clang writes a variable with one as its first value
//! needs it. Such a layout is not known.
//!
//! Operands of nodes are read by their numbers in LLVM 22 (`DebugInfoMetadata.h`), as its C interface has
//! no names for them; a node is asked for its kind first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use inkwell::llvm_sys::core::{
    LLVMDisposeValueMetadataEntries, LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands,
    LLVMGetMDString, LLVMGetNamedMetadataNumOperands, LLVMGetNamedMetadataOperands,
    LLVMGlobalCopyAllMetadata, LLVMMetadataAsValue, LLVMValueAsMetadata,
    LLVMValueMetadataEntriesGetMetadata,
};
use inkwell::llvm_sys::debuginfo::{
    LLVMDIGlobalVariableExpressionGetVariable, LLVMDITypeGetFlags, LLVMDITypeGetName,
    LLVMDITypeGetOffsetInBits, LLVMDITypeGetSizeInBits, LLVMGetDINodeTag, LLVMGetMetadataKind,
    LLVMGetSubprogram, LLVMMetadataKind,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef, LLVMValueRef};

use crate::context::{LlvmContext, OwnedModule};
use crate::handles::VariableRef;

mod types;

pub(super) use types::of_type;

/// The kind of a number in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum NumberKind {
    Integer,
    Float,
    Pointer,
    Other,
}

impl NumberKind {
    fn told(self) -> &'static str {
        match self {
            NumberKind::Integer => "an integer",
            NumberKind::Float => "a floating-point number",
            NumberKind::Pointer => "a pointer",
            NumberKind::Other => "something else",
        }
    }
}

/// A number in a layout; for an array its first element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Leaf {
    /// Offset in bits, like its size.
    offset: u64,
    size: u64,
    kind: NumberKind,
    /// Bits of all arrays that it is in.
    array: u64,
    /// Names of members that lead to it, if they are known.
    path: String,
}

/// The layout of a variable or of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeLayout(Vec<Leaf>);

impl TypeLayout {
    /// The difference to a new layout, as the end of a sentence about the variable; `None` if both
    /// read memory in the same way.
    pub fn difference(&self, new: &TypeLayout) -> Option<String> {
        let named = |leaf: &&Leaf| !leaf.path.is_empty();
        let by_path: HashMap<&str, &Leaf> = self
            .0
            .iter()
            .filter(named)
            .map(|it| (&*it.path, it))
            .collect();
        for leaf in new.0.iter().filter(named) {
            let path = &leaf.path;
            match by_path.get(path.as_str()) {
                Some(old) if old.offset != leaf.offset => {
                    let (now, before) = (leaf.offset / 8, old.offset / 8);
                    return Some(format!(
                        "whose `{path}` is at byte {now} here and at byte {before} in the program"
                    ));
                }
                Some(old) if old.kind != leaf.kind => {
                    let (now, before) = (leaf.kind.told(), old.kind.told());
                    return Some(format!(
                        "whose `{path}` is {now} here and {before} in the program"
                    ));
                }
                _ => {}
            }
        }
        if let ([old], [leaf]) = (&*self.0, &*new.0)
            && old.kind != leaf.kind
        {
            let (now, before) = (leaf.kind.told(), old.kind.told());
            return Some(format!("which is {now} here and {before} in the program"));
        }
        let plain = |layout: &TypeLayout| -> HashSet<(u64, u64, NumberKind, u64)> {
            let leaves = layout.0.iter();
            leaves
                .map(|it| (it.offset, it.size, it.kind, it.array))
                .collect()
        };
        (plain(self) != plain(new)).then(|| "which has other members than in the program".into())
    }
}

/// Layouts of a module from debug information.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    /// Layouts of variables that are no constants, by name.
    pub(super) variables: HashMap<String, Arc<TypeLayout>>,
    /// Layouts of structures, by name; those of C++ by their linkage names.
    pub(super) types: HashMap<String, Arc<TypeLayout>>,
}

/// Most numbers of a layout; larger ones are not compared.
const MOST: usize = 4096;

/// Most nested structures; those of a source are not as deep.
const DEEPEST: usize = 64;

/// Numbers of operands.
const IDENTIFIER: usize = 9;
const BASE: usize = 5;
const ELEMENTS: usize = 6;
const VARIABLE_TYPE: usize = 3;

/// Flags of types: declared only, a static member.
const DECLARED: i32 = 1 << 2;
const STATIC: i32 = 1 << 12;

/// Layouts from a module's debug information, if it has any.
pub(super) fn of_debug_information(context: &LlvmContext, module: &OwnedModule) -> Layouts {
    let units = c"llvm.dbg.cu".as_ptr();
    // SAFETY: a live module; the array has room for all values that are written.
    let roots = unsafe {
        let count = LLVMGetNamedMetadataNumOperands(module.raw(), units);
        let mut roots: Vec<LLVMValueRef> = vec![std::ptr::null_mut(); count as usize];
        LLVMGetNamedMetadataOperands(module.raw(), units, roots.as_mut_ptr());
        roots
    };
    let mut layouts = Layouts::default();
    if roots.is_empty() {
        return layouts;
    }
    let nodes = Nodes(context.raw());
    // SAFETY: values that wrap live metadata, and live functions.
    let mut roots: Vec<LLVMMetadataRef> = roots
        .into_iter()
        .map(|it| unsafe { LLVMValueAsMetadata(it) })
        .collect();
    for function in module.functions() {
        // SAFETY: a live function.
        roots.push(unsafe { LLVMGetSubprogram(function.raw()) });
    }
    for variable in module.variables().filter(|it| !it.is_constant()) {
        let kind = nodes.type_of(variable);
        if let Some(layout) = kind.and_then(|kind| nodes.layout(kind)) {
            layouts.variables.insert(variable.name(), Arc::new(layout));
        }
    }
    nodes.collect_types(roots, &mut layouts.types);
    layouts
}

/// Nodes of debug information of a context.
struct Nodes(LLVMContextRef);

impl Nodes {
    /// The operands of a node.
    fn operands(&self, node: LLVMMetadataRef) -> Vec<LLVMMetadataRef> {
        // SAFETY: a live node; the array has room for all operands that are written, null for none.
        unsafe {
            let value = LLVMMetadataAsValue(self.0, node);
            let count = LLVMGetMDNodeNumOperands(value) as usize;
            let mut operands: Vec<LLVMValueRef> = vec![std::ptr::null_mut(); count];
            LLVMGetMDNodeOperands(value, operands.as_mut_ptr());
            let operands = operands.into_iter();
            operands
                .map(|it| match it.is_null() {
                    true => std::ptr::null_mut(),
                    false => LLVMValueAsMetadata(it),
                })
                .collect()
        }
    }

    fn operand(&self, node: LLVMMetadataRef, number: usize) -> Option<LLVMMetadataRef> {
        let operand = self.operands(node).get(number).copied();
        operand.filter(|it| !it.is_null())
    }

    /// The type of a variable in debug information.
    fn type_of(&self, variable: VariableRef<'_>) -> Option<LLVMMetadataRef> {
        // SAFETY: a live variable; each entry is live metadata until they are disposed of.
        let found = unsafe {
            let mut count = 0;
            let entries = LLVMGlobalCopyAllMetadata(variable.raw(), &mut count);
            let mut all =
                (0..count as u32).map(|it| LLVMValueMetadataEntriesGetMetadata(entries, it));
            let of_debugger = |it: &LLVMMetadataRef| {
                is(
                    *it,
                    LLVMMetadataKind::LLVMDIGlobalVariableExpressionMetadataKind,
                )
            };
            let found = all.find(of_debugger);
            LLVMDisposeValueMetadataEntries(entries);
            found.map(|it| LLVMDIGlobalVariableExpressionGetVariable(it))?
        };
        let known = is(found, LLVMMetadataKind::LLVMDIGlobalVariableMetadataKind);
        self.operand(found, VARIABLE_TYPE).filter(|_| known)
    }

    fn layout(&self, kind: LLVMMetadataRef) -> Option<TypeLayout> {
        let mut leaves = Vec::new();
        self.add(kind, (0, 0), "", 0, &mut leaves)?;
        leaves.sort();
        Some(TypeLayout(leaves))
    }

    /// Adds the numbers of a type that is at an offset, in arrays of so many bits; `None` if the
    /// type is not known.
    fn add(
        &self,
        kind: LLVMMetadataRef,
        (offset, array): (u64, u64),
        path: &str,
        depth: usize,
        to: &mut Vec<Leaf>,
    ) -> Option<()> {
        let node = Type::of(kind)?;
        if to.len() >= MOST || depth >= DEEPEST {
            return None;
        }
        let leaf = |kind| Leaf {
            offset,
            size: node.size,
            kind,
            array,
            path: path.to_owned(),
        };
        let inner = |to: &mut Vec<Leaf>, place, path: &str, operand| {
            self.add(self.operand(kind, operand)?, place, path, depth + 1, to)
        };
        match node.tag {
            tag::BASIC => to.push(leaf(node.number())),
            tag::POINTER | tag::REFERENCE | tag::RVALUE | tag::MEMBER_POINTER => {
                to.push(leaf(NumberKind::Pointer));
            }
            tag::ENUMERATION => to.push(leaf(NumberKind::Integer)),
            tag::TYPEDEF | tag::CONST | tag::VOLATILE | tag::RESTRICT | tag::ATOMIC => {
                inner(to, (offset, array), path, BASE)?;
            }
            tag::ARRAY => inner(to, (offset, array + node.size), path, BASE)?,
            tag::STRUCTURE | tag::CLASS | tag::UNION if node.flags & DECLARED == 0 => {
                let elements = self.operand(kind, ELEMENTS)?;
                for member in self.operands(elements) {
                    let Some(it) = Type::of(member) else {
                        continue;
                    };
                    if !matches!(it.tag, tag::MEMBER | tag::INHERITANCE) || it.flags & STATIC != 0 {
                        continue;
                    }
                    let path = match (path.is_empty(), it.name.is_empty()) {
                        (_, true) => path.to_owned(),
                        (true, false) => it.name.clone(),
                        (false, false) => format!("{path}.{}", it.name),
                    };
                    let first = to.len();
                    let base = self.operand(member, BASE)?;
                    self.add(base, (offset + it.offset, array), &path, depth + 1, to)?;
                    // A bit field of a number.
                    if let ([only], true) = (&mut to[first..], it.tag == tag::MEMBER) {
                        only.size = it.size;
                    }
                }
            }
            _ => to.push(leaf(NumberKind::Other)),
        }
        Some(())
    }

    /// Finds all structures that nodes refer to.
    fn collect_types(
        &self,
        mut left: Vec<LLVMMetadataRef>,
        types: &mut HashMap<String, Arc<TypeLayout>>,
    ) {
        let mut seen: HashSet<LLVMMetadataRef> = HashSet::new();
        while let Some(node) = left.pop() {
            if node.is_null() || !is_walked(node) || !seen.insert(node) {
                continue;
            }
            let operands = self.operands(node);
            if let Some(it) = Type::of(node).filter(|it| it.is_structure()) {
                let name = operands.get(IDENTIFIER).and_then(|it| self.text(*it));
                let name = name.unwrap_or(it.name);
                if !name.is_empty()
                    && let Some(layout) = self.layout(node)
                {
                    types.insert(name, Arc::new(layout));
                }
            }
            left.extend(operands);
        }
    }

    fn text(&self, node: LLVMMetadataRef) -> Option<String> {
        if node.is_null() || !is(node, LLVMMetadataKind::LLVMMDStringMetadataKind) {
            return None;
        }
        // SAFETY: a live string of the context, of that length.
        let bytes = unsafe {
            let mut length = 0;
            let start = LLVMGetMDString(LLVMMetadataAsValue(self.0, node), &mut length);
            std::slice::from_raw_parts(start.cast::<u8>(), length as usize)
        };
        let text = String::from_utf8_lossy(bytes).into_owned();
        (!text.is_empty()).then_some(text)
    }
}

fn is(node: LLVMMetadataRef, kind: LLVMMetadataKind) -> bool {
    // SAFETY: live metadata.
    !node.is_null() && unsafe { LLVMGetMetadataKind(node) as u32 } == kind as u32
}

/// Whether a node may lead to structures.
fn is_walked(node: LLVMMetadataRef) -> bool {
    use LLVMMetadataKind as K;
    // SAFETY: live metadata.
    let kind = unsafe { LLVMGetMetadataKind(node) };
    matches!(
        kind,
        K::LLVMMDTupleMetadataKind
            | K::LLVMDIGlobalVariableExpressionMetadataKind
            | K::LLVMDIGlobalVariableMetadataKind
            | K::LLVMDILocalVariableMetadataKind
            | K::LLVMDIDerivedTypeMetadataKind
            | K::LLVMDICompositeTypeMetadataKind
            | K::LLVMDISubroutineTypeMetadataKind
            | K::LLVMDISubprogramMetadataKind
            | K::LLVMDICompileUnitMetadataKind
    )
}

/// Tags of DWARF; basic types have one of their own.
mod tag {
    pub(super) const ARRAY: u16 = 0x01;
    pub(super) const CLASS: u16 = 0x02;
    pub(super) const ENUMERATION: u16 = 0x04;
    pub(super) const MEMBER: u16 = 0x0d;
    pub(super) const POINTER: u16 = 0x0f;
    pub(super) const REFERENCE: u16 = 0x10;
    pub(super) const STRUCTURE: u16 = 0x13;
    pub(super) const TYPEDEF: u16 = 0x16;
    pub(super) const UNION: u16 = 0x17;
    pub(super) const INHERITANCE: u16 = 0x1c;
    pub(super) const MEMBER_POINTER: u16 = 0x1f;
    pub(super) const BASIC: u16 = 0x24;
    pub(super) const CONST: u16 = 0x26;
    pub(super) const VOLATILE: u16 = 0x35;
    pub(super) const RESTRICT: u16 = 0x37;
    pub(super) const RVALUE: u16 = 0x42;
    pub(super) const ATOMIC: u16 = 0x47;
}

/// A node that is a type or a member.
struct Type {
    tag: u16,
    name: String,
    size: u64,
    offset: u64,
    flags: i32,
}

impl Type {
    fn of(node: LLVMMetadataRef) -> Option<Type> {
        use LLVMMetadataKind as K;
        let known = [
            K::LLVMDIBasicTypeMetadataKind,
            K::LLVMDIDerivedTypeMetadataKind,
            K::LLVMDICompositeTypeMetadataKind,
        ];
        if !known.into_iter().any(|kind| is(node, kind)) {
            return None;
        }
        // SAFETY: a live type; LLVM returns pointer and length of its name.
        unsafe {
            let mut length = 0;
            let start = LLVMDITypeGetName(node, &mut length);
            let name = match start.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(start.cast::<u8>(), length),
            };
            Some(Type {
                tag: LLVMGetDINodeTag(node),
                name: String::from_utf8_lossy(name).into_owned(),
                size: LLVMDITypeGetSizeInBits(node),
                offset: LLVMDITypeGetOffsetInBits(node),
                flags: LLVMDITypeGetFlags(node),
            })
        }
    }

    fn is_structure(&self) -> bool {
        let composite = matches!(self.tag, tag::STRUCTURE | tag::CLASS | tag::UNION);
        composite && self.flags & DECLARED == 0 && self.size != 0
    }

    /// The kind of a number, derived from its name.
    fn number(&self) -> NumberKind {
        const FLOATS: [&str; 6] = ["float", "double", "Float", "bf16", "f32", "f64"];
        match FLOATS.iter().any(|it| self.name.contains(it)) {
            true => NumberKind::Float,
            false => NumberKind::Integer,
        }
    }
}
