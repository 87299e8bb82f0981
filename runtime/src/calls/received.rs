//! Host functions whose types are known when they are defined, for interpreters and bindings.
//!
//! The name refers to a function of IR. It stores its arguments as words of 64 bits, and calls
//! [`receive`] with their address; the result is returned in the first word.

use std::fmt::Write;
use std::sync::Arc;

use super::dynamic::{Type, Val};
use super::host::{HostCode, HostFunction, finish, quoted};
use super::types::{Extend, FunctionType, split};
use crate::error::Error;
use crate::error::trap::HostError;
use crate::guarded::guard::Covered;

type HostBody = dyn Fn(&[Val]) -> Result<Val, HostError> + Send + Sync;

/// A function of the host with the types of its values.
pub(super) struct Receiver {
    /// `None` if it returns nothing.
    result: Option<Type>,
    parameters: Vec<Type>,
    body: Box<HostBody>,
}

/// An error: the result is of another type than the function's.
#[derive(Debug, thiserror::Error)]
#[error("a function of the host returns {ty}, and its result is {result}")]
struct WrongResult {
    ty: &'static str,
    result: String,
}

impl HostFunction {
    /// Makes a host function over values, with a type as LLVM writes it. Values are integers of 1,
    /// 8, 16, 32 and 64 bits, floating-point numbers of 32 and 64 bits, and pointers. `Err`, and a
    /// result of another type, end the enclosing guarded call, as with
    /// [`HostResult`](crate::HostResult).
    ///
    /// ```
    /// use uruk::{HostFunction, Val};
    ///
    /// let jit = uruk::Jit::new()?;
    /// let add = HostFunction::of_values("i32 (i32, i32)", |values| match values {
    ///     [Val::I32(a), Val::I32(b)] => Ok(Val::I32(a + b)),
    ///     _ => Ok(Val::Void),
    /// })?;
    /// jit.main().define_fns([("add", add)])?;
    /// jit.add_ir("m", "declare i32 @add(i32, i32)
    ///   define i32 @f(i32 %x) { %y = call i32 @add(i32 %x, i32 1) ret i32 %y }")?;
    /// // SAFETY: the function above.
    /// let f = unsafe { jit.main().dynamic_function("f")? };
    /// assert_eq!(f.call(&[Val::I32(41)])?, Val::I32(42));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Arguments`]: `ty` is no such type.
    pub fn of_values(
        ty: &str,
        body: impl Fn(&[Val]) -> Result<Val, HostError> + Send + Sync + 'static,
    ) -> Result<HostFunction, Error> {
        let refuse = |why: String| Error::Arguments {
            function: String::from("a function of the host"),
            ty: ty.to_owned(),
            why,
        };
        let not_a_type = || refuse(String::from("not a function's type"));
        let parsed = FunctionType::parse(ty).ok_or_else(not_a_type)?;
        let (result, parameters) = split(ty).ok_or_else(not_a_type)?;
        let of = |text: &str| {
            let ty = Type::parse(text).filter(|ty| word(ty).is_some());
            ty.ok_or_else(|| refuse(format!("{text} cannot be passed by value here")))
        };
        let parameters = parameters.into_iter().map(of);
        let receiver = Receiver {
            parameters: parameters.collect::<Result<_, _>>()?,
            result: match result {
                "void" => None,
                result => Some(of(result)?),
            },
            body: Box::new(body),
        };
        Ok(HostFunction {
            ty: parsed,
            code: HostCode::Receiving(Arc::new(receiver)),
        })
    }
}

/// The IR types to convert a value to a word and back, if supported.
fn word(ty: &Type) -> Option<(&'static str, &'static str)> {
    match ty {
        Type::Bool => Some(("i1", "zeroext")),
        Type::Int(1, extend) => Some(("i8", mark(*extend))),
        Type::Int(2, extend) => Some(("i16", mark(*extend))),
        Type::Int(4, extend) => Some(("i32", mark(*extend))),
        Type::Int(8, _) => Some(("i64", "")),
        Type::F32 => Some(("float", "")),
        Type::F64 => Some(("double", "")),
        Type::Ptr => Some(("ptr", "")),
        _ => None,
    }
}

fn mark(extend: Extend) -> &'static str {
    match extend {
        Extend::Sign => "signext",
        Extend::Zero => "zeroext",
        Extend::No => "",
    }
}

