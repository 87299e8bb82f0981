//! What LLVM's types are in scalars: leaves in the order in which LLVM passes them, sizes, and
//! where fields are.
//!
//! A type lives as long as its context, and what is found out of it is kept as long: by whoever
//! keeps the context.

use inkwell::llvm_sys::LLVMTypeKind;
use inkwell::llvm_sys::core::{
    LLVMCountStructElementTypes, LLVMGetArrayLength2, LLVMGetElementType, LLVMGetIntTypeWidth,
    LLVMGetPointerAddressSpace, LLVMGetTypeKind, LLVMGetVectorSize, LLVMStructGetTypeAtIndex,
    LLVMTypeIsSized,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use inkwell::llvm_sys::target::{
    LLVMABIAlignmentOfType, LLVMABISizeOfType, LLVMCreateTargetData, LLVMDisposeTargetData,
    LLVMOffsetOfElement, LLVMTargetDataRef,
};
use rustc_hash::FxHashMap;
use uruk_baseline::ir::Type;

use crate::handles::TypeRef;

/// The layout of data on x86-64 Linux, as LLVM's target has it.
pub(super) const LAYOUT: &std::ffi::CStr =
    c"e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128";

/// Scalars that one value may have.
const MOST_LEAVES: u32 = 32;

/// The most lanes of vectors that are taken apart.
const MOST_LANES: u32 = 32;

/// Why a vector of a length that is not known here, and what holds one, has no leaves.
const SCALABLE: &str = "a vector of unknown length";

/// A type that was looked at, by its place among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known(u32);

/// A scalar of a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) ty: Type,
    /// In bytes.
    pub(super) offset: u32,
    /// It is the low half of an integer of 128 bits; the next leaf is the high one.
    pub(super) paired: bool,
}

/// What a type is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// `void`, or a kind of value that nothing computes with.
    Nothing,
    /// One scalar.
    Scalar(Type),
    /// An integer of 128 bits.
    Wide,
    /// A struct, whose fields begin there among all.
    Struct { fields: u32 },
    /// Elements of a type, one behind the other.
    Array { element: Known, stride: u64 },
    /// A vector: lanes of a type.
    Vector { lane: Type, lanes: u32 },
    /// Another.
    Other,
}

/// What is known of a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    pub(super) shape: Shape,
    /// Its leaves, the first of them and their number; or why it has none.
    leaves: Result<(u32, u32), &'static str>,
    /// Of a vector: its lanes.
    lanes: Option<(u32, u32)>,
    /// Bytes from one to the next.
    pub(super) size: u64,
    /// Of a struct or array in memory.
    pub(super) align: u32,
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) ty: Known,
    /// In bytes.
    pub(super) offset: u64,
    /// Leaves of the fields before it; of no meaning in structs without leaves.
    pub(super) leaf: u32,
}

/// The types of one context.
pub(super) struct Types {
    layout: LLVMTargetDataRef,
    /// Whether vectors are taken apart into their lanes.
    pub(super) by_lanes: bool,
    index: FxHashMap<LLVMTypeRef, Known>,
    infos: Vec<Info>,
    fields: Vec<Field>,
    leaves: Vec<Leaf>,
}

impl Drop for Types {
    fn drop(&mut self) {
        // SAFETY: ours, from `new`.
        unsafe { LLVMDisposeTargetData(self.layout) };
    }
}

impl Types {
    pub(super) fn new() -> Types {
        Types {
            // SAFETY: a C string that is a layout.
            layout: unsafe { LLVMCreateTargetData(LAYOUT.as_ptr()) },
            by_lanes: false,
            index: FxHashMap::default(),
            infos: Vec::new(),
            fields: Vec::new(),
            leaves: Vec::new(),
        }
    }

    /// The layout that sizes are of.
    pub(super) fn layout(&self) -> LLVMTargetDataRef {
        self.layout
    }

    /// A type, looked at once.
    pub(super) fn know(&mut self, ty: TypeRef<'_>) -> Known {
        if let Some(&known) = self.index.get(&ty.raw()) {
            return known;
        }
        let info = self.look(ty);
        let known = Known(self.infos.len() as u32);
        self.infos.push(info);
        self.index.insert(ty.raw(), known);
        known
    }

    pub(super) fn info(&self, known: Known) -> &Info {
        &self.infos[known.0 as usize]
    }

