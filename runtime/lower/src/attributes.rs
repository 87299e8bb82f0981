//! Attributes that change code: those on how values are passed, and requests to a function as a
//! whole. Each list of a module is read once.

use uruk_baseline::ir::Extension;
use uruk_bitcode::ir::{Attribute, Attributes, AttributesId, TypeId};

mod wants;

pub(crate) use wants::{AttributePlace, Wants};

/// The effect of one attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// How a value's bits above its own are filled.
    Extended(Extension),
    /// A copy of the pointer's target is passed.
    ByValue,
    /// The argument points to the memory of the result.
    Result,
    /// It comes in a register of its own.
    Nest,
    /// The alignment of the pointer's target.
    Align,
    /// The alignment of a place on the stack.
    StackAlign,
    /// A call may return more than once.
    ReturnsTwice,
    /// Each page of a frame is touched.
    ProbesStack,
    /// Arrays in a frame are guarded.
    Guarded,
    /// Not covered, with a text.
    Not(&'static str),
}

/// Attributes with an effect, by LLVM's number in bitcode (`AttributeKindCodes`). On a function as
/// a whole all others up to [`LAST_KNOWN`] have none.
const BY_NUMBER: [(u32, Says); 24] = [
    (24, Says::Extended(Extension::Sign)),
    (34, Says::Extended(Extension::Zero)),
    (3, Says::ByValue),
    (29, Says::Result),
    (8, Says::Nest),
    (1, Says::Align),
    (25, Says::StackAlign),
    (23, Says::ReturnsTwice),
    (26, Says::Guarded),
    (28, Says::Guarded),
    (27, Says::Guarded),
    (5, Says::Not("inreg")),
    (38, Says::Not("inalloca")),
    (65, Says::Not("preallocated")),
    (46, Says::Not("swiftself")),
    (47, Says::Not("swifterror")),
    (75, Says::Not("swiftasync")),
    (7, Says::Not("a naked function")),
    (83, Says::Not("a coroutine")),
    (54, Says::Not("strict floating point")),
    (44, Says::Not("a safe stack")),
    (58, Says::Not("a shadow stack")),
    (59, Says::Not("hardened loads")),
    (84, Says::Not("return thunks")),
];

/// The largest number of LLVM 22 (`nocreateundeforpoison`): later numbers are not covered.
const LAST_KNOWN: u32 = 105;

/// Attributes of parameters and results that change nothing of how they are passed; all others that
/// are not in [`BY_NUMBER`] are not covered.
const SILENT: [u32; 26] = [
    9,   // noalias
    11,  // nocapture
    20,  // readnone
    21,  // readonly
    22,  // returned
    39,  // nonnull
    41,  // dereferenceable
    42,  // dereferenceable_or_null
    52,  // writeonly
    60,  // immarg
    62,  // nofree
    67,  // null_pointer_is_valid
    68,  // noundef
    69,  // byref
    77,  // elementtype
    80,  // allocalign
    81,  // allocptr
    87,  // nofpclass
    89,  // writable
    91,  // dead_on_unwind
    92,  // range
    94,  // initializes
    99,  // noext
    100, // nodivergencesource
    102, // captures
    103, // dead_on_return
];

/// Features of the processor without which values are passed in other ways.
const NEEDED: [&str; 4] = ["-sse", "-sse2", "-x87", "+soft-float"];

/// String attributes with an effect: whether only a value other than `false` gives them one.
const BY_TEXT: [(&str, bool, Says); 15] = [
    ("probe-stack", true, Says::ProbesStack),
    ("split-stack", false, Says::Not("a split stack")),
    ("fentry-call", true, Says::Not("hooks")),
    ("instrument-function-entry", true, Says::Not("hooks")),
    ("instrument-function-exit", true, Says::Not("hooks")),
    (
        "instrument-function-entry-inlined",
        true,
        Says::Not("hooks"),
    ),
    ("instrument-function-exit-inlined", true, Says::Not("hooks")),
    ("no_caller_saved_registers", false, OWN_REGISTERS),
    ("no_callee_saved_registers", false, OWN_REGISTERS),
    (
        "stackrealign",
        false,
        Says::Not("a stack of another alignment"),
    ),
    ("interrupt", false, Says::Not("an interrupt handler")),
    ("use-soft-float", true, Says::Not("soft floating point")),
    ("thunk", false, Says::Not("a thunk")),
    ("kcfi-target", false, Says::Not("checked calls")),
    ("zero-call-used-regs", true, Says::Not("zeroed registers")),
];

