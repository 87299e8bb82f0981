//! Attributes in bitcode's encoding.

use super::TypeId;

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// An attribute without a value; by LLVM's number in bitcode.
    Flag(u32),
    /// An attribute with a number: alignment, dereferenceable bytes.
    Number(u32, u64),
    /// An attribute with a type.
    Typed(u32, TypeId),
    /// An attribute with a name and a text value.
    Text(Box<str>, Box<str>),
}

/// Attributes of a function or call, of its result and of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Those of the function.
    pub function: Vec<Attribute>,
    /// Those of the result.
    pub result: Vec<Attribute>,
    /// Those of parameters, by their number; parameters without attributes may be missing.
    pub parameters: Vec<(u32, Vec<Attribute>)>,
}
