//! Rust's types in calls, and their counterparts.
//!
//! | Rust | LLVM IR | C |
//! |---|---|---|
//! | `()` as a result | `void` | `void` |
//! | `bool` | `i1` | `bool` |
//! | `i8` `u8`, `i16` `u16`, `i32` `u32`, `i64` `u64`, `isize` `usize` | `i8`, `i16`, `i32`, `i64`, `i64` | the integers |
//! | `i128`, `u128` | `i128` | `__int128` |
//! | `char` | `i32` | `char32_t` |
//! | `f32`, `f64` | `float`, `double` | `float`, `double` |
//! | `*const T`, `*mut T`, `&T`, `&mut T`, `NonNull<T>`, `Option` of the last three | `ptr` | `T *` |
//! | `extern "C" fn`, also unsafe, `C-unwind`, and `Option` of them | `ptr` | a function pointer |
//! | `__m128`, `__m128d`, `__m128i` | `<4 x float>`, `<2 x double>`, `<2 x i64>` | the same |
//! | a struct of [`repr_c!`](crate::repr_c), of up to 16 bytes | one value for each eight bytes: `i64`, `double`, `<2 x float>` ... | a struct |
//! | a larger one | `ptr byval(T)`, as a result `ptr sret(T)` | a struct |
//! | `bool` in such a struct | `i8`; as a parameter `i1`, too | `bool` |
//! | `[T; N]`, in such a struct only | as `N` fields | an array |
//!
//! A reference in the type of a [`Func`](crate::Func) needs a named lifetime: write
//! `type Sum<'a> = extern "C" fn(&'a [i64; 4]) -> i64` and `jit.function::<Sum>("sum")`.

use std::arch::x86_64::{__m128, __m128d, __m128i};
use std::ptr::NonNull;

use super::types::{Extend, FunctionType, Leaf, ValueType};

/// Types of values in a typed function; [`ValueType`] describes how a call passes them.
///
/// | Rust | LLVM IR |
/// |---|---|
/// | `()` as a result | `void` |
/// | `bool` | `i1` |
/// | `i8` to `i64`, `u8` to `u64`, `isize`, `usize`, `i128`, `u128` | `i8` to `i128` |
/// | `char` | `i32` |
/// | `f32`, `f64` | `float`, `double` |
/// | pointers, references, `NonNull`, `Option` of these; function pointers, `Option` of them | `ptr` |
/// | `__m128`, `__m128d`, `__m128i` | `<4 x float>`, `<2 x double>`, `<2 x i64>` |
/// | a struct of [`repr_c!`](crate::repr_c), up to 16 bytes | a value for each eight bytes: `i64`, `double`, `<2 x float>` ... |
/// | a larger one | `ptr byval(T)`; as a result `ptr sret(T)` |
/// | `bool` in such a struct | `i8`; as a parameter `i1`, too. The bits above an `i1` of a result are undefined |
///
/// References need a named lifetime, which an alias gives them:
///
/// ```
/// type Sum<'a> = extern "C" fn(&'a [i64; 2]) -> i64;
/// let jit = uruk::Jit::new()?;
/// jit.add_ir("m", "define i64 @sum(ptr %p) {
///   %q = getelementptr i64, ptr %p, i64 1
///   %a = load i64, ptr %p
///   %b = load i64, ptr %q
///   %c = add i64 %a, %b
///   ret i64 %c
/// }")?;
/// // SAFETY: `sum` is the function above, and reads what `Sum` lends it.
/// let sum = unsafe { jit.function::<Sum>("sum")? };
/// assert_eq!(sum.call(&[40, 2]), 42);
/// # Ok::<(), uruk::Error>(())
/// ```
///
/// # Safety
/// `extern "C"` functions of Rust pass a value of the implementing type as C passes the type that
/// `value_type` describes.
pub unsafe trait Value {
    /// The type as passed in a call.
    fn value_type() -> ValueType;
}

/// A field of a struct of [`repr_c!`](crate::repr_c): values except `()`, `i128` and vectors, and
/// arrays of them.
///
/// # Safety
/// As [`Value`].
pub unsafe trait Field {
    /// The type as passed in a call.
    fn field_type() -> ValueType;
}

// SAFETY: an array has its elements one after the other.
unsafe impl<T: Field, const N: usize> Field for [T; N] {
    fn field_type() -> ValueType {
        ValueType::array(size_of::<[T; N]>(), N, &T::field_type())
    }
}

/// Implements `Value`, and `Field` with the same type.
macro_rules! value {
    ([$($parameter:tt)*] $ty:ty => $value:expr) => {
        // SAFETY: the x86-64 psABI's mapping, as clang emits it; pointers are thin, opaque in IR,
        // and null where an `Option` is `None`.
        unsafe impl<$($parameter)*> Value for $ty {
            fn value_type() -> ValueType {
                $value
            }
        }

        // SAFETY: as above.
        unsafe impl<$($parameter)*> Field for $ty {
            fn field_type() -> ValueType {
                $value
            }
        }
    };
}

macro_rules! values {
    ($($ty:ty => $ir:literal $extend:ident $leaf:expr),* $(,)?) => {$(
        value!([] $ty => ValueType::scalar($ir, Extend::$extend, Some($leaf)));
    )*};
}