const OWN_REGISTERS: Says = Says::Not("a choice of saved registers");

/// How one argument or result is passed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    pub(crate) extension: Option<Extension>,
    /// The type of the copied target.
    pub(crate) by_value: Option<TypeId>,
    pub(crate) is_result: bool,
    pub(crate) is_nest: bool,
    /// Alignment in bytes; 0 if there is no attribute.
    pub(crate) align: u32,
    pub(crate) stack_align: u32,
    pub(crate) not: Option<&'static str>,
}

impl Passed {
    fn of(attributes: &[Attribute]) -> Passed {
        let mut passed = Passed::default();
        for attribute in attributes {
            let Some(says) = said(attribute) else {
                if kind(attribute).is_some_and(|kind| !SILENT.contains(&kind)) {
                    passed.not = Some(ODD);
                }
                continue;
            };
            match (says, attribute) {
                (Says::Extended(extension), _) => passed.extension = Some(extension),
                (Says::ByValue, &Attribute::Typed(_, ty)) => passed.by_value = Some(ty),
                (Says::Align, &Attribute::Number(_, bytes)) => match power(bytes) {
                    Some(bytes) => passed.align = bytes,
                    None => passed.not = Some(ODD),
                },
                (Says::StackAlign, &Attribute::Number(_, bytes)) => match power(bytes) {
                    Some(bytes) => passed.stack_align = bytes,
                    None => passed.not = Some(ODD),
                },
                (Says::ByValue | Says::Align | Says::StackAlign, _) => passed.not = Some(ODD),
                (Says::Result, _) => passed.is_result = true,
                (Says::Nest, _) => passed.is_nest = true,
                (Says::Not(what), _) => passed.not = Some(what),
                (Says::ReturnsTwice | Says::ProbesStack | Says::Guarded, _) => {}
            }
        }
        passed
    }

    /// Combines a call's attributes with those of the callee's declaration.
    pub(crate) fn and(self, more: Passed) -> Passed {
        let or = |a: u32, b: u32| if a == 0 { b } else { a };
        Passed {
            extension: more.extension.or(self.extension),
            by_value: more.by_value.or(self.by_value),
            is_result: self.is_result || more.is_result,
            is_nest: self.is_nest || more.is_nest,
            align: or(more.align, self.align),
            stack_align: or(more.stack_align, self.stack_align),
            not: more.not.or(self.not),
        }
    }
}

const ODD: &str = "an unusual attribute";

/// A valid alignment: a power of two.
fn power(bytes: u64) -> Option<u32> {
    let bytes = u32::try_from(bytes).ok()?;
    bytes.is_power_of_two().then_some(bytes)
}

/// The attributes of a function, or a call, as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) returns_twice: bool,
    pub(crate) probes_stack: bool,
    pub(crate) guarded: bool,
    pub(crate) stack_align: bool,
    pub(crate) not: Option<&'static str>,
}

impl Whole {
    fn of(attributes: &[Attribute]) -> Whole {
        let mut whole = Whole::default();
        for says in attributes.iter().filter_map(said) {
            match says {
                Says::ReturnsTwice => whole.returns_twice = true,
                Says::ProbesStack => whole.probes_stack = true,
                Says::Guarded => whole.guarded = true,
                Says::StackAlign => whole.stack_align = true,
                Says::Not(what) => whole.not = Some(what),
                _ => {}
            }
        }
        whole
    }
}

/// The number of an attribute that has one.
fn kind(attribute: &Attribute) -> Option<u32> {
    match *attribute {
        Attribute::Flag(kind) | Attribute::Number(kind, _) | Attribute::Typed(kind, _) => {
            Some(kind)
        }
        Attribute::Text(..) => None,
    }
}

fn said(attribute: &Attribute) -> Option<Says> {
    match attribute {
        Attribute::Text(key, value) if &**key == "target-features" => {
            let lacks = value.split(',').any(|feature| NEEDED.contains(&feature));
            lacks.then_some(Says::Not("a processor without vector registers or x87"))
        }
        Attribute::Text(key, value) => {
            let known = BY_TEXT.iter().find(|(name, ..)| *name == &**key);
            let &(_, valued, says) = known?;
            let none = valued && (value.is_empty() || &**value == "false");
            (!none).then_some(says)
        }
        Attribute::Flag(kind) | Attribute::Number(kind, _) | Attribute::Typed(kind, _) => {
            let known = BY_NUMBER.iter().find(|(number, _)| number == kind);
            let unknown = (*kind > LAST_KNOWN).then_some(Says::Not(ODD));
            known.map(|&(_, says)| says).or(unknown)
        }
    }
}

