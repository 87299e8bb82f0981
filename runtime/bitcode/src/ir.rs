//! LLVM IR as plain data: a module's tables, and one body.
//!
//! Nothing is interpreted here: instructions are those of LLVM's language, with numbers in place of
//! pointers. Values of a body have one sequence of numbers: the module's globals, the module's
//! constants, then, for each body anew, its parameters, its constants and its results.

use std::ops::Range;

mod attributes;
mod globals;

pub use attributes::{Attribute, Attributes};
pub use globals::{ComdatKind, Details, Global, GlobalKind, Linkage, Unnamed, Visibility};

/// A type, by its place in [`Module::types`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A value of a body, or of its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A block of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// A list of attributes, by its place in [`Module::attributes`]; none is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AttributesId(pub u32);

impl TypeId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ValueId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Type {
    /// `void`.
    Void,
    /// `half`.
    Half,
    /// `bfloat`.
    BFloat,
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// `x86_fp80`.
    X86Fp80,
    /// `fp128`.
    Fp128,
    /// An integer of so many bits.
    Integer(u32),
    /// `ptr` in an address space.
    Pointer(u32),
    /// An array: element count and type.
    Array(u64, TypeId),
    /// A vector: element count and type, and whether the count is a factor (`vscale`).
    Vector(u32, TypeId, bool),
    /// A struct: its fields, and whether it is packed.
    Struct(Vec<TypeId>, bool),
    /// A function: its result, its parameters, and whether it is variadic.
    Function(TypeId, Vec<TypeId>, bool),
    /// `label`.
    Label,
    /// `metadata`.
    Metadata,
    /// `token`.
    Token,
    /// Another type: opaque structs, target types, types of other machines.
    Other,
}

/// A constant that is no global.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constant {
    /// All zeros.
    Null,
    /// `undef`.
    Undef,
    /// `poison`.
    Poison,
    /// An integer, in words of 64 bits, the low one first; sign-extended to whole words.
    Integer(Words),
    /// A floating-point number's bits.
    Float(Words),
    /// An aggregate or vector of constants.
    Aggregate(Box<[ValueId]>),
    /// An array or vector of simple numbers, one bit pattern each.
    Data(Box<[u64]>),
    /// `getelementptr`: type, base and indices.
    Offset(TypeId, Box<[ValueId]>),
    /// A cast.
    Cast(CastOp, ValueId),
    /// An operation on two constants.
    Binary(BinaryOp, ValueId, ValueId),
    /// The address of a block of a function.
    Label(ValueId, BlockId),
    /// Inline assembly.
    Assembly(Box<Assembly>),
    /// Another constant.
    Other,
}

/// Inline assembly.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assembly {
    /// Its instructions.
    pub text: Box<str>,
    /// Places of operands and results, and clobbers.
    pub constraints: Box<str>,
    /// Whether it aligns the stack, may unwind, or has Intel's syntax.
    pub is_special: bool,
}

/// Words of a number.
pub type Words = smallvec::SmallVec<[u64; 2]>;

/// Casts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum CastOp {
    Trunc,
    ZExt,
    SExt,
    FpToUi,
    FpToSi,
    UiToFp,
    SiToFp,
    FpTrunc,
    FpExt,
    PtrToInt,
    IntToPtr,
    BitCast,
    AddrSpaceCast,
    PtrToAddr,
}

/// Operations on two values; the operands' type distinguishes integers and floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    UDiv,
    /// Of floats: division.
    SDiv,
    URem,
    /// Of floats: remainder.
    SRem,
    Shl,
    LShr,
    AShr,
    And,
    Or,
    Xor,
}

/// Atomic orderings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Ordering {
    NotAtomic,
    Unordered,
    Monotonic,
    Acquire,
    Release,
    AcqRel,
    SeqCst,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its attributes.
    pub attributes: AttributesId,
    /// The calling convention.
    pub convention: u32,
    /// The type of the function.
    pub function: TypeId,
    /// `tail`.
    pub tail: bool,
    /// `musttail`.
    pub must_tail: bool,
    /// Bits of fast-math flags, in bitcode's encoding.
    pub fast_math: u32,
    /// Whether it has operand bundles.
    pub has_bundles: bool,
}

