//! Types of a unit's variables: copies of the module's types, limited to those a debugger looks at.
//!
//! A type of a large program refers to thousands of others, all of which would be written for each
//! function. So they are copied, nearest first: [`MOST`] structs and unions with their members, and
//! more distant ones by name only. Debuggers find those in other units by name.
//!
//! # Invariants
//! - A copied type refers to no compile unit or function except the copy's own.
//! - Input may contain cycles of any kind: chains have a limit.
//!
//! # Why
//! - A struct is made without members first, under an identifier of its own: two that are otherwise
//!   alike would be one node, which is then filled twice. It is not made as a node to be replaced
//!   later: a node that refers to such a node may be merged into another one, and is gone.
//! - Variants of Rust's enums are left out. LLVM-C cannot make them, and gdb 13 crashes on those of
//!   rustc 1.95, in native programs, too.

use std::collections::VecDeque;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use inkwell::llvm_sys::core::{LLVMConstIntGetZExtValue, LLVMIsAConstantInt, LLVMValueAsMetadata};
use inkwell::llvm_sys::debuginfo::{
    LLVMDIBuilderCreateArrayType, LLVMDIBuilderCreateBitFieldMemberType,
    LLVMDIBuilderCreateEnumerationType, LLVMDIBuilderCreateForwardDecl,
    LLVMDIBuilderCreateInheritance, LLVMDIBuilderCreateMemberPointerType,
    LLVMDIBuilderCreateMemberType, LLVMDIBuilderCreatePointerType,
    LLVMDIBuilderCreateQualifiedType, LLVMDIBuilderCreateReferenceType,
    LLVMDIBuilderCreateStructType, LLVMDIBuilderCreateSubroutineType, LLVMDIBuilderCreateTypedef,
    LLVMDIBuilderCreateUnionType, LLVMDIBuilderCreateVectorType, LLVMDIFlagBitField,
    LLVMDIFlagFwdDecl, LLVMDIFlagStaticMember, LLVMDIFlagVector, LLVMDIFlagZero, LLVMDIFlags,
    LLVMDIScopeGetFile, LLVMDITypeGetAlignInBits, LLVMDITypeGetFlags, LLVMDITypeGetLine,
    LLVMDITypeGetName, LLVMDITypeGetOffsetInBits, LLVMDITypeGetSizeInBits, LLVMGetDINodeTag,
    LLVMGetMetadataKind, LLVMMetadataKind, LLVMReplaceArrays,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMDIBuilderRef, LLVMMetadataRef};
use rustc_hash::FxHashMap;

use super::nodes::{child, is_namespace, operand, operands};

/// Structs and unions of a unit that have their members.
const MOST: u32 = 32;

/// Most types that are made of each other without a struct between them.
const DEPTH: u32 = 50;

/// Operands of LLVM's nodes for types (`DebugInfoMetadata.h`): file, scope, name, size, offset,
/// and then those of their kind.
const SCOPE: usize = 1;
const BASE: usize = 5;
const ELEMENTS: usize = 6;
/// Operand of a derived type: the start of the storage of bits, or the class of a pointer to a
/// member.
const EXTRA: usize = 6;
/// Operand of a function's type: its result and parameters.
const TYPES: usize = 5;

/// Tags of DWARF.
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
    pub(super) const POINTER_TO_MEMBER: u16 = 0x1f;
    pub(super) const CONST: u16 = 0x26;
    pub(super) const VOLATILE: u16 = 0x35;
    pub(super) const RESTRICT: u16 = 0x37;
    pub(super) const RVALUE_REFERENCE: u16 = 0x42;
    pub(super) const ATOMIC: u16 = 0x47;
}

/// The types of one unit.
pub(super) struct Types {
    context: LLVMContextRef,
    builder: LLVMDIBuilderRef,
    /// The scope of types whose own scope cannot be kept.
    file: LLVMMetadataRef,
    /// Old -> new.
    known: FxHashMap<LLVMMetadataRef, LLVMMetadataRef>,
    /// Old and new, the latter without members yet.
    unfilled: VecDeque<(LLVMMetadataRef, LLVMMetadataRef)>,
    described: u32,
    depth: u32,
}

/// The fields that all types have.
struct Common {
    name: (*const std::ffi::c_char, usize),
    file: LLVMMetadataRef,
    line: u32,
    size: u64,
    align: u32,
    offset: u64,
    flags: LLVMDIFlags,
}

