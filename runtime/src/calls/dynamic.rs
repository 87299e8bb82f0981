//! Calls of functions whose types are known at run time, for tools and interpreters.
//!
//! Values are compared with the function's parameter types, as LLVM writes them, and placed as in
//! the x86-64 psABI. Integers and pointers use six registers, floating-point numbers eight; the
//! rest and copies of structs on the stack. Types without support (vectors, `x86_fp80`, aggregates
//! of more than two parts) are errors.

use std::sync::Arc;
use std::time::Duration;

use uruk_roots::Inside;
use uruk_stubs::{Values, call_values};

use super::types::{Extend, FunctionType, extended, list, split};
use crate::api::dylib::Dylib;
use crate::api::func::Func;
use crate::error::Error;
use crate::error::trap::Trap;
use crate::guarded::guard;
use crate::guarded::passes::Limits;

/// An argument or result of a [`DynFunc`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Val {
    /// No value, for a function that returns `void`.
    Void,
    /// `i1`.
    Bool(bool),
    /// `i8`.
    I8(i8),
    /// `i16`.
    I16(i16),
    /// `i32`.
    I32(i32),
    /// `i64`.
    I64(i64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
    /// `ptr`.
    Ptr(*mut ()),
    /// A struct in memory: `ptr byval(T)`, or the result by `ptr sret(T)`.
    Bytes(Vec<u8>),
    /// A struct in registers, `{ i64, double }`, of at most two parts.
    Parts(Vec<Val>),
}

/// A type of one value, as LLVM writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    /// An integer of this number of bytes, extended as given.
    Int(u8, Extend),
    F32,
    F64,
    Ptr,
    ByVal(usize),
    SRet(usize),
    Parts(Vec<Type>),
}

impl Type {
    pub(super) fn parse(text: &str) -> Option<Type> {
        let in_memory = |mark: &str| {
            let rest = text.strip_prefix("ptr ")?.strip_prefix(mark)?;
            rest.strip_prefix('(')?.strip_suffix(')')?.parse().ok()
        };
        if let Some(inner) = text.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
            let parts = list(inner.trim());
            let parts: Vec<Type> = parts.into_iter().map(Type::parse).collect::<Option<_>>()?;
            let nested = parts.iter().any(|part| matches!(part, Type::Parts(_)));
            return (parts.len() <= 2 && !nested).then_some(Type::Parts(parts));
        }
        let (text, extend) = extended(text);
        Some(match text {
            "i1" => Type::Bool,
            "i8" => Type::Int(1, extend),
            "i16" => Type::Int(2, extend),
            "i32" => Type::Int(4, extend),
            "i64" => Type::Int(8, extend),
            "float" => Type::F32,
            "double" => Type::F64,
            "ptr" => Type::Ptr,
            _ => match in_memory("byval") {
                Some(size) => Type::ByVal(size),
                None => Type::SRet(in_memory("sret")?),
            },
        })
    }

    fn is_vector(&self) -> bool {
        matches!(self, Type::F32 | Type::F64)
    }

    /// The value's bits, if it is of this type.
    pub(super) fn bits(&self, value: &Val) -> Option<u64> {
        Some(match (self, value) {
            (Type::Bool, Val::Bool(value)) => u64::from(*value),
            (Type::Int(1, Extend::Zero), Val::I8(value)) => u64::from(*value as u8),
            (Type::Int(2, Extend::Zero), Val::I16(value)) => u64::from(*value as u16),
            (Type::Int(1, _), Val::I8(value)) => *value as u64,
            (Type::Int(2, _), Val::I16(value)) => *value as u64,
            (Type::Int(4, _), Val::I32(value)) => *value as u64,
            (Type::Int(8, _), Val::I64(value)) => *value as u64,
            (Type::F32, Val::F32(value)) => u64::from(value.to_bits()),
            (Type::F64, Val::F64(value)) => value.to_bits(),
            (Type::Ptr, Val::Ptr(value)) => value.expose_provenance() as u64,
            _ => return None,
        })
    }

    /// The value of a register's bits.
    pub(super) fn value(&self, bits: u64) -> Val {
        match self {
            Type::Bool => Val::Bool(bits & 1 != 0),
            Type::Int(1, _) => Val::I8(bits as i8),
            Type::Int(2, _) => Val::I16(bits as i16),
            Type::Int(4, _) => Val::I32(bits as i32),
            Type::F32 => Val::F32(f32::from_bits(bits as u32)),
            Type::F64 => Val::F64(f64::from_bits(bits)),
            Type::Ptr => Val::Ptr(std::ptr::with_exposed_provenance_mut(bits as usize)),
            _ => Val::I64(bits as i64),
        }
    }
}

