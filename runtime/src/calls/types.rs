//! Types of values in calls, and their comparison with functions of IR.
//!
//! A front end does not pass a struct as such: it passes the form that the x86-64 psABI prescribes,
//! two registers, or a copy in memory. Two front ends may write the same call in different ways
//! (for two `float`s clang has `<2 x float>`, rustc `double`). So types are compared as *pieces*;
//! numbers and pointers are one piece each, and compared as they are written.
//!
//! | value | pieces |
//! |---|---|
//! | a number or pointer | itself |
//! | a struct of at most 16 bytes | one for each eight bytes: an integer if one of its fields there is no float, else `float`, `double` or `<2 x float>` |
//! | such a struct for which registers do not suffice | `ptr byval(N)` |
//! | a larger one | `ptr byval(N)`; as a result `void`, and `ptr sret(N)` for the first argument |
//!
//! # `i1` for the `bool` of a struct
//! In memory, and in Rust's and C's structs, a `bool` is eight bits that are 0 or 1. IR leaves the
//! bits above an `i1` undefined. So such a parameter agrees, as its function reads one bit, and so
//! does a result that is a single `i1`, whose other bits are cleared (`codegen/src/flags.rs`). A
//! result with other parts, `{ i64, i1 }`, does not: clearing is not possible for a part
//! ([`FunctionType::undefined_bits`]). A parameter that is marked as extended to 32 bits does not
//! agree either: the bits behind a struct's field are arbitrary.
//!
//! Pure; LLVM's types come as text (`uruk_codegen` marks `byval` and `sret`).

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

/// A field of a struct, as passed in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leaf {
    /// An integer of this number of bytes.
    Int(u8),
    /// A byte that is 0 or 1.
    Bool,
    /// A pointer.
    Pointer,
    /// 4 bytes of a floating-point number.
    Float,
    /// 8 bytes of a floating-point number.
    Double,
}

impl Leaf {
    fn size(self) -> usize {
        match self {
            Leaf::Int(bytes) => bytes.into(),
            Leaf::Bool => 1,
            Leaf::Float => 4,
            Leaf::Pointer | Leaf::Double => 8,
        }
    }
}

/// How the caller fills the register above a small integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extend {
    /// Undefined.
    No,
    /// With the sign.
    Sign,
    /// With zeros.
    Zero,
}

/// The type of a value that is passed or returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueType(pub(super) Repr);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Repr {
    Scalar {
        ir: Cow<'static, str>,
        extend: Extend,
        /// Its form in a struct; `None` for types that cannot be a field, as `void`.
        leaf: Option<Leaf>,
    },
    Struct {
        size: usize,
        /// Its fields with their offsets.
        leaves: Vec<(usize, Leaf)>,
    },
}

impl ValueType {
    /// A value with a type of LLVM.
    pub const fn scalar(ir: &'static str, extend: Extend, leaf: Option<Leaf>) -> ValueType {
        ValueType(Repr::Scalar {
            ir: Cow::Borrowed(ir),
            extend,
            leaf,
        })
    }

    /// A value type read from LLVM's text.
    pub(crate) fn read(text: &str) -> ValueType {
        let (ir, extend) = extended(text);
        ValueType(Repr::Scalar {
            ir: Cow::Owned(ir.to_owned()),
            extend,
            leaf: None,
        })
    }

    /// A struct of `size` bytes with these fields, given with their offsets.
    pub fn structure(size: usize, fields: &[(usize, ValueType)]) -> ValueType {
        let mut leaves = Vec::new();
        for (at, field) in fields {
            field.add_leaves(*at, &mut leaves);
        }
        ValueType(Repr::Struct { size, leaves })
    }

    /// An array, whose elements are treated as fields of a struct.
    pub fn array(size: usize, count: usize, element: &ValueType) -> ValueType {
        let each = size.checked_div(count).unwrap_or(0);
        let fields: Vec<_> = (0..count).map(|i| (i * each, element.clone())).collect();
        ValueType::structure(size, &fields)
    }