impl Common {
    /// # Safety
    /// A live type.
    unsafe fn of(ty: LLVMMetadataRef) -> Common {
        let mut length = 0;
        // SAFETY: by the caller's promise; names live as the context does.
        unsafe {
            let name = LLVMDITypeGetName(ty, &mut length);
            Common {
                name: (name, length),
                file: LLVMDIScopeGetFile(ty),
                line: LLVMDITypeGetLine(ty),
                size: LLVMDITypeGetSizeInBits(ty),
                align: LLVMDITypeGetAlignInBits(ty),
                offset: LLVMDITypeGetOffsetInBits(ty),
                flags: LLVMDITypeGetFlags(ty),
            }
        }
    }
}

impl Types {
    /// # Safety
    /// The builder of a unit, which has a compile unit, of the context, and a file of that; all
    /// live as long as the nodes made here.
    pub(super) unsafe fn new(
        context: LLVMContextRef,
        builder: LLVMDIBuilderRef,
        file: LLVMMetadataRef,
    ) -> Types {
        Types {
            context,
            builder,
            file,
            known: FxHashMap::default(),
            unfilled: VecDeque::new(),
            described: 0,
            depth: 0,
        }
    }

    /// The copy of a type; null is `void`.
    ///
    /// # Safety
    /// Null, or a live type of the context.
    pub(super) unsafe fn copy(&mut self, old: LLVMMetadataRef) -> LLVMMetadataRef {
        if old.is_null() || self.depth > DEPTH {
            return null_mut();
        }
        if let Some(&known) = self.known.get(&old) {
            return known;
        }
        self.depth += 1;
        // SAFETY: by the caller's promise, and by its kind.
        let new = unsafe {
            match LLVMGetMetadataKind(old) {
                LLVMMetadataKind::LLVMDIDerivedTypeMetadataKind => self.derived(old),
                LLVMMetadataKind::LLVMDICompositeTypeMetadataKind => self.composite(old),
                LLVMMetadataKind::LLVMDISubroutineTypeMetadataKind => self.routine(old),
                // They refer to nothing.
                LLVMMetadataKind::LLVMDIBasicTypeMetadataKind
                | LLVMMetadataKind::LLVMDIStringTypeMetadataKind => old,
                _ => null_mut(),
            }
        };
        self.depth -= 1;
        self.known.insert(old, new);
        new
    }

    /// Gives structs and unions their members.
    ///
    /// # Safety
    /// Types that were copied are live.
    pub(super) unsafe fn fill(&mut self) {
        while let Some((old, new)) = self.unfilled.pop_front() {
            // SAFETY: by the caller's promise; `new` was made here, without members, and stays
            // where it is, as all it refers to is whole.
            unsafe {
                let members = operands_of(self.context, child(self.context, old, ELEMENTS));
                let mut members: Vec<LLVMMetadataRef> = members
                    .into_iter()
                    .filter_map(|member| self.member(member, new))
                    .collect();
                let (mut filled, count) = (new, members.len() as u32);
                LLVMReplaceArrays(self.builder, &mut filled, members.as_mut_ptr(), count);
                debug_assert_eq!(filled, new, "a struct that moved");
            }
        }
    }

    /// # Safety
    /// A live derived type.
    unsafe fn derived(&mut self, old: LLVMMetadataRef) -> LLVMMetadataRef {
        // SAFETY: by the caller's promise; all is of one context.
        unsafe {
            let base = self.copy(child(self.context, old, BASE));
            let of = Common::of(old);
            let (name, length) = of.name;
            let builder = self.builder;
            match LLVMGetDINodeTag(old) {
                tag::POINTER => LLVMDIBuilderCreatePointerType(
                    builder, base, of.size, of.align, 0, name, length,
                ),
                kind @ (tag::REFERENCE | tag::RVALUE_REFERENCE) if !base.is_null() => {
                    LLVMDIBuilderCreateReferenceType(builder, kind.into(), base)
                }
                kind @ (tag::CONST | tag::VOLATILE | tag::RESTRICT | tag::ATOMIC) => {
                    LLVMDIBuilderCreateQualifiedType(builder, kind.into(), base)
                }
                tag::TYPEDEF => {
                    let scope = self.scope(old);
                    LLVMDIBuilderCreateTypedef(
                        builder, base, name, length, of.file, of.line, scope, of.align,
                    )
                }
                tag::POINTER_TO_MEMBER => {
                    let class = self.copy(child(self.context, old, EXTRA));
                    if class.is_null() {
                        return base;
                    }
                    LLVMDIBuilderCreateMemberPointerType(
                        builder, base, class, of.size, of.align, of.flags,
                    )
                }
                // Qualifiers that debuggers do not show.
                _ => base,
            }
        }
    }

