//! The intrinsics with a meaning for OSR, as data.

/// The meaning of an intrinsic for OSR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Meaning {
    /// None of the others, or no intrinsic.
    #[default]
    Nothing,
    /// An `alloca`'s life begins.
    LifetimeStart,
    /// An `alloca`'s life ends.
    LifetimeEnd,
    /// The stack pointer is saved.
    StackSave,
    /// The stack pointer is restored.
    StackRestore,
    /// Copies or sets memory, and keeps no address.
    Memory,
    /// Reads variable arguments.
    Arguments,
    /// The number of a type among those that a function catches.
    TypeNumber,
    /// Depends on the frame of its caller.
    Frame,
    /// Begins a new scope of aliasing each time it runs.
    Scope,
    /// Forbids OSR.
    Other,
}

impl Meaning {
    /// Whether it marks the beginning or the end of an `alloca`'s life.
    pub fn is_marker(self) -> bool {
        matches!(self, Meaning::LifetimeStart | Meaning::LifetimeEnd)
    }

    /// The meaning of the intrinsic of that name: type suffixes follow its own name, after points.
    pub fn of(name: &str) -> Meaning {
        let is = |own: &str| {
            let rest = name.strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !name.starts_with("llvm.") || OTHERS.iter().any(|own| is(own)) {
            return Meaning::Nothing;
        }
        let known = INTRINSICS.iter().find(|(own, _)| is(own));
        known.map_or(Meaning::Nothing, |&(_, meaning)| meaning)
    }
}

/// Intrinsics with a meaning, by name without types.
pub const INTRINSICS: [(&str, Meaning); 36] = [
    ("llvm.lifetime.start", Meaning::LifetimeStart),
    ("llvm.lifetime.end", Meaning::LifetimeEnd),
    ("llvm.stacksave", Meaning::StackSave),
    ("llvm.stackrestore", Meaning::StackRestore),
    ("llvm.va_start", Meaning::Arguments),
    ("llvm.eh.typeid.for", Meaning::TypeNumber),
    ("llvm.memcpy", Meaning::Memory),
    ("llvm.memcpy.inline", Meaning::Memory),
    ("llvm.memmove", Meaning::Memory),
    ("llvm.memset", Meaning::Memory),
    ("llvm.memset.inline", Meaning::Memory),
    ("llvm.frameaddress", Meaning::Frame),
    ("llvm.returnaddress", Meaning::Frame),
    ("llvm.addressofreturnaddress", Meaning::Frame),
    ("llvm.sponentry", Meaning::Frame),
    ("llvm.eh.dwarf.cfa", Meaning::Frame),
    ("llvm.eh.return.i32", Meaning::Frame),
    ("llvm.eh.return.i64", Meaning::Frame),
    ("llvm.eh.unwind.init", Meaning::Frame),
    ("llvm.read_register", Meaning::Frame),
    ("llvm.read_volatile_register", Meaning::Frame),
    ("llvm.write_register", Meaning::Frame),
    ("llvm.get.dynamic.area.offset", Meaning::Frame),
    ("llvm.stackguard", Meaning::Frame),
    ("llvm.experimental.noalias.scope.decl", Meaning::Scope),
    ("llvm.localescape", Meaning::Other),
    ("llvm.localrecover", Meaning::Other),
    ("llvm.eh.sjlj.setjmp", Meaning::Other),
    ("llvm.eh.sjlj.longjmp", Meaning::Other),
    ("llvm.eh.sjlj.callsite", Meaning::Other),
    ("llvm.eh.sjlj.functioncontext", Meaning::Other),
    ("llvm.eh.sjlj.lsda", Meaning::Other),
    ("llvm.call.preallocated.setup", Meaning::Other),
    ("llvm.gcroot", Meaning::Other),
    ("llvm.experimental.deoptimize", Meaning::Other),
    ("llvm.swift.async.context.addr", Meaning::Other),
];

/// Other intrinsics whose names begin like one of those.
const OTHERS: [&str; 3] = [
    "llvm.memcpy.element",
    "llvm.memmove.element",
    "llvm.memset.element",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_behind_a_name_are_no_part_of_it() {
        assert_eq!(Meaning::of("llvm.memcpy.p0.p0.i64"), Meaning::Memory);
        assert_eq!(Meaning::of("llvm.stacksave"), Meaning::StackSave);
        assert_eq!(Meaning::of("llvm.eh.return.i64"), Meaning::Frame);
        let element = "llvm.memcpy.element.unordered.atomic.p0.p0.i64";
        assert_eq!(Meaning::of(element), Meaning::Nothing);
        assert_eq!(Meaning::of("llvm.frameaddresses"), Meaning::Nothing);
        assert_eq!(Meaning::of("memcpy"), Meaning::Nothing);
    }
}
