//! Types of symbols as text, with argument passing that a function's type does not show: `byval`
//! and `sret`, by which a pointer stands for a struct in memory.
//!
//! Small integers have marks of how they are extended, results as well: `i16 zeroext (i8 signext)`.
//!
//! `void (ptr, i32)` is a function of two values; `void (ptr byval(24), i32)` is one whose first
//! argument is 24 bytes on the stack. Callers of the two pass different things.

use inkwell::llvm_sys::LLVMAttributeReturnIndex;
use inkwell::llvm_sys::core::{
    LLVMCountParams, LLVMGetEnumAttributeAtIndex, LLVMGetEnumAttributeKindForName, LLVMGetParam,
    LLVMGetTypeAttributeValue, LLVMTypeIsSized, LLVMTypeOf,
};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMTargetDataRef};

use crate::handles::{FunctionRef, TypeRef};
use crate::interface::printed_type;

/// The kinds of attributes that determine how an argument is passed.
pub(crate) struct Passing {
    /// Attributes with a type, whose size matters.
    kinds: [(&'static str, u32); 2],
    extensions: [(&'static str, u32); 2],
    layout: LLVMTargetDataRef,
}

impl Passing {
    /// Marks for a module with this layout.
    pub(crate) fn new(layout: LLVMTargetDataRef) -> Passing {
        // SAFETY: pointer and length describe the name.
        let kind = |name: &'static str| unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            (name, kind)
        };
        Passing {
            kinds: [kind("byval"), kind("sret")],
            extensions: [kind("signext"), kind("zeroext")],
            layout,
        }
    }

    /// The function's type, given as `plain`, with marks at its arguments and its result; `None` if
    /// there are none.
    pub(crate) fn marked(&self, function: FunctionRef<'_>, plain: &str) -> Option<String> {
        // SAFETY: a live function.
        let count = unsafe { LLVMCountParams(function.raw()) };
        let marks: Vec<Option<String>> = (1..=count)
            .map(|index| self.mark(function, index))
            .collect();
        let of_result = self.extension(function, LLVMAttributeReturnIndex);
        if of_result.is_none() && marks.iter().all(Option::is_none) {
            return None;
        }
        // A marked result is an integer, and no integer has a parenthesis before the parameters.
        let (result, rest) = plain.split_once(" (")?;
        let of_result = of_result.map_or(String::new(), |mark| format!(" {mark}"));
        let each = (0..).zip(marks).map(|(index, mark)| {
            // SAFETY: there is a parameter of that index, with a type.
            let ty = unsafe { TypeRef::of(LLVMTypeOf(LLVMGetParam(function.raw(), index))) };
            let ty = printed_type(ty);
            mark.map_or(ty.clone(), |mark| format!("{ty} {mark}"))
        });
        let mut each: Vec<String> = each.collect();
        each.extend(rest.ends_with("...)").then(|| String::from("...")));
        Some(format!("{result}{of_result} ({})", each.join(", ")))
    }

    /// How a small integer is extended: a parameter, or the result.
    fn extension(&self, function: FunctionRef<'_>, index: u32) -> Option<&'static str> {
        // SAFETY: a live function, and an index of a parameter or of the result.
        let has =
            |kind| unsafe { !LLVMGetEnumAttributeAtIndex(function.raw(), index, kind).is_null() };
        let mut all = self.extensions.iter();
        all.find(|&&(_, kind)| has(kind)).map(|&(name, _)| name)
    }

    fn mark(&self, function: FunctionRef<'_>, index: u32) -> Option<String> {
        if let Some(name) = self.extension(function, index) {
            return Some(name.to_owned());
        }
        self.kinds.iter().find_map(|&(name, kind)| {
            // SAFETY: a live function, and an index of a parameter; both attributes have a type.
            let bytes = unsafe {
                let attribute = LLVMGetEnumAttributeAtIndex(function.raw(), index, kind);
                if attribute.is_null() {
                    return None;
                }
                let ty = LLVMGetTypeAttributeValue(attribute);
                match LLVMTypeIsSized(ty) {
                    0 => 0,
                    _ => LLVMABISizeOfType(self.layout, ty),
                }
            };
            Some(format!("{name}({bytes})"))
        })
    }
}