    fn add_leaves(&self, at: usize, to: &mut Vec<(usize, Leaf)>) {
        match &self.0 {
            Repr::Scalar { leaf, .. } => to.extend(leaf.map(|leaf| (at, leaf))),
            Repr::Struct { leaves, .. } => {
                to.extend(leaves.iter().map(|(offset, leaf)| (at + offset, *leaf)));
            }
        }
    }
}

/// One part of a value as a call passes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A value of this type; its extension.
    Exact(Cow<'static, str>, Extend),
    /// Eight bytes of a struct in an integer register, of which `bytes` are used.
    Integer { bytes: usize, only: Option<Only> },
    /// Eight bytes of a struct in a vector register.
    Vector { floats: usize, double: bool },
    /// A copy on the stack.
    ByVal(usize),
    /// The address of the result.
    SRet(usize),
}

/// The only field in an integer register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    Pointer,
    Bool,
}

/// The receiver of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// A function of IR.
    ToIr,
    /// Its caller, as a single part.
    BackAlone,
    /// Its caller, with other parts; or a function of the host, called by IR.
    Otherwise,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Exact(ir, _) => f.write_str(ir),
            Piece::Integer {
                only: Some(Only::Pointer),
                ..
            } => f.write_str("ptr"),
            Piece::Integer { bytes, .. } => write!(f, "i{}", bytes * 8),
            Piece::Vector { double: true, .. } => f.write_str("double"),
            Piece::Vector { floats: 1, .. } => f.write_str("float"),
            Piece::Vector { .. } => f.write_str("<2 x float>"),
            Piece::ByVal(size) => write!(f, "ptr byval({size})"),
            Piece::SRet(size) => write!(f, "ptr sret({size})"),
        }
    }
}

impl Piece {
    /// Whether LLVM's `text`, with this extension, is passed like this.
    fn agrees(&self, text: &str, extend: Extend, passed: Passed) -> bool {
        match self {
            Piece::Integer { bytes, only } => {
                let width = text.strip_prefix('i').and_then(|bits| bits.parse().ok());
                let is_one_bit = text == "i1" && *only == Some(Only::Bool);
                let fits = (text == "ptr" && *only == Some(Only::Pointer))
                    || width.is_some_and(|bits: usize| bits <= 64 && bits >= bytes * 8)
                    || is_one_bit && passed != Passed::Otherwise;
                let is_extended = extend != Extend::No && width < Some(32);
                fits && !(is_extended && passed == Passed::ToIr)
            }
            Piece::Vector {
                floats: 2,
                double: false,
            } => matches!(text, "<2 x float>" | "double"),
            _ => self.to_string() == text,
        }
    }
}

/// Remaining argument registers.
struct Registers {
    general: usize,
    vector: usize,
}

/// The type of a function, as passed in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionType {
    /// The type of its result.
    pub result: ValueType,
    /// The types of its parameters.
    pub parameters: Vec<ValueType>,
}

impl FunctionType {
    /// Parses a type as LLVM writes it: `i64 (ptr, double)`. `None` if it is invalid.
    ///
    /// ```
    /// let ty = uruk::FunctionType::parse("i64 (ptr, double)").expect("well written");
    /// assert_eq!(ty.to_string(), "i64 (ptr, double)");
    /// assert_eq!(ty.parameters.len(), 2);
    /// ```
    pub fn parse(text: &str) -> Option<FunctionType> {
        let (result, parameters) = split(text)?;
        Some(FunctionType {
            result: ValueType::read(result),
            parameters: parameters.into_iter().map(ValueType::read).collect(),
        })
    }

    /// The pieces of the result, and of the parameters.
    pub(crate) fn pieces(&self) -> (Vec<Piece>, Vec<Piece>) {
        let mut left = Registers {
            general: 6,
            vector: 8,
        };
        let mut parameters = Vec::new();
        let mut result = match &self.result.0 {
            Repr::Struct { size, .. } if *size > 16 => {
                left.general -= 1;
                parameters.push(Piece::SRet(*size));
                Vec::new()
            }
            Repr::Struct { size, leaves } => eightbytes(*size, leaves),
            Repr::Scalar { ir, .. } if ir == "void" => Vec::new(),
            Repr::Scalar { ir, extend, .. } => vec![Piece::Exact(ir.clone(), *extend)],
        };
        result.shrink_to_fit();
        for parameter in &self.parameters {
            left.pass(parameter, &mut parameters);
        }
        (result, parameters)
    }