/// A list of attributes.
#[derive(Debug, Default)]
struct List {
    whole: Whole,
    /// Types required by attributes, of the result, then of parameters.
    wants: Box<[Wants]>,
    asks: bool,
    /// The passing of the result, then of parameters; those behind the last have none.
    passed: Box<[Passed]>,
}

/// Parameters that attributes are looked up of.
const MOST_PARAMETERS: u32 = 1 << 10;

impl List {
    fn of(attributes: &Attributes) -> List {
        let mut whole = Whole::of(&attributes.function);
        let mut passed = vec![Passed::of(&attributes.result)];
        for (index, list) in &attributes.parameters {
            if *index >= MOST_PARAMETERS {
                whole.not = Some(ODD);
                continue;
            }
            let at = *index as usize + 1;
            if passed.len() <= at {
                passed.resize(at + 1, Passed::default());
            }
            passed[at] = passed[at].and(Passed::of(list));
        }
        let mut wants = vec![Wants::default(); passed.len()];
        wants[0] = Wants::of(&attributes.result, AttributePlace::Result);
        for (index, list) in &attributes.parameters {
            if let Some(wants) = wants.get_mut(*index as usize + 1) {
                *wants = Wants::of(list, AttributePlace::Parameter);
            }
        }
        if !Wants::of(&attributes.function, AttributePlace::Function).is_nothing() {
            whole.not = Some(ODD);
        }
        List {
            whole,
            asks: wants.len() > 1 || !wants[0].is_nothing(),
            wants: wants.into(),
            passed: passed.into(),
        }
    }
}

/// The lists of one module.
#[derive(Debug)]
pub(crate) struct Lists(Vec<List>);

impl Lists {
    pub(crate) fn of(all: &[Attributes]) -> Lists {
        Lists(all.iter().map(List::of).collect())
    }

    pub(crate) fn whole(&self, id: AttributesId) -> Whole {
        self.0
            .get(id.0 as usize)
            .map_or(Whole::default(), |it| it.whole)
    }

    /// Whether attributes of values require no types.
    pub(crate) fn wants_nothing(&self, id: AttributesId) -> bool {
        self.0.get(id.0 as usize).is_none_or(|it| !it.asks)
    }

    /// The types required by attributes of the result (0) or a parameter (from 1); `None` behind
    /// the last.
    pub(crate) fn wants(&self, id: AttributesId, index: usize) -> Option<Wants> {
        let list = self.0.get(id.0 as usize)?;
        list.wants.get(index).copied()
    }

    /// How the result (0) or a parameter (from 1) is passed.
    pub(crate) fn passed(&self, id: AttributesId, index: u32) -> Passed {
        let list = self.0.get(id.0 as usize);
        let passed = list.and_then(|list| list.passed.get(index as usize));
        passed.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Passed, SILENT, Whole};
    use uruk_bitcode::ir::Attribute;

    #[test]
    fn what_is_in_no_table_is_not_covered() {
        let silent = |kind: &u32| Passed::of(&[Attribute::Flag(*kind)]).not.is_none();
        let covered: Vec<u32> = (0..300).filter(silent).collect();
        // Those with an effect that need no more than their number.
        let mut expected = vec![8, 23, 24, 26, 27, 28, 29, 34];
        expected.extend(SILENT);
        expected.sort_unstable();
        assert_eq!(covered, expected);
        let whole = |kind| Whole::of(&[Attribute::Flag(kind)]).not.is_none();
        assert!(whole(18) && whole(43) && whole(105));
        assert!(
            !whole(44) && !whole(106),
            "a safe stack, and what is not known"
        );
    }

    #[test]
    fn processors_that_lack_registers_are_not_covered() {
        let features = |text: &str| {
            let attribute = Attribute::Text("target-features".into(), text.into());
            Whole::of(&[attribute]).not.is_none()
        };
        assert!(features("+cx8,+mmx,+sse,+sse2,+x87") && features("") && features("-sse3,-avx"));
        assert!(!features("+cx8,-sse2") && !features("-x87") && !features("+soft-float"));
    }
}