/// Writes the IR that computes `%wN` from `%aN`.
fn write_word(to: &mut String, index: usize, ir: &str) {
    let (from, word) = (format!("%a{index}"), format!("%w{index}"));
    // Writing to a string does not fail.
    let _ = match ir {
        "i64" => writeln!(to, "  {word} = add i64 {from}, 0"),
        "i1" => writeln!(to, "  {word} = zext i1 {from} to i64"),
        "ptr" => writeln!(to, "  {word} = ptrtoint ptr {from} to i64"),
        "double" => writeln!(to, "  {word} = bitcast double {from} to i64"),
        "float" => writeln!(
            to,
            "  %b{index} = bitcast float {from} to i32\n  {word} = zext i32 %b{index} to i64"
        ),
        small => writeln!(to, "  {word} = sext {small} {from} to i64"),
    };
}

/// Writes the IR that returns the word `%r`.
fn write_result(to: &mut String, ir: &str) {
    // Writing to a string does not fail.
    let _ = match ir {
        "i64" => writeln!(to, "  ret i64 %r\n}}"),
        "ptr" => writeln!(to, "  %v = inttoptr i64 %r to ptr\n  ret ptr %v\n}}"),
        "double" => writeln!(to, "  %v = bitcast i64 %r to double\n  ret double %v\n}}"),
        "float" => writeln!(
            to,
            "  %t = trunc i64 %r to i32\n  %v = bitcast i32 %t to float\n  ret float %v\n}}"
        ),
        small => writeln!(to, "  %v = trunc i64 %r to {small}\n  ret {small} %v\n}}"),
    };
}

impl Receiver {
    /// A definition of `name` in IR that calls [`receive`].
    pub(super) fn forwarding(self: &Arc<Self>, name: &str, ty: &FunctionType) -> String {
        let types: Vec<&str> = self
            .parameters
            .iter()
            .filter_map(word)
            .map(|it| it.0)
            .collect();
        let list = types.iter().enumerate();
        let list: Vec<String> = list.map(|(index, ir)| format!("{ir} %a{index}")).collect();
        let (result, extended) = self.result.as_ref().and_then(word).unwrap_or(("void", ""));
        let room = types.len().max(1);
        let (address, state) = (receive as *const () as u64, Arc::as_ptr(self) as u64);
        debug_assert_eq!(types.len(), ty.parameters.len());
        let mut ir = format!(
            "define {extended} {result} {}({}) uwtable {{\n  %words = alloca [{room} x i64], align 8\n",
            quoted(name),
            list.join(", ")
        );
        for (index, ty) in types.iter().enumerate() {
            write_word(&mut ir, index, ty);
            // Writing to a string does not fail.
            let _ = writeln!(
                ir,
                "  %p{index} = getelementptr i64, ptr %words, i64 {index}\n  \
                 store i64 %w{index}, ptr %p{index}, align 8"
            );
        }
        ir += &format!(
            "  call void inttoptr (i64 {address} to ptr)(ptr inttoptr (i64 {state} to ptr), \
             ptr %words)\n"
        );
        match result {
            "void" => ir += "  ret void\n}\n",
            result => {
                ir += "  %r = load i64, ptr %words, align 8\n";
                write_result(&mut ir, result);
            }
        }
        ir
    }

    /// Calls the body; returns the word of its result.
    fn answer(&self, words: &[u64]) -> Result<u64, HostError> {
        let values = self.parameters.iter().zip(words);
        let values: Vec<Val> = values.map(|(ty, &word)| ty.value(word)).collect();
        let result = (self.body)(&values)?;
        let bits = match &self.result {
            None => (result == Val::Void).then_some(0),
            Some(ty) => ty.bits(&result),
        };
        bits.ok_or_else(|| {
            let ty = self
                .result
                .as_ref()
                .and_then(word)
                .map_or("void", |it| it.0);
            let result = format!("{result:?}");
            Arc::new(WrongResult { ty, result }) as HostError
        })
    }
}

/// Called by IR of [`Receiver::forwarding`].
///
/// # Safety
/// `state` is of the session that calls; `words` has room for as many words as there are
/// parameters, one at least, and contains them.
unsafe extern "C-unwind" fn receive(state: *const Receiver, words: *mut u64) {
    let answer = {
        let _covered = Covered::begin();
        // SAFETY: the session keeps it, as long as its code may be called.
        let receiver = unsafe { &*state };
        // SAFETY: by the caller's promise.
        let given = unsafe { std::slice::from_raw_parts(words, receiver.parameters.len()) };
        receiver.answer(given)
    };
    let word = finish(answer);
    // SAFETY: by the caller's promise.
    unsafe { words.write(word) };
}
