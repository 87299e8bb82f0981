//! The types of a module.

use std::collections::HashMap;

use crate::ir::{Type, TypeId};
use crate::module::Refused;
use crate::walk::{Entry, Extent, Standard, Walk};

/// Codes of records.
mod code {
    pub(super) const COUNT: u64 = 1;
    pub(super) const VOID: u64 = 2;
    pub(super) const FLOAT: u64 = 3;
    pub(super) const DOUBLE: u64 = 4;
    pub(super) const LABEL: u64 = 5;
    pub(super) const INTEGER: u64 = 7;
    pub(super) const HALF: u64 = 10;
    pub(super) const ARRAY: u64 = 11;
    pub(super) const VECTOR: u64 = 12;
    pub(super) const X86_FP80: u64 = 13;
    pub(super) const FP128: u64 = 14;
    pub(super) const METADATA: u64 = 16;
    pub(super) const ANONYMOUS_STRUCT: u64 = 18;
    pub(super) const STRUCT_NAME: u64 = 19;
    pub(super) const NAMED_STRUCT: u64 = 20;
    pub(super) const FUNCTION: u64 = 21;
    pub(super) const TOKEN: u64 = 22;
    pub(super) const BFLOAT: u64 = 23;
    pub(super) const POINTER: u64 = 25;
}

/// Numbers of types by their content, for types that results may have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known(HashMap<Type, TypeId>);

impl Known {
    /// The number of a type, if the module has it.
    pub(crate) fn id(&self, ty: &Type) -> Option<TypeId> {
        self.0.get(ty).copied()
    }
}

/// Reads the block of types; also returns whether structs have names.
pub(crate) fn read(
    walk: &mut Walk<'_>,
    extent: Extent,
    standard: &Standard,
) -> Result<(Vec<Type>, Known, bool), Refused> {
    let mut inside = walk.enter(extent, standard);
    let (mut types, mut known, mut named) = (Vec::new(), Known::default(), false);
    loop {
        let code = match walk.next(&mut inside)? {
            Entry::End => return Ok((types, known, named)),
            Entry::Block(extent) => {
                walk.pass(extent);
                continue;
            }
            Entry::Record(code) => code,
        };
        named |= code == code::STRUCT_NAME;
        if matches!(code, code::COUNT | code::STRUCT_NAME) {
            continue;
        }
        let ty = one(code, &walk.record, types.len())?;
        let id = TypeId(types.len() as u32);
        if looked_up(&ty) {
            known.0.entry(ty.clone()).or_insert(id);
        }
        types.push(ty);
    }
}

fn looked_up(ty: &Type) -> bool {
    match ty {
        Type::Integer(1) | Type::Pointer(0) | Type::Vector(..) => true,
        Type::Struct(fields, false) => fields.len() == 2,
        _ => false,
    }
}

/// The type of a record; it consists of the `at` types before it.
fn one(code: u64, record: &[u64], at: usize) -> Result<Type, Refused> {
    let refused = Refused::Unknown("a type that is made of a later one");
    let id = |number: u64| match number < at as u64 {
        true => Ok(TypeId(number as u32)),
        false => Err(refused.clone()),
    };
    let ids = |list: &[u64]| list.iter().map(|&it| id(it)).collect::<Result<Vec<_>, _>>();
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(match (code, record) {
        (code::VOID, _) => Type::Void,
        (code::FLOAT, _) => Type::Float,
        (code::DOUBLE, _) => Type::Double,
        (code::LABEL, _) => Type::Label,
        (code::INTEGER, &[bits, ..]) => Type::Integer(short(bits)),
        (code::HALF, _) => Type::Half,
        (code::BFLOAT, _) => Type::BFloat,
        (code::X86_FP80, _) => Type::X86Fp80,
        (code::FP128, _) => Type::Fp128,
        (code::METADATA, _) => Type::Metadata,
        (code::TOKEN, _) => Type::Token,
        (code::POINTER, &[space, ..]) => Type::Pointer(short(space)),
        (code::ARRAY, &[count, of, ..]) => Type::Array(count, id(of)?),
        (code::VECTOR, &[count, of, ref rest @ ..]) => Type::Vector(
            short(count),
            id(of)?,
            rest.first().is_some_and(|&it| it != 0),
        ),
        (code::ANONYMOUS_STRUCT | code::NAMED_STRUCT, [packed, fields @ ..]) => {
            Type::Struct(ids(fields)?, *packed != 0)
        }
        (code::FUNCTION, [variadic, result, parameters @ ..]) => {
            Type::Function(id(*result)?, ids(parameters)?, *variadic != 0)
        }
        _ => Type::Other,
    })
}
