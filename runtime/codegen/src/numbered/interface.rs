//! The interface of a module for code outside, from the module's bytes. The text equals that of
//! [`crate::interface`] letter for letter, as either may be on either side of a comparison. LLVM
//! writes the text for constructs unknown here.
//!
//! # Why
//! A line of a read-eval-print loop compares three signatures. LLVM reads the symbols of a small
//! module in a third of a millisecond, on a thread of its own.

use uruk_bitcode::ir::{Attribute, Global, GlobalKind, Module, Type, TypeId, Unnamed};

use super::Numbered;
use super::summarize::RELEASE;
use crate::interface::DEPTH;
use crate::summary::{Kind, SymbolId};

/// Attributes of [`crate::attributes::OF_CALLS`], by LLVM's numbers in bitcode.
const OF_CALLS: [(u32, &str); 18] = [
    (25, "alignstack"),
    (69, "byref"),
    (3, "byval"),
    (43, "convergent"),
    (38, "inalloca"),
    (5, "inreg"),
    (7, "naked"),
    (8, "nest"),
    (10, "nobuiltin"),
    (17, "noreturn"),
    (65, "preallocated"),
    (23, "returns_twice"),
    (24, "signext"),
    (29, "sret"),
    (75, "swiftasync"),
    (47, "swifterror"),
    (46, "swiftself"),
    (34, "zeroext"),
];

const OPTNONE: u32 = 37;
const NORECURSE: u32 = 48;
/// Attributes that [`crate::interface`] takes as evidence, in its order.
const INFERRED: [(u32, &str); 3] = [(62, "nofree"), (63, "nosync"), (NORECURSE, "norecurse")];

/// Like [`crate::Reader::signature`]; `None` if LLVM has to write it.
pub(crate) fn signature(numbered: &Numbered, function: SymbolId) -> Option<String> {
    let (module, global) = global_of(numbered, function)?;
    let (GlobalKind::Function, Type::Function(result, parameters, open)) =
        (global.kind, module.ty(global.ty))
    else {
        return None;
    };
    let attributes = module.attributes(global.attributes);
    let of_parameter = |index: usize| -> Option<String> {
        let mut lists = attributes.parameters.iter();
        let list = lists.find(|(number, _)| *number as usize == index);
        list.map_or(Some(String::new()), |(_, list)| passing(module, list))
    };
    let mut words = Vec::with_capacity(parameters.len() + 1);
    for (index, &ty) in parameters.iter().enumerate() {
        words.push(text(module, ty, Structs::WrittenOut, 0)? + &of_parameter(index)?);
    }
    words.extend(open.then(|| String::from("...")));
    let convention = match global.convention {
        0 => String::new(),
        number => format!(" cc{number}"),
    };
    let result =
        text(module, *result, Structs::WrittenOut, 0)? + &passing(module, &attributes.result)?;
    Some(format!("{result} ({}){convention}", words.join(", ")))
}

/// The type of a symbol as LLVM writes it, with marks of how small integers are extended.
/// `None` if LLVM has to write it, also where arguments have other marks
/// ([`crate::Reader::types`]).
pub(crate) fn type_of(numbered: &Numbered, symbol: SymbolId) -> Option<String> {
    let (module, global) = global_of(numbered, symbol)?;
    let structs = match module.names_structs {
        true => Structs::ByName,
        false => Structs::AsInIr,
    };
    let (GlobalKind::Function, Type::Function(result, parameters, open)) =
        (global.kind, module.ty(global.ty))
    else {
        return text(module, global.ty, structs, 0);
    };
    let attributes = module.attributes(global.attributes);
    let marked = |ty: TypeId, list: &[Attribute]| {
        let mark = passing(module, list)?;
        let is_known = matches!(&*mark, "" | " signext" | " zeroext");
        is_known.then_some(text(module, ty, structs, 1)? + &mark)
    };
    let mut words = Vec::with_capacity(parameters.len() + 1);
    for (index, &ty) in parameters.iter().enumerate() {
        let mut lists = attributes.parameters.iter();
        let list = lists.find(|(number, _)| *number as usize == index);
        words.push(marked(ty, list.map_or(&[][..], |(_, list)| list))?);
    }
    words.extend(open.then(|| String::from("...")));
    let result = marked(*result, &attributes.result)?;
    Some(format!("{result} ({})", words.join(", ")))
}

