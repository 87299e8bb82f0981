//! Allowed places of attributes, and the types of values they require, as in LLVM's verifier.

use uruk_bitcode::ir::Attribute;

/// Types that attributes of one value require, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants(u8);

/// The place of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributePlace {
    Function,
    Result,
    Parameter,
}

const FUNCTION: u8 = 1;
const RESULT: u8 = 2;
const PARAMETER: u8 = 4;

impl Wants {
    const VALUE: u8 = 1;
    const POINTER: u8 = 2;
    const POINTERS: u8 = 4;
    const INTEGER: u8 = 8;
    const INTEGERS: u8 = 16;
    const NEVER: u8 = 32;

    /// The requirements of a list.
    pub(crate) fn of(list: &[Attribute], place: AttributePlace) -> Wants {
        let own = match place {
            AttributePlace::Function => FUNCTION,
            AttributePlace::Result => RESULT,
            AttributePlace::Parameter => PARAMETER,
        };
        let (mut wants, mut passings, mut extensions) = (0, 0, 0);
        let mut has = [0u128; 1];
        for attribute in list {
            let kind = match *attribute {
                Attribute::Flag(kind) | Attribute::Number(kind, _) | Attribute::Typed(kind, _) => {
                    kind
                }
                Attribute::Text(..) => continue,
            };
            let (places, asks) = rule(kind);
            wants |= match places & own {
                0 => Wants::NEVER,
                // Attributes of a function require nothing.
                FUNCTION => 0,
                _ => asks,
            };
            if kind < 128 {
                has[0] |= 1 << kind;
            }
            if place == AttributePlace::Parameter {
                passings += u32::from(matches!(kind, 3 | 8 | 29 | 38 | 65 | 69));
            }
            extensions +=
                u32::from(place != AttributePlace::Function && matches!(kind, 24 | 34 | 99));
        }
        let has = |kind: u32| has[0] >> kind & 1 != 0;
        let (always, never, none, size, least) = (2, 14, 37, 19, 6);
        let conflict = passings > 1
            || extensions > 1
            || has(always) && has(never)
            || has(none) && (!has(never) || has(size) || has(least))
            || has(29) && has(22);
        if conflict {
            wants |= Wants::NEVER;
        }
        Wants(wants)
    }

    /// Whether nothing is required.
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// Whether a value of a type may have the attributes: it must exist, and its scalar or lanes
    /// must be pointers or integers as required.
    pub(crate) fn allow(self, value: bool, pointer: bool, integer: bool, lanes: u32) -> bool {
        let allowed = (u8::from(value) * Wants::VALUE)
            | (u8::from(pointer && lanes == 0) * Wants::POINTER)
            | (u8::from(pointer) * Wants::POINTERS)
            | (u8::from(integer && lanes == 0) * Wants::INTEGER)
            | (u8::from(integer) * Wants::INTEGERS);
        self.0 & !allowed == 0
    }
}

/// The allowed places of an attribute, by LLVM's number in bitcode, and its required types.
fn rule(kind: u32) -> (u8, u8) {
    let both = RESULT | PARAMETER;
    match kind {
        1 => (both, Wants::POINTERS),
        9 | 39 | 41 | 42 => (both, Wants::POINTER),
        24 | 34 | 99 => (both, Wants::INTEGER),
        92 => (both, Wants::INTEGERS),
        5 | 68 | 87 => (both, Wants::VALUE),
        25 => (both | FUNCTION, Wants::VALUE),
        20 | 21 | 52 | 62 | 65 => (PARAMETER | FUNCTION, Wants::POINTER),
        3 | 8 | 11 | 29 | 38 | 47 | 69 | 77 | 81 | 89 | 91 | 94 | 102 | 103 => {
            (PARAMETER, Wants::POINTER)
        }
        80 => (PARAMETER, Wants::INTEGER),
        22 | 46 | 75 => (PARAMETER, Wants::VALUE),
        // Arguments that are constants: of intrinsics only.
        0 | 60 | 106.. => (0, 0),
        _ => (FUNCTION, 0),
    }
}