    /// # Safety
    /// A live type of a function.
    unsafe fn routine(&mut self, old: LLVMMetadataRef) -> LLVMMetadataRef {
        // SAFETY: by the caller's promise; all is of one context.
        unsafe {
            let types = child(self.context, old, TYPES);
            let types = match types.is_null() {
                true => Vec::new(),
                false => operands(self.context, types),
            };
            let mut types: Vec<LLVMMetadataRef> = types
                .into_iter()
                .map(|ty| match ty.is_null() {
                    true => null_mut(),
                    false => self.copy(LLVMValueAsMetadata(ty)),
                })
                .collect();
            let (start, count) = (types.as_mut_ptr(), types.len() as u32);
            LLVMDIBuilderCreateSubroutineType(self.builder, self.file, start, count, LLVMDIFlagZero)
        }
    }

    /// # Safety
    /// A live composite type.
    unsafe fn composite(&mut self, old: LLVMMetadataRef) -> LLVMMetadataRef {
        // SAFETY: by the caller's promise; all is of one context.
        unsafe {
            let of = Common::of(old);
            let (name, length) = of.name;
            let builder = self.builder;
            match LLVMGetDINodeTag(old) {
                tag::ARRAY => self.array(old, &of),
                tag::ENUMERATION => {
                    let scope = self.scope(old);
                    let base = self.copy(child(self.context, old, BASE));
                    // Enumerators refer to nothing.
                    let mut all = operands_of(self.context, child(self.context, old, ELEMENTS));
                    all.retain(|&it| {
                        let kind = LLVMGetMetadataKind(it);
                        matches!(kind, LLVMMetadataKind::LLVMDIEnumeratorMetadataKind)
                    });
                    let (start, count) = (all.as_mut_ptr(), all.len() as u32);
                    LLVMDIBuilderCreateEnumerationType(
                        builder, scope, name, length, of.file, of.line, of.size, of.align, start,
                        count, base,
                    )
                }
                tag::STRUCTURE | tag::CLASS | tag::UNION => self.aggregate(old, &of),
                _ => null_mut(),
            }
        }
    }

    /// # Safety
    /// A live array.
    unsafe fn array(&mut self, old: LLVMMetadataRef, of: &Common) -> LLVMMetadataRef {
        // SAFETY: by the caller's promise; all is of one context.
        unsafe {
            let base = self.copy(child(self.context, old, BASE));
            if base.is_null() {
                return base;
            }
            let mut bounds = operands_of(self.context, child(self.context, old, ELEMENTS));
            bounds.retain(|&it| {
                let kind = LLVMGetMetadataKind(it);
                matches!(kind, LLVMMetadataKind::LLVMDISubrangeMetadataKind)
            });
            let (start, count) = (bounds.as_mut_ptr(), bounds.len() as u32);
            let make = match of.flags & LLVMDIFlagVector {
                0 => LLVMDIBuilderCreateArrayType,
                _ => LLVMDIBuilderCreateVectorType,
            };
            make(self.builder, of.size, of.align, base, start, count)
        }
    }

    /// A struct or union, to be filled, or a declaration by name only.
    ///
    /// # Safety
    /// A live one.
    unsafe fn aggregate(&mut self, old: LLVMMetadataRef, of: &Common) -> LLVMMetadataRef {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (name, length) = of.name;
        let builder = self.builder;
        // SAFETY: by the caller's promise; all is of one context.
        unsafe {
            let kind = LLVMGetDINodeTag(old);
            let scope = self.scope(old);
            if of.flags & LLVMDIFlagFwdDecl != 0 || self.described >= MOST {
                return LLVMDIBuilderCreateForwardDecl(
                    builder,
                    kind.into(),
                    name,
                    length,
                    scope,
                    of.file,
                    of.line,
                    0,
                    of.size,
                    of.align,
                    null(),
                    0,
                );
            }
            self.described += 1;
            let own = format!("uruk.{}", NUMBER.fetch_add(1, Ordering::Relaxed));
            let (own, own_length) = (own.as_ptr().cast(), own.len());
            let new = match kind {
                tag::UNION => LLVMDIBuilderCreateUnionType(
                    builder,
                    scope,
                    name,
                    length,
                    of.file,
                    of.line,
                    of.size,
                    of.align,
                    of.flags,
                    null_mut(),
                    0,
                    0,
                    own,
                    own_length,
                ),
                _ => LLVMDIBuilderCreateStructType(
                    builder,
                    scope,
                    name,
                    length,
                    of.file,
                    of.line,
                    of.size,
                    of.align,
                    of.flags,
                    null_mut(),
                    null_mut(),
                    0,
                    0,
                    null_mut(),
                    own,
                    own_length,
                ),
            };
            self.known.insert(old, new);
            self.unfilled.push_back((old, new));
            new
        }
    }