    /// Whether a function of IR with this LLVM type is called this way.
    pub(crate) fn agrees(&self, actual: &str) -> bool {
        self.compare(actual, Passed::ToIr, Passed::BackAlone)
    }

    /// Whether a function of the host is called this way through a declaration with this LLVM type.
    pub(super) fn agrees_with_declared(&self, declared: &str) -> bool {
        self.compare(declared, Passed::Otherwise, Passed::Otherwise)
    }

    fn compare(&self, actual: &str, given: Passed, returned: Passed) -> bool {
        let actual = without_spaces(actual);
        let Some((result, parameters)) = split(&actual) else {
            return false;
        };
        let (pieces, passed) = self.pieces();
        let agree = |pieces: &[Piece], texts: &[(Cow<'_, str>, Extend)], how: Passed| {
            let mut both = pieces.iter().zip(texts);
            pieces.len() == texts.len()
                && both.all(|(piece, (text, extend))| piece.agrees(text, *extend, how))
        };
        let struct_like = |piece: &Piece| !matches!(piece, Piece::Exact(..));
        let has_structs = passed.iter().chain(&pieces).any(struct_like);
        let flat = |text| -> Vec<_> {
            let (text, extend) = extended(text);
            let parts = match has_structs {
                true => members(text),
                false => vec![Cow::Borrowed(text)],
            };
            parts.into_iter().map(|part| (part, extend)).collect()
        };
        let result = match result {
            "void" => Vec::new(),
            one => flat(one),
        };
        let parameters: Vec<_> = parameters.into_iter().flat_map(flat).collect();
        let returned = if pieces.len() > 1 {
            Passed::Otherwise
        } else {
            returned
        };
        agree(&pieces, &result, returned) && agree(&passed, &parameters, given)
    }

    /// The reason if a function of IR does not agree because bits of its result are undefined.
    pub(crate) fn undefined_bits(&self, actual: &str) -> Option<&'static str> {
        let (result, parameters) = split(actual)?;
        let result = extended(result).0;
        let parts = members(result);
        let has_flags = parts.len() > 1 && parts.contains(&Cow::Borrowed("i1"));
        let bytes: Vec<&str> = parts
            .iter()
            .map(|part| if part == "i1" { "i8" } else { part })
            .collect();
        let mended = format!("{{ {} }} ({})", bytes.join(", "), parameters.join(", "));
        (has_flags && self.agrees(&mended)).then_some(
            "; the bits above an `i1` in a struct are undefined, so its `bool` is returned as `i8`",
        )
    }
}

impl fmt::Display for FunctionType {
    /// Formats the type as clang writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (result, parameters) = self.pieces();
        f.write_str(&result_text(&result))?;
        let each: Vec<String> = parameters.iter().map(Piece::to_string).collect();
        write!(f, " ({})", each.join(", "))
    }
}

/// The type that has these pieces.
pub(super) fn result_text(pieces: &[Piece]) -> String {
    match pieces {
        [] => String::from("void"),
        [one] => one.to_string(),
        several => {
            let each: Vec<String> = several.iter().map(Piece::to_string).collect();
            format!("{{ {} }}", each.join(", "))
        }
    }
}