/// The operation of an instruction. Its operands are in [`Body::operands`]; for types see
/// [`Body::type_of`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Two operands; with fast-math flags in bitcode's encoding, 0 for integers.
    Binary(BinaryOp, u32),
    /// One operand; with flags as well.
    FNeg(u32),
    /// One operand; the result's type is the target.
    Cast(CastOp),
    /// Base, then indices; the source element type.
    GetElementPtr(TypeId),
    /// The aggregate.
    ExtractValue(Box<[u32]>),
    /// The aggregate, and the inserted value.
    InsertValue(Box<[u32]>),
    /// If true, if false, condition.
    Select,
    /// Vector, index.
    ExtractElement,
    /// Vector, element, index.
    InsertElement,
    /// Two vectors and a mask, a constant.
    ShuffleVector,
    /// Two operands, and LLVM's number of the predicate: below 16 for floats, from 32 for integers.
    Compare(u32),
    /// Operands, with the blocks they come from.
    Phi(Box<[BlockId]>),
    /// The element count; the element type, and the alignment in bytes, 0 if it is the type's.
    Alloca {
        /// The allocated type.
        of: TypeId,
        /// The alignment in bytes.
        align: u32,
        /// Whether it is for arguments (`inalloca`), or a Swift error.
        is_special: bool,
    },
    /// The address.
    Load {
        /// The alignment in bytes.
        align: u32,
        /// Whether it is volatile.
        volatile: bool,
        /// The atomic ordering.
        ordering: Ordering,
    },
    /// The address, then the value.
    Store {
        /// The alignment in bytes.
        align: u32,
        /// Whether it is volatile.
        volatile: bool,
        /// The atomic ordering.
        ordering: Ordering,
    },
    /// Address, expected, new.
    CompareExchange {
        /// The alignment in bytes, 0 if it is the type's size.
        align: u32,
        /// Whether it is volatile.
        volatile: bool,
    },
    /// Address, value; LLVM's number of the operation in bitcode.
    Rmw {
        /// The operation.
        op: u32,
        /// The alignment in bytes, 0 if it is the type's size.
        align: u32,
        /// Whether it is volatile.
        volatile: bool,
    },
    /// A fence.
    Fence(Ordering),
    /// The callee, then arguments.
    Call(Call),
    /// Like `Call`; the normal destination, and the landing pad.
    Invoke(Call, [BlockId; 2]),
    /// Operands: one for each clause; whether it is a cleanup, and which clauses are filters.
    LandingPad(bool, Box<[bool]>),
    /// The exception.
    Resume,
    /// The list.
    VaArg,
    /// The value.
    Freeze,
    /// Nothing, or a value.
    Return,
    /// The target block.
    Jump(BlockId),
    /// The condition; if true, if false.
    Branch([BlockId; 2]),
    /// The value, then the cases' values; the default block, then the cases' blocks.
    Switch(Box<[BlockId]>),
    /// The address.
    IndirectBranch(Box<[BlockId]>),
    /// Never reached.
    Unreachable,
    /// An instruction that only LLVM reads.
    Other(&'static str),
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its operation.
    pub op: Op,
    /// Its operands: a range of [`Body::operands`].
    pub operands: Range<u32>,
    /// Its result, unless it is void.
    pub result: Option<ValueId>,
    /// Its debug location: line and column, 0 for none.
    pub line: (u32, u32),
}

/// A body.
#[derive(Debug, Clone, Default)]
pub struct Body {
    /// The first of its parameters; values before it are the module's.
    pub first: u32,
    /// Number of parameters.
    pub parameters: u32,
    /// Types of its own values: parameters, constants, results.
    pub types: Vec<TypeId>,
    /// Its constants, which follow its parameters.
    pub constants: Vec<Constant>,
    /// Instructions of each block.
    pub blocks: Vec<Range<u32>>,
    /// All instructions.
    pub instructions: Vec<Instruction>,
    /// Operands of all; the values of a call's bundles precede the call's own.
    pub operands: Vec<ValueId>,
    /// The instruction of each result, in order.
    pub makers: Vec<u32>,
    /// Whether other functions use addresses of its blocks.
    pub labels_elsewhere: bool,
}