/// The prepared arguments of a call.
#[derive(Default)]
struct Call {
    values: Values,
    general: usize,
    vector: usize,
    stack: StackWords,
}

/// Words of a call's stack. Few lie in the frame, so a host that leaves the call by `longjmp` leaks
/// no memory.
#[derive(Default)]
struct StackWords {
    few: [u64; 32],
    count: usize,
    /// All of them, if they exceed `few`.
    many: Vec<u64>,
}

impl StackWords {
    fn push(&mut self, word: u64) {
        match self.few.get_mut(self.count) {
            Some(place) => {
                *place = word;
                self.count += 1;
            }
            None => {
                if self.many.is_empty() {
                    self.many.extend(self.few);
                }
                self.many.push(word);
            }
        }
    }

    fn all(&self) -> &[u64] {
        match self.many.is_empty() {
            true => &self.few[..self.count],
            false => &self.many,
        }
    }
}

impl Call {
    fn word(&mut self, bits: u64, vector: bool) {
        let (used, registers): (_, &mut [u64]) = match vector {
            true => (&mut self.vector, &mut self.values.vector),
            false => (&mut self.general, &mut self.values.general),
        };
        match registers.get_mut(*used) {
            Some(register) => {
                *register = bits;
                *used += 1;
            }
            None => self.stack.push(bits),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.stack.push(u64::from_le_bytes(word));
        }
    }
}

/// A function with its type, called with values that are compared with it
/// ([`Dylib::dynamic_function`]).
#[derive(Clone)]
pub struct DynFunc {
    function: Func<()>,
    name: Arc<str>,
    text: Arc<str>,
    /// `None` if it returns nothing.
    result: Option<Type>,
    parameters: Arc<[Type]>,
}

impl std::fmt::Debug for DynFunc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DynFunc({}: {})", self.name, self.text)
    }
}

impl DynFunc {
    pub(crate) fn new(function: Func<()>, name: &str, text: &str) -> Result<DynFunc, Error> {
        let refuse = |why: &str| Error::Arguments {
            function: name.to_owned(),
            ty: text.to_owned(),
            why: why.to_owned(),
        };
        let (result, parameters) = split(text).ok_or_else(|| refuse("not a function's type"))?;
        let of = |text: &str| {
            Type::parse(text)
                .ok_or_else(|| refuse(&format!("{text} cannot be passed by value here")))
        };
        let parameters: Vec<Type> = parameters.into_iter().map(of).collect::<Result<_, _>>()?;
        let result = match result {
            "void" => None,
            result => Some(of(result)?),
        };
        Ok(DynFunc {
            function,
            name: name.into(),
            text: text.into(),
            result,
            parameters: parameters.into(),
        })
    }

    /// Its type, as LLVM writes it.
    pub fn ty(&self) -> &str {
        &self.text
    }

    fn refuse(&self, why: String) -> Error {
        Error::Arguments {
            function: self.name.to_string(),
            ty: self.text.to_string(),
            why,
        }
    }

    /// Places values as the function expects them; also returns memory for the result, if it needs
    /// any.
    fn prepare(&self, values: &[Val]) -> Result<(Call, Option<Vec<u8>>), Error> {
        let mut call = Call::default();
        let mut memory = None;
        let mut taken = self.parameters.iter().peekable();
        if let Some(Type::SRet(size)) = taken.peek() {
            let mut bytes = vec![0; *size];
            call.word(bytes.as_mut_ptr().expose_provenance() as u64, false);
            memory = Some(bytes);
            taken.next();
        }
        let count = taken.len();
        if values.len() != count {
            let given = values.len();
            return Err(self.refuse(format!("{count} values are needed, {given} were given")));
        }
        for (index, (ty, value)) in taken.zip(values).enumerate() {
            let wrong = || self.refuse(format!("value {index} is {value:?}"));
            match (ty, value) {
                (Type::ByVal(size), Val::Bytes(bytes)) if bytes.len() == *size => call.bytes(bytes),
                (Type::Parts(types), Val::Parts(parts)) if types.len() == parts.len() => {
                    for (ty, part) in types.iter().zip(parts) {
                        call.word(ty.bits(part).ok_or_else(wrong)?, ty.is_vector());
                    }
                }
                _ => call.word(ty.bits(value).ok_or_else(wrong)?, ty.is_vector()),
            }
        }
        Ok((call, memory))
    }

