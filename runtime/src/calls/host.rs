//! Functions of the host that JIT'd code calls by name.
//!
//! | kind | meaning of the name |
//! |---|---|
//! | a function, or a closure that captures nothing | a C function of the host, compiled around it; JIT'd code calls it directly |
//! | a closure with state | a function of IR, which calls such a C function with the state as a last argument; compiled as all IR is, and inlined as such |
//! | an address with a type | the address |
//! | a closure over values ([`received`](super::received)) | a function of IR, which calls a C function with its arguments as words |
//!
//! Each has its types ([`bound`](super::bound)). A function of the host covers guards below it
//! ([`guard`](super::guard)): it is ordinary Rust, whose frames are only left by returning or by a
//! panic.
//!
//! # Why
//! The state comes last, so that earlier arguments are passed in the registers and on the stack as
//! without it. If it came first, a struct that fits into registers for the caller might not for the
//! callee. IR is used instead of generated machine code: an argument may be a struct, or on the
//! stack, and LLVM knows how to pass each on.

use std::any::Any;
use std::fmt::Write;
use std::mem::needs_drop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::received::Receiver;
use super::types::{Extend, FunctionType, Piece, result_text};
use super::value::Value;
use crate::error::trap::HostError;
use crate::guarded::guard::{Covered, raise};

/// A function of the host, with its types, for a definition
/// ([`Dylib::define_fns`](crate::Dylib::define_fns)).
#[derive(Clone)]
pub struct HostFunction {
    pub(super) ty: FunctionType,
    pub(super) code: HostCode,
}

impl std::fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostFunction({})", self.ty)
    }
}

/// The code of a host function.
#[derive(Clone)]
pub(super) enum HostCode {
    /// The address of a C function.
    At(u64),
    /// The address of a C function that takes the state after its arguments.
    With {
        address: u64,
        state: Arc<dyn Any + Send + Sync>,
        /// The address of the state.
        at: u64,
    },
    /// A function over values whose types are known when it is defined.
    Receiving(Arc<Receiver>),
}

impl HostFunction {
    /// A function or closure.
    ///
    /// ```
    /// let f = uruk::HostFunction::new(|a: i64, b: f64| a as f64 * b);
    /// assert_eq!(f.ty().to_string(), "double (i64, double)");
    /// ```
    pub fn new<M>(f: impl HostFn<M>) -> HostFunction {
        f.into_host()
    }

    /// Makes a host function of an address, with its C or LLVM type.
    ///
    /// # Safety
    /// 1. At `address` is a function that may be called with type `ty`, from all callers of its
    ///    name.
    /// 2. It stays valid as long as the session is used.
    pub unsafe fn from_address(ty: FunctionType, address: *const ()) -> HostFunction {
        HostFunction {
            ty,
            code: HostCode::At(address as u64),
        }
    }

    /// Its type.
    pub fn ty(&self) -> &FunctionType {
        &self.ty
    }
}

/// A result of a host function: a [`Value`], or a `Result` of one. `Err` ends the enclosing guarded
/// call ([`Func::call_guarded`](crate::Func)), which returns it as
/// [`TrapKind::Host`](crate::TrapKind::Host); without one it is a panic.
pub trait HostResult {
    /// The value that JIT'd code gets.
    type Value: Value;

    /// The value, or the error.
    ///
    /// # Errors
    /// The error that ends the guarded call.
    fn into_value(self) -> Result<Self::Value, HostError>;
}

impl<V: Value> HostResult for V {
    type Value = V;

    #[inline]
    fn into_value(self) -> Result<V, HostError> {
        Ok(self)
    }
}

impl<V: Value, E: std::error::Error + Send + Sync + 'static> HostResult for Result<V, E> {
    type Value = V;

    #[inline]
    fn into_value(self) -> Result<V, HostError> {
        self.map_err(|error| Arc::new(error) as HostError)
    }
}

/// Functions and closures that JIT'd code may call: `Fn` of up to sixteen [`Value`]s, with a
/// [`HostResult`]. The compiler infers `M`.
pub trait HostFn<M>: Send + Sync + 'static {
    /// Adds its types.
    fn into_host(self) -> HostFunction;
}

/// The end of each function of the host, without pending destructors.
#[inline]
pub(super) fn finish<V>(result: Result<V, HostError>) -> V {
    match result {
        Ok(value) => value,
        Err(error) => raise(error),
    }
}