impl Registers {
    /// Passes a value: its pieces are appended to `to`.
    fn pass(&mut self, value: &ValueType, to: &mut Vec<Piece>) {
        match &value.0 {
            Repr::Scalar { ir, .. } if ir == "void" => {}
            Repr::Scalar { ir, extend, .. } => {
                match &**ir {
                    "float" | "double" => self.vector = self.vector.saturating_sub(1),
                    vector if vector.starts_with('<') => {
                        self.vector = self.vector.saturating_sub(1);
                    }
                    "i128" => self.general -= if self.general >= 2 { 2 } else { 0 },
                    _ => self.general = self.general.saturating_sub(1),
                }
                to.push(Piece::Exact(ir.clone(), *extend));
            }
            Repr::Struct { size, .. } if *size > 16 => to.push(Piece::ByVal(*size)),
            Repr::Struct { size, leaves } => {
                let pieces = eightbytes(*size, leaves);
                let general = pieces
                    .iter()
                    .filter(|piece| matches!(piece, Piece::Integer { .. }))
                    .count();
                let vector = pieces.len() - general;
                if general > self.general || vector > self.vector {
                    return to.push(Piece::ByVal(*size));
                }
                self.general -= general;
                self.vector -= vector;
                to.extend(pieces);
            }
        }
    }
}

/// The pieces of a struct in registers.
fn eightbytes(size: usize, leaves: &[(usize, Leaf)]) -> Vec<Piece> {
    let of = |start: usize| {
        let here = leaves
            .iter()
            .filter(move |(at, _)| (start..start + 8).contains(at));
        let here: Vec<_> = here.collect();
        let is_integer = |leaf: &Leaf| matches!(leaf, Leaf::Int(_) | Leaf::Bool | Leaf::Pointer);
        if here.iter().any(|(_, leaf)| is_integer(leaf)) {
            // Like clang: the size of a single field, else up to the struct's end.
            let bytes = match &here[..] {
                [(at, leaf)] if *at == start => leaf.size(),
                _ => (size - start).min(8),
            };
            let only = match &here[..] {
                [(_, Leaf::Pointer)] => Some(Only::Pointer),
                [(at, Leaf::Bool)] if *at == start => Some(Only::Bool),
                _ => None,
            };
            Piece::Integer { bytes, only }
        } else {
            let double = here.iter().any(|(_, leaf)| *leaf == Leaf::Double);
            let last = here.iter().map(|(at, _)| at - start).max();
            let floats = if last >= Some(4) { 2 } else { 1 };
            Piece::Vector { floats, double }
        }
    };
    (0..size).step_by(8).map(of).collect()
}

/// Splits LLVM's text of a function's type into the result and the parameters.
pub(crate) fn split(text: &str) -> Option<(&str, Vec<&str>)> {
    let (result, rest) = text.split_once(" (")?;
    let inner = rest.strip_suffix(')')?;
    Some((result, list(inner)))
}

/// Removes the address spaces of pointers, which are passed like all others, except those that
/// x86-64 addresses through a segment.
fn without_spaces(text: &str) -> Cow<'_, str> {
    const SEGMENTS: RangeInclusive<u32> = 256..=258;
    let mut parts = text.split(" addrspace(");
    let mut plain = Cow::Borrowed(parts.next().unwrap_or_default());
    for part in parts {
        let (number, rest) = part.split_once(')').unwrap_or((part, ""));
        match number.parse() {
            Ok(number) if !SEGMENTS.contains(&number) => plain.to_mut().push_str(rest),
            _ => plain.to_mut().extend([" addrspace(", part]),
        }
    }
    plain
}

/// Splits a type and its extension attribute.
pub(super) fn extended(text: &str) -> (&str, Extend) {
    match text.rsplit_once(' ') {
        Some((ty, "signext")) => (ty, Extend::Sign),
        Some((ty, "zeroext")) => (ty, Extend::Zero),
        _ => (text, Extend::No),
    }
}

/// The values in which LLVM passes an aggregate in registers: members of structs and arrays one by
/// one.
fn members(text: &str) -> Vec<Cow<'_, str>> {
    let inner = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    if let Some(inner) = inner {
        let each = list(inner.trim()).into_iter();
        return each.flat_map(members).collect();
    }
    let array = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some((count, element)) = array.and_then(|array| array.split_once(" x "))
        && let Ok(count @ 0..=16) = count.parse::<usize>()
    {
        return (0..count).flat_map(|_| members(element)).collect();
    }
    vec![Cow::Borrowed(text)]
}

/// The members of a list of types, which may contain lists.
pub(crate) fn list(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'{' | b'[' | b'<' => depth += 1,
            b')' | b'}' | b']' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests;