/// Like [`crate::Reader::interprocedural`]; `None` if LLVM has to determine it.
#[expect(clippy::option_option, reason = "whether it is known, and what it is")]
pub(crate) fn interprocedural(numbered: &Numbered) -> Option<Option<String>> {
    let module = &*numbered.source.module;
    if module.release != RELEASE {
        return None;
    }
    for (index, info) in numbered.summary.symbols.iter().enumerate() {
        if !info.linkage.is_definition() || !matches!(info.kind, Kind::Function | Kind::Data) {
            continue;
        }
        let number = numbered.globals[index] as usize;
        let global = &module.globals[number];
        if module.details[number].unnamed == Unnamed::LocallyUnnamed {
            return Some(Some(format!("`{}` is local_unnamed_addr", info.name)));
        }
        if global.kind != GlobalKind::Function {
            continue;
        }
        let flags = &module.attributes(global.attributes).function;
        let has = |kind| flags.contains(&Attribute::Flag(kind));
        if has(OPTNONE) {
            continue;
        }
        let found = INFERRED
            .iter()
            .find(|(kind, _)| has(*kind) && !(*kind == NORECURSE && info.name == "main"));
        if let Some((_, name)) = found {
            return Some(Some(format!("`{}` is {name}", info.name)));
        }
    }
    Some(None)
}

/// A global of a module that LLVM would not change while it reads.
fn global_of(numbered: &Numbered, symbol: SymbolId) -> Option<(&Module, &Global)> {
    let module = &*numbered.source.module;
    let global = &module.globals[numbered.globals[symbol.index()] as usize];
    (module.release == RELEASE).then_some((module, global))
}

/// The attributes of a value that change how it is passed.
fn passing(module: &Module, attributes: &[Attribute]) -> Option<String> {
    let mut found = attributes.iter().filter_map(|attribute| {
        let (Attribute::Flag(kind) | Attribute::Number(kind, _) | Attribute::Typed(kind, _)) =
            attribute
        else {
            return None;
        };
        let (_, name) = OF_CALLS.iter().find(|(number, _)| number == kind)?;
        Some((attribute, name))
    });
    let Some((attribute, name)) = found.next() else {
        return Some(String::new());
    };
    // LLVM sorts them by numbers of its own.
    if found.next().is_some() {
        return None;
    }
    Some(match *attribute {
        Attribute::Typed(_, ty) => {
            format!(" {name}({})", text(module, ty, Structs::WrittenOut, 0)?)
        }
        Attribute::Number(_, value) if value != 0 => format!(" {name}({value})"),
        _ => format!(" {name}"),
    })
}

/// The form in which structs are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Structs {
    /// By their fields, as those of a signature.
    WrittenOut,
    /// By their fields, as LLVM writes those without a name.
    AsInIr,
    /// By their names, which LLVM has.
    ByName,
}

/// A type as LLVM writes it.
fn text(module: &Module, ty: TypeId, structs: Structs, depth: u32) -> Option<String> {
    if depth > DEPTH {
        return None;
    }
    let inner = |part: TypeId| text(module, part, structs, depth + 1);
    let all = |parts: &[TypeId]| {
        let parts: Option<Vec<String>> = parts.iter().map(|&part| inner(part)).collect();
        parts.map(|parts| parts.join(", "))
    };
    Some(match module.ty(ty) {
        Type::Void => "void".to_owned(),
        Type::Half => "half".to_owned(),
        Type::BFloat => "bfloat".to_owned(),
        Type::Float => "float".to_owned(),
        Type::Double => "double".to_owned(),
        Type::X86Fp80 => "x86_fp80".to_owned(),
        Type::Fp128 => "fp128".to_owned(),
        Type::Label => "label".to_owned(),
        Type::Metadata => "metadata".to_owned(),
        Type::Token => "token".to_owned(),
        Type::Integer(bits) => format!("i{bits}"),
        Type::Pointer(0) => "ptr".to_owned(),
        Type::Pointer(space) => format!("ptr addrspace({space})"),
        Type::Array(count, element) => format!("[{count} x {}]", inner(*element)?),
        Type::Vector(count, element, false) => format!("<{count} x {}>", inner(*element)?),
        Type::Vector(count, element, true) => format!("<vscale x {count} x {}>", inner(*element)?),
        Type::Struct(..) if structs == Structs::ByName => return None,
        Type::Struct(fields, packed) => {
            let fields = match structs {
                Structs::AsInIr if fields.is_empty() => String::new(),
                _ => format!(" {} ", all(fields)?),
            };
            match packed {
                false => format!("{{{fields}}}"),
                true => format!("<{{{fields}}}>"),
            }
        }
        Type::Function(result, parameters, open) => {
            let mut words = all(parameters)?;
            if *open {
                words += if parameters.is_empty() {
                    "..."
                } else {
                    ", ..."
                };
            }
            format!("{} ({words})", inner(*result)?)
        }
        _ => return None,
    })
}