macro_rules! host_functions {
    ($(($($name:ident $ty:ident)*)),* $(,)?) => {$(
        impl<F, R, $($ty),*> HostFn<fn($($ty),*) -> R> for F
        where
            F: Fn($($ty),*) -> R + Send + Sync + 'static,
            R: HostResult,
            $($ty: Value),*
        {
            fn into_host(self) -> HostFunction {
                #[allow(improper_ctypes_definitions, reason = "values are what C passes")]
                #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
                extern "C-unwind" fn direct<F, R, $($ty),*>($($name: $ty),*) -> R::Value
                where
                    F: Fn($($ty),*) -> R,
                    R: HostResult,
                {
                    let result = {
                        let _covered = Covered::begin();
                        // SAFETY: a type without a size, a value of which was given to `into_host`;
                        // its drop does nothing.
                        let f = unsafe { NonNull::<F>::dangling().as_ref() };
                        f($($name),*).into_value()
                    };
                    finish(result)
                }

                #[allow(improper_ctypes_definitions, reason = "values are what C passes")]
                #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
                extern "C-unwind" fn with_state<F, R, $($ty),*>(
                    $($name: $ty,)*
                    state: *const F,
                ) -> R::Value
                where
                    F: Fn($($ty),*) -> R,
                    R: HostResult,
                {
                    let result = {
                        let _covered = Covered::begin();
                        // SAFETY: the session keeps it, as long as its code may be called.
                        let f = unsafe { &*state };
                        f($($name),*).into_value()
                    };
                    finish(result)
                }

                let ty = FunctionType {
                    result: R::Value::value_type(),
                    parameters: vec![$($ty::value_type()),*],
                };
                let has_state = size_of::<F>() != 0 || needs_drop::<F>();
                let code = match has_state {
                    false => {
                        HostCode::At(direct::<F, R, $($ty),*> as *const () as u64)
                    }
                    true => {
                        let state = Arc::new(self);
                        HostCode::With {
                            address: with_state::<F, R, $($ty),*> as *const () as u64,
                            at: Arc::as_ptr(&state) as u64,
                            state,
                        }
                    }
                };
                HostFunction { ty, code }
            }
        }
    )*};
}

host_functions! {
    (), (a A), (a A b B), (a A b B c C), (a A b B c C d D), (a A b B c C d D e E),
    (a A b B c C d D e E g G), (a A b B c C d D e E g G h H), (a A b B c C d D e E g G h H i I),
    (a A b B c C d D e E g G h H i I j J), (a A b B c C d D e E g G h H i I j J k K),
    (a A b B c C d D e E g G h H i I j J k K l L),
    (a A b B c C d D e E g G h H i I j J k K l L m M),
    (a A b B c C d D e E g G h H i I j J k K l L m M n N),
    (a A b B c C d D e E g G h H i I j J k K l L m M n N o O),
    (a A b B c C d D e E g G h H i I j J k K l L m M n N o O p P),
    (a A b B c C d D e E g G h H i I j J k K l L m M n N o O p P q Q),
}

/// A definition of `name` in IR, which calls the function at `address` with `state` after its own
/// arguments. Not by a jump: while that function runs, the frame of the call keeps the code, and so
/// the state.
pub(super) fn forwarding(name: &str, ty: &FunctionType, address: u64, state: u64) -> String {
    let (result, parameters) = ty.pieces();
    let extension = |piece: &Piece| match piece {
        Piece::Exact(_, Extend::Sign) => " signext",
        Piece::Exact(_, Extend::Zero) => " zeroext",
        _ => "",
    };
    let list = |calling: bool| {
        let each = parameters.iter().enumerate().map(|(index, piece)| {
            let ty = match piece {
                Piece::ByVal(size) => format!("ptr byval([{size} x i8]) align 8"),
                Piece::SRet(size) => format!("ptr sret([{size} x i8]) align 8"),
                // Only the callee may rely on it: declarations seldom have it.
                piece if calling => format!("{piece}{}", extension(piece)),
                piece => piece.to_string(),
            };
            format!("{ty} %a{index}")
        });
        each.collect::<Vec<_>>()
    };
    let mut arguments = list(true);
    arguments.push(format!("ptr inttoptr (i64 {state} to ptr)"));
    let returned = result_text(&result);
    let promised = result.first().map_or("", extension);
    let mut ir = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        ir,
        "define{promised} {returned} {}({}) uwtable {{",
        quoted(name),
        list(false).join(", ")
    );
    let call = format!(
        "notail call {returned} inttoptr (i64 {address} to ptr)({})",
        arguments.join(", ")
    );
    let _ = match returned.as_str() {
        "void" => writeln!(ir, "  {call}\n  ret void\n}}"),
        _ => writeln!(ir, "  %r = {call}\n  ret {returned} %r\n}}"),
    };
    ir
}

/// A body of `name` that calls the function at `address` with `state`, and then the function that
/// it returns.
pub(super) fn placeholder(name: &str, ty: &FunctionType, address: u64, state: u64) -> String {
    let (result, parameters) = ty.pieces();
    let each = parameters.iter().enumerate().map(|(index, piece)| {
        let ty = match piece {
            Piece::ByVal(size) => format!("ptr byval([{size} x i8]) align 8"),
            Piece::SRet(size) => format!("ptr sret([{size} x i8]) align 8"),
            piece => piece.to_string(),
        };
        format!("{ty} %a{index}")
    });
    let list = each.collect::<Vec<_>>().join(", ");
    let (returned, name) = (result_text(&result), quoted(name));
    let end = match returned.as_str() {
        "void" => "ret void".to_owned(),
        _ => format!("ret {returned} %r"),
    };
    let assigned = if returned == "void" { "" } else { "%r = " };
    format!(
        "define {returned} {name}({list}) uwtable {{
          %f = call ptr inttoptr (i64 {address} to ptr)(ptr inttoptr (i64 {state} to ptr))
          {assigned}musttail call {returned} %f({list})
          {end}
        }}"
    )
}

/// Quotes a name for IR.
pub(super) fn quoted(name: &str) -> String {
    let mut text = String::from("@\"");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' | 0..=31 | 127..=255 => {
                // Writing to a string does not fail.
                let _ = write!(text, "\\{byte:02X}");
            }
            _ => text.push(byte.into()),
        }
    }
    text.push('"');
    text
}