values! {
    bool => "i1" Zero Leaf::Bool,
    i8 => "i8" Sign Leaf::Int(1), u8 => "i8" Zero Leaf::Int(1),
    i16 => "i16" Sign Leaf::Int(2), u16 => "i16" Zero Leaf::Int(2),
    i32 => "i32" No Leaf::Int(4), u32 => "i32" No Leaf::Int(4),
    i64 => "i64" No Leaf::Int(8), u64 => "i64" No Leaf::Int(8),
    isize => "i64" No Leaf::Int(8), usize => "i64" No Leaf::Int(8),
    char => "i32" No Leaf::Int(4),
    f32 => "float" No Leaf::Float, f64 => "double" No Leaf::Double,
}

macro_rules! alone {
    ($($ty:ty => $ir:literal),* $(,)?) => {$(
        // SAFETY: as for the values above.
        unsafe impl Value for $ty {
            fn value_type() -> ValueType {
                ValueType::scalar($ir, Extend::No, None)
            }
        }
    )*};
}

alone! {
    () => "void", i128 => "i128", u128 => "i128",
    __m128 => "<4 x float>", __m128d => "<2 x double>", __m128i => "<2 x i64>",
}

const POINTER: ValueType = ValueType::scalar("ptr", Extend::No, Some(Leaf::Pointer));

value!([T] *const T => POINTER);
value!([T] *mut T => POINTER);
value!([T] NonNull<T> => POINTER);
value!([T] Option<NonNull<T>> => POINTER);
value!(['a, T] &'a T => POINTER);
value!(['a, T] &'a mut T => POINTER);
value!(['a, T] Option<&'a T> => POINTER);
value!(['a, T] Option<&'a mut T> => POINTER);

/// Function pointer types of a [`Func`](crate::Func): `extern "C"` and `extern "C-unwind"`, safe
/// and unsafe, of up to sixteen [values](Value).
///
/// # Safety
/// `function_type` describes the implementing type.
pub unsafe trait Signature {
    /// The type of such a function, as passed in a call.
    fn function_type() -> FunctionType;

    /// That type as clang writes it.
    fn ir_type() -> String {
        Self::function_type().to_string()
    }
}

macro_rules! signature {
    ($kind:ty, $result:ident, $($ty:ident),*) => {
        // SAFETY: built from the values' own types.
        unsafe impl<$result: Value, $($ty: Value),*> Signature for $kind {
            fn function_type() -> FunctionType {
                FunctionType {
                    result: $result::value_type(),
                    parameters: vec![$($ty::value_type()),*],
                }
            }
        }

        value!([$result, $($ty),*] $kind => POINTER);
        value!([$result, $($ty),*] Option<$kind> => POINTER);
    };
}

macro_rules! signatures {
    ($(($($ty:ident)*)),* $(,)?) => {$(
        signature!(extern "C" fn($($ty),*) -> R, R, $($ty),*);
        signature!(unsafe extern "C" fn($($ty),*) -> R, R, $($ty),*);
        signature!(extern "C-unwind" fn($($ty),*) -> R, R, $($ty),*);
        signature!(unsafe extern "C-unwind" fn($($ty),*) -> R, R, $($ty),*);
    )*};
}

signatures! {
    (), (A), (A B), (A B C), (A B C D), (A B C D E), (A B C D E G), (A B C D E G H),
    (A B C D E G H I), (A B C D E G H I J), (A B C D E G H I J K), (A B C D E G H I J K L),
    (A B C D E G H I J K L M), (A B C D E G H I J K L M N), (A B C D E G H I J K L M N O),
    (A B C D E G H I J K L M N O P), (A B C D E G H I J K L M N O P Q),
}

/// Defines a struct that calls pass by value and return, as C does: `#[repr(C)]`, and a
/// [`Value`](crate::Value). Its fields are values, arrays of them, and structs of this kind.
///
/// ```
/// uruk::repr_c! {
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub struct Point {
///         pub x: f64,
///         pub y: f64,
///     }
/// }
///
/// let jit = uruk::Jit::new()?;
/// // What clang makes of `Point flip(Point p) { return (Point){p.y, p.x}; }`.
/// jit.add_ir("m", "define { double, double } @flip(double %x, double %y) {
///   %a = insertvalue { double, double } poison, double %y, 0
///   %b = insertvalue { double, double } %a, double %x, 1
///   ret { double, double } %b
/// }")?;
/// // SAFETY: `flip` is the function above.
/// let flip = unsafe { jit.function::<extern "C" fn(Point) -> Point>("flip")? };
/// assert_eq!(flip.call(Point { x: 1.0, y: 2.0 }), Point { x: 2.0, y: 1.0 });
/// # Ok::<(), uruk::Error>(())
/// ```
#[macro_export]
macro_rules! repr_c {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$of_field:meta])* $seen:vis $field:ident : $ty:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name {
            $($(#[$of_field])* $seen $field: $ty),+
        }

        // SAFETY: laid out as C does, by `repr(C)`, and described field by field.
        unsafe impl $crate::Value for $name {
            fn value_type() -> $crate::ValueType {
                $crate::ValueType::structure(
                    ::core::mem::size_of::<$name>(),
                    &[$((
                        ::core::mem::offset_of!($name, $field),
                        <$ty as $crate::Field>::field_type(),
                    )),+],
                )
            }
        }

        // SAFETY: as above.
        unsafe impl $crate::Field for $name {
            fn field_type() -> $crate::ValueType {
                <$name as $crate::Value>::value_type()
            }
        }
    };
}