    fn enter(&self, call: &mut Call) {
        let _inside = Inside::begin();
        let (values, stack) = (&raw mut call.values, call.stack.all());
        // SAFETY: a slot holds ready code or a trampoline that leads to it; values were compared
        // with its type, and the rest was promised on acquiring.
        unsafe { call_values(self.function.entry(), values, stack.as_ptr(), stack.len()) };
    }

    fn result(&self, call: &Call, memory: Option<Vec<u8>>) -> Val {
        let (mut general, mut vector) = (0, 0);
        let mut next = |ty: &Type| {
            let (used, from) = match ty.is_vector() {
                true => (&mut vector, &call.values.vector_result),
                false => (&mut general, &call.values.general_result),
            };
            *used += 1;
            ty.value(from[*used - 1])
        };
        match (&self.result, memory) {
            (None, Some(bytes)) => Val::Bytes(bytes),
            (None, None) => Val::Void,
            (Some(Type::Parts(parts)), _) => Val::Parts(parts.iter().map(next).collect()),
            (Some(ty), _) => next(ty),
        }
    }

    /// Calls the published version.
    ///
    /// # Errors
    /// [`Error::Arguments`]: the values do not fit its parameters.
    pub fn call(&self, values: &[Val]) -> Result<Val, Error> {
        let (mut call, memory) = self.prepare(values)?;
        self.enter(&mut call);
        Ok(self.result(&call, memory))
    }

    /// Like [`DynFunc::call`]; errors of JIT'd code are returned as a value, as by
    /// [`Func::call_guarded`](Func). `limit` is the time limit.
    ///
    /// # Errors
    /// [`Error::Arguments`], [`Error::Trap`].
    pub fn call_guarded(&self, values: &[Val], limit: Option<Duration>) -> Result<Val, Error> {
        self.call_limited(values, limit, None)
    }

    /// Like [`DynFunc::call_guarded`], with a fuel limit, too
    /// ([`Func::with_fuel`](crate::Func::with_fuel)).
    ///
    /// # Errors
    /// Those of [`DynFunc::call_guarded`].
    pub fn call_limited(
        &self,
        values: &[Val],
        limit: Option<Duration>,
        fuel: Option<u64>,
    ) -> Result<Val, Error> {
        self.run(self.prepare(values)?, limit, fuel)
    }

    /// Like [`DynFunc::call_limited`]; the values are dropped before the call begins. So a host
    /// that leaves the call by `longjmp` leaks none of their memory.
    ///
    /// # Errors
    /// Those of [`DynFunc::call_limited`].
    pub fn call_with(
        &self,
        values: Vec<Val>,
        limit: Option<Duration>,
        fuel: Option<u64>,
    ) -> Result<Val, Error> {
        let prepared = self.prepare(&values)?;
        drop(values);
        self.run(prepared, limit, fuel)
    }

    fn run(
        &self,
        (mut call, memory): (Call, Option<Vec<u8>>),
        limit: Option<Duration>,
        fuel: Option<u64>,
    ) -> Result<Val, Error> {
        let limits = Limits {
            time: limit,
            fuel,
            looks: self.function.looks(),
        };
        let inside = Inside::begin();
        let ended = guard::run(limits, || {
            let (values, stack) = (&raw mut call.values, call.stack.all());
            // SAFETY: as in `enter`.
            unsafe { call_values(self.function.entry(), values, stack.as_ptr(), stack.len()) };
        });
        drop(inside);
        ended.map_err(|trap: Trap| Error::Trap(Box::new(trap)))?;
        Ok(self.result(&call, memory))
    }
}

/// The type of a function of IR, after comparing it with `ty`.
pub(crate) fn compared(dylib: &Dylib, name: &str, ty: &str) -> Result<Option<String>, Error> {
    let actual = dylib.type_of(name)?;
    let wanted = FunctionType::parse(ty);
    match actual {
        Some(actual) if !wanted.is_some_and(|wanted| wanted.agrees(&actual)) => {
            Err(Error::Signature {
                function: name.to_owned(),
                wanted: ty.to_owned(),
                actual,
                why: None,
            })
        }
        actual => Ok(actual),
    }
}