    /// A member of `owner`, or a base class; `None` if it takes no room in it.
    ///
    /// # Safety
    /// A live node; a struct or union that was made here.
    unsafe fn member(
        &mut self,
        old: LLVMMetadataRef,
        owner: LLVMMetadataRef,
    ) -> Option<LLVMMetadataRef> {
        // SAFETY: by the caller's promise; all is of one context.
        unsafe {
            let kind = tag_of(old)?;
            if !matches!(kind, tag::MEMBER | tag::INHERITANCE) {
                return None;
            }
            let of = Common::of(old);
            let (name, length) = of.name;
            let (builder, flags) = (self.builder, of.flags);
            let base = self.copy(child(self.context, old, BASE));
            if flags & LLVMDIFlagStaticMember != 0 || base.is_null() {
                return None;
            }
            Some(match kind {
                tag::INHERITANCE => {
                    LLVMDIBuilderCreateInheritance(builder, owner, base, of.offset, 0, flags)
                }
                _ if flags & LLVMDIFlagBitField != 0 => {
                    let storage = operand(self.context, old, EXTRA);
                    let storage = storage.filter(|&it| !LLVMIsAConstantInt(it).is_null());
                    let storage = storage.map_or(0, |it| LLVMConstIntGetZExtValue(it));
                    LLVMDIBuilderCreateBitFieldMemberType(
                        builder, owner, name, length, of.file, of.line, of.size, of.offset,
                        storage, flags, base,
                    )
                }
                _ => LLVMDIBuilderCreateMemberType(
                    builder, owner, name, length, of.file, of.line, of.size, of.align, of.offset,
                    flags, base,
                ),
            })
        }
    }

    /// The scope of a type's copy: a namespace or a struct, not a function.
    ///
    /// # Safety
    /// A live type.
    unsafe fn scope(&mut self, old: LLVMMetadataRef) -> LLVMMetadataRef {
        // SAFETY: by the caller's promise; all is of one context.
        unsafe {
            let scope = child(self.context, old, SCOPE);
            if scope.is_null() {
                return self.file;
            }
            match LLVMGetMetadataKind(scope) {
                _ if is_namespace(self.context, scope) => scope,
                LLVMMetadataKind::LLVMDICompositeTypeMetadataKind => {
                    let copy = self.copy(scope);
                    if copy.is_null() { self.file } else { copy }
                }
                _ => self.file,
            }
        }
    }
}

/// The nodes of a list; none of null.
///
/// # Safety
/// Null, or a live list of the context.
unsafe fn operands_of(context: LLVMContextRef, list: LLVMMetadataRef) -> Vec<LLVMMetadataRef> {
    // SAFETY: by the caller's promise; nodes in a list live as it does.
    unsafe {
        let is_list = !list.is_null()
            && matches!(
                LLVMGetMetadataKind(list),
                LLVMMetadataKind::LLVMMDTupleMetadataKind
            );
        if !is_list {
            return Vec::new();
        }
        let all = operands(context, list).into_iter();
        all.filter(|it| !it.is_null())
            .map(|it| LLVMValueAsMetadata(it))
            .collect()
    }
}

/// The tag of a type.
///
/// # Safety
/// A live node.
unsafe fn tag_of(node: LLVMMetadataRef) -> Option<u16> {
    // SAFETY: by the caller's promise; both kinds have a tag.
    unsafe {
        match LLVMGetMetadataKind(node) {
            LLVMMetadataKind::LLVMDIDerivedTypeMetadataKind
            | LLVMMetadataKind::LLVMDICompositeTypeMetadataKind => Some(LLVMGetDINodeTag(node)),
            _ => None,
        }
    }
}