/// The tables of a module; its bodies are read one by one.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// Types.
    pub types: Vec<Type>,
    /// Globals, the first values.
    pub globals: Vec<Global>,
    /// Constants of the module, the next values, with their types.
    pub constants: Vec<(TypeId, Constant)>,
    /// Lists of attributes; the first is empty.
    pub attributes: Vec<Attributes>,
    /// Names of globals.
    pub strings: Vec<u8>,
    /// The type of addresses in address space 0, if the module has it.
    pub pointer: Option<TypeId>,
    /// The module's data layout string.
    pub layout: Box<str>,
    /// The target triple; empty if it has none.
    pub triple: Box<str>,
    /// Module-level assembly; empty if it has none.
    pub assembly: Box<str>,
    /// Linking data of each global.
    pub details: Vec<Details>,
    /// Groups of definitions.
    pub comdats: Vec<ComdatKind>,
    /// Names of sections.
    pub sections: Vec<Box<str>>,
    /// Names of collectors.
    pub collectors: Vec<Box<str>>,
    /// Whether structs have names, which are not kept.
    pub names_structs: bool,
    /// The major version of LLVM that wrote it.
    pub release: u32,
}

/// The definition of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition<'a> {
    /// A global, by its number.
    Global(u32),
    /// A constant.
    Constant(&'a Constant),
    /// A parameter, by its number.
    Parameter(u32),
    /// The result of an instruction, by its index among the body's own values.
    Result(u32),
}

impl Module {
    /// A global's name.
    pub fn name(&self, global: &Global) -> &str {
        let range = global.name.start as usize..global.name.end as usize;
        let bytes = self.strings.get(range).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// A global's name as bytes, which need not be UTF-8.
    pub fn raw_name(&self, global: &Global) -> &[u8] {
        let range = global.name.start as usize..global.name.end as usize;
        self.strings.get(range).unwrap_or_default()
    }

    /// The type with that number; [`Type::Other`] if there is none.
    pub fn ty(&self, id: TypeId) -> &Type {
        self.types.get(id.index()).unwrap_or(&Type::Other)
    }

    /// The attributes with that number.
    pub fn attributes(&self, id: AttributesId) -> &Attributes {
        const NONE: &Attributes = &Attributes {
            function: Vec::new(),
            result: Vec::new(),
            parameters: Vec::new(),
        };
        self.attributes.get(id.0 as usize).unwrap_or(NONE)
    }
}

impl Body {
    /// Whether an instruction of it has a source location.
    pub fn has_lines(&self) -> bool {
        let mut all = self.instructions.iter();
        all.any(|instruction| instruction.line != (0, 0))
    }

    /// The definition of a value; `None` for an unused number.
    pub fn definition<'a>(&'a self, module: &'a Module, value: ValueId) -> Option<Definition<'a>> {
        let globals = module.globals.len() as u32;
        if value.0 < globals {
            return Some(Definition::Global(value.0));
        }
        if value.0 < self.first {
            let at = (value.0 - globals) as usize;
            return module
                .constants
                .get(at)
                .map(|(_, it)| Definition::Constant(it));
        }
        let own = value.0 - self.first;
        if own < self.parameters {
            return Some(Definition::Parameter(own));
        }
        if let Some(constant) = self.constants.get((own - self.parameters) as usize) {
            return Some(Definition::Constant(constant));
        }
        ((own as usize) < self.types.len()).then_some(Definition::Result(own))
    }

    /// The type of a value.
    #[inline]
    pub fn type_of(&self, module: &Module, value: ValueId) -> Option<TypeId> {
        let globals = module.globals.len() as u32;
        if value.0 < globals {
            return module.pointer;
        }
        if value.0 < self.first {
            let constant = module.constants.get((value.0 - globals) as usize);
            return constant.map(|&(ty, _)| ty);
        }
        self.types.get((value.0 - self.first) as usize).copied()
    }

    /// The instruction whose result is a value.
    #[inline]
    pub fn maker(&self, value: ValueId) -> Option<&Instruction> {
        let results = self.first + self.parameters + self.constants.len() as u32;
        let maker = self.makers.get(value.0.checked_sub(results)? as usize)?;
        self.instructions.get(*maker as usize)
    }

    /// The values in the bundles of a call, by its index among the instructions.
    pub fn bundled(&self, instruction: usize) -> &[ValueId] {
        let before = instruction.checked_sub(1);
        let before = before.and_then(|it| self.instructions.get(it));
        let start = before.map_or(0, |it| it.operands.end as usize);
        let own = self.instructions.get(instruction);
        let end = own.map_or(start, |it| it.operands.start as usize);
        self.operands.get(start..end).unwrap_or_default()
    }

    /// The operands of an instruction.
    #[inline]
    pub fn operands_of(&self, instruction: &Instruction) -> &[ValueId] {
        let Range { start, end } = instruction.operands;
        &self.operands[start as usize..end as usize]
    }
}