    /// The scalars of a type.
    pub(super) fn leaves(&self, known: Known) -> Result<&[Leaf], &'static str> {
        if !self.by_lanes {
            return self.whole(known);
        }
        if let Shape::Vector { .. } = self.info(known).shape {
            let (first, count) = self
                .info(known)
                .lanes
                .ok_or("a vector of an unusual type")?;
            return Ok(&self.leaves[first as usize..(first + count) as usize]);
        }
        let leaves = self.whole(known)?;
        match leaves.iter().any(|leaf| leaf.ty == Type::V128) {
            true => Err("a vector in an aggregate"),
            false => Ok(leaves),
        }
    }

    /// The scalars of a type whose vectors are whole.
    fn whole(&self, known: Known) -> Result<&[Leaf], &'static str> {
        let (first, count) = self.info(known).leaves?;
        Ok(&self.leaves[first as usize..(first + count) as usize])
    }

    /// A field of a struct whose fields begin at `fields`.
    pub(super) fn field(&self, fields: u32, index: u32) -> Field {
        self.fields[(fields + index) as usize]
    }

    /// A part of a struct or array by its index: its type, and leaves before it.
    pub(super) fn part(&self, of: Known, index: u32) -> Result<(Known, u32), &'static str> {
        match self.info(of).shape {
            Shape::Struct { fields } => {
                let field = self.field(fields, index);
                Ok((field.ty, field.leaf))
            }
            Shape::Array { element, .. } => {
                let each = self.leaves(element)?.len() as u32;
                Ok((element, each * index))
            }
            _ => Err("a part of what has none"),
        }
    }

    fn look(&mut self, ty: TypeRef<'_>) -> Info {
        let raw = ty.raw();
        // SAFETY: a live type; what is asked fits its kind.
        let kind = unsafe { LLVMGetTypeKind(raw) };
        match kind {
            LLVMTypeKind::LLVMIntegerTypeKind => {
                // SAFETY: as above.
                match unsafe { LLVMGetIntTypeWidth(raw) } {
                    bits @ 1..=64 => self.scalar(ty, Type::Int(bits as u8)),
                    128 => self.wide(ty),
                    _ => self.other(ty, "an integer of unusual width"),
                }
            }
            LLVMTypeKind::LLVMPointerTypeKind => {
                // SAFETY: as above.
                match unsafe { LLVMGetPointerAddressSpace(raw) } {
                    0 => self.scalar(ty, Type::PTR),
                    _ => self.other(ty, "an address space"),
                }
            }
            LLVMTypeKind::LLVMFloatTypeKind => self.scalar(ty, Type::F32),
            LLVMTypeKind::LLVMDoubleTypeKind => self.scalar(ty, Type::F64),
            LLVMTypeKind::LLVMX86_FP80TypeKind => self.scalar(ty, Type::F80),
            LLVMTypeKind::LLVMStructTypeKind => self.structure(ty),
            LLVMTypeKind::LLVMArrayTypeKind => self.array(ty),
            LLVMTypeKind::LLVMVectorTypeKind => self.vector(ty),
            LLVMTypeKind::LLVMVoidTypeKind
            | LLVMTypeKind::LLVMLabelTypeKind
            | LLVMTypeKind::LLVMMetadataTypeKind => Info {
                shape: Shape::Nothing,
                leaves: Ok((0, 0)),
                lanes: None,
                size: 0,
                align: 1,
            },
            LLVMTypeKind::LLVMHalfTypeKind => self.other(ty, "half"),
            LLVMTypeKind::LLVMBFloatTypeKind => self.other(ty, "bfloat"),
            LLVMTypeKind::LLVMFP128TypeKind => self.other(ty, "fp128"),
            LLVMTypeKind::LLVMScalableVectorTypeKind => self.other(ty, SCALABLE),
            LLVMTypeKind::LLVMTokenTypeKind => self.other(ty, "a token"),
            _ => self.other(ty, "an unusual type"),
        }
    }

    /// Size and alignment; nothing of a type without a size.
    fn measure(&self, ty: TypeRef<'_>) -> (u64, u32) {
        // SAFETY: a live type, and our layout; sizes are asked of what has one.
        unsafe {
            let kind = LLVMGetTypeKind(ty.raw());
            let scalable = kind == LLVMTypeKind::LLVMScalableVectorTypeKind;
            let token = kind == LLVMTypeKind::LLVMTokenTypeKind;
            if scalable || token || LLVMTypeIsSized(ty.raw()) == 0 {
                return (0, 1);
            }
            let size = LLVMABISizeOfType(self.layout, ty.raw());
            (size, LLVMABIAlignmentOfType(self.layout, ty.raw()))
        }
    }

    fn add(&mut self, leaves: impl IntoIterator<Item = Leaf>) -> (u32, u32) {
        let first = self.leaves.len();
        self.leaves.extend(leaves);
        (first as u32, (self.leaves.len() - first) as u32)
    }

    fn scalar(&mut self, ty: TypeRef<'_>, scalar: Type) -> Info {
        let (size, align) = self.measure(ty);
        let leaf = Leaf {
            ty: scalar,
            offset: 0,
            paired: false,
        };
        Info {
            shape: Shape::Scalar(scalar),
            leaves: Ok(self.add([leaf])),
            lanes: None,
            size,
            align,
        }
    }

    fn wide(&mut self, ty: TypeRef<'_>) -> Info {
        let (size, align) = self.measure(ty);
        let half = |offset| Leaf {
            ty: Type::Int(64),
            offset,
            paired: offset == 0,
        };
        Info {
            shape: Shape::Wide,
            leaves: Ok(self.add([half(0), half(8)])),
            lanes: None,
            size,
            align,
        }
    }

    fn other(&mut self, ty: TypeRef<'_>, what: &'static str) -> Info {
        let (size, align) = self.measure(ty);
        Info {
            shape: Shape::Other,
            leaves: Err(what),
            lanes: None,
            size,
            align,
        }
    }

    fn unmeasured(&self, what: &'static str) -> Info {
        Info {
            shape: Shape::Other,
            leaves: Err(what),
            lanes: None,
            size: 0,
            align: 1,
        }
    }

    fn structure(&mut self, ty: TypeRef<'_>) -> Info {
        // SAFETY: a struct; an opaque one has no elements.
        let count = unsafe { LLVMCountStructElementTypes(ty.raw()) };
        // SAFETY: as above.
        let sized = unsafe { LLVMTypeIsSized(ty.raw()) } != 0;
        if !sized {
            return self.unmeasured("a type without a size");
        }
        let mut parts = Vec::with_capacity(count as usize);
        for index in 0..count {
            // SAFETY: an index below the count.
            let part = unsafe { TypeRef::of(LLVMStructGetTypeAtIndex(ty.raw(), index)) };
            let part = self.know(part);
            if self.info(part).leaves == Err(SCALABLE) {
                return self.unmeasured(SCALABLE);
            }
            parts.push((part, 0));
        }
        let (size, align) = self.measure(ty);
        for (index, (_, offset)) in (0..).zip(&mut parts) {
            // SAFETY: an index below the count, of a struct with a layout.
            *offset = unsafe { LLVMOffsetOfElement(self.layout, ty.raw(), index) };
        }
        let fields = self.fields.len() as u32;
        let mut leaf = 0;
        for &(ty, offset) in &parts {
            self.fields.push(Field { ty, offset, leaf });
            leaf += self.whole(ty).map_or(0, |leaves| leaves.len() as u32);
        }
        Info {
            shape: Shape::Struct { fields },
            leaves: self.gather(&parts),
            lanes: None,
            size,
            align,
        }
    }

    fn array(&mut self, ty: TypeRef<'_>) -> Info {
        // SAFETY: an array.
        let (element, count) = unsafe {
            let element = TypeRef::of(LLVMGetElementType(ty.raw()));
            (element, LLVMGetArrayLength2(ty.raw()))
        };
        let element = self.know(element);
        let (size, align) = self.measure(ty);
        let stride = self.info(element).size;
        let leaves = match count <= u64::from(MOST_LEAVES) {
            true => {
                let parts: Vec<_> = (0..count).map(|at| (element, at * stride)).collect();
                self.gather(&parts)
            }
            false => Err("a large aggregate"),
        };
        Info {
            shape: Shape::Array { element, stride },
            leaves,
            lanes: None,
            size,
            align,
        }
    }

    /// The leaves of parts at offsets.
    fn gather(&mut self, parts: &[(Known, u64)]) -> Result<(u32, u32), &'static str> {
        let mut leaves = Vec::new();
        for &(part, offset) in parts {
            let found = self.whole(part)?;
            leaves.extend(found.iter().map(|leaf| Leaf {
                offset: leaf.offset + offset as u32,
                ..*leaf
            }));
            if leaves.len() > MOST_LEAVES as usize {
                return Err("a large aggregate");
            }
        }
        Ok(self.add(leaves))
    }

    /// One of 16 bytes is moved as a whole, if its lanes lie in memory as in a register.
    fn vector(&mut self, ty: TypeRef<'_>) -> Info {
        // SAFETY: a vector of fixed length.
        let (lane, lanes, addresses) = unsafe {
            let lane = LLVMGetElementType(ty.raw());
            let addresses = LLVMGetTypeKind(lane) == LLVMTypeKind::LLVMPointerTypeKind;
            (TypeRef::of(lane), LLVMGetVectorSize(ty.raw()), addresses)
        };
        let lane = self.know(lane);
        let mut info = self.other(ty, "a vector");
        let (Shape::Scalar(lane), bytes) = (self.info(lane).shape, self.info(lane).size) else {
            return info;
        };
        info.shape = Shape::Vector { lane, lanes };
        let is_usual = matches!(
            lane,
            Type::Int(1 | 8 | 16 | 32 | 64) | Type::F32 | Type::F64
        );
        if is_usual && (2..=MOST_LANES).contains(&lanes) {
            let leaves = (0..lanes).map(|at| Leaf {
                ty: lane,
                offset: at * bytes as u32,
                paired: false,
            });
            info.lanes = Some(self.add(leaves));
        }
        let is_plain = matches!(lane, Type::Int(8 | 16 | 32 | 64) | Type::F32 | Type::F64);
        // Of addresses `getelementptr` makes others.
        if is_plain && !addresses && bytes * u64::from(lanes) == 16 {
            info.leaves = Ok(self.add([Leaf {
                ty: Type::V128,
                offset: 0,
                paired: false,
            }]));
        }
        info
    }
}
