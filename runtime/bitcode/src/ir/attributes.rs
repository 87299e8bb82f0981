//! Attributes, as bitcode has them.

use super::TypeId;

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// One that is there or not; by LLVM's number in bitcode.
    Flag(u32),
    /// One with a number: alignment, dereferenceable bytes.
    Number(u32, u64),
    /// One with a type.
    Typed(u32, TypeId),
    /// One of text, with its value.
    Text(Box<str>, Box<str>),
}

/// Attributes of a function or call: of itself, of its result, of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Of the function.
    pub function: Vec<Attribute>,
    /// Of the result.
    pub result: Vec<Attribute>,
    /// Of parameters, by their number; those without any may be missing.
    pub parameters: Vec<(u32, Vec<Attribute>)>,
}
