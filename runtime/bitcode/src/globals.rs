//! Reads records of a module's globals: the fields for bodies, and those for linking.
//!
//! Positions are those of the records, behind the place of a name. A record may end before its last
//! fields, which then are zero.

use crate::ir::{
    AttributesId, ComdatKind, Details, Global, GlobalKind, Linkage, TypeId, Unnamed, ValueId,
    Visibility,
};
use crate::module::Refused;

/// Fields of a record.
struct Fields<'r>(&'r [u64]);

impl Fields<'_> {
    fn at(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or_default()
    }

    fn short(&self, index: usize) -> Result<u32, Refused> {
        u32::try_from(self.at(index)).map_err(|_| Refused::OutOfRange)
    }

    /// A number of which 0 means none, and 1 the first entry.
    fn maybe(&self, index: usize) -> Result<Option<u32>, Refused> {
        Ok(self.short(index)?.checked_sub(1))
    }

    fn value(&self, index: usize) -> Result<Option<ValueId>, Refused> {
        Ok(self.maybe(index)?.map(ValueId))
    }

    fn any(&self, list: &[usize]) -> bool {
        list.iter().any(|&index| self.at(index) != 0)
    }

    /// Range of a name: the first two fields.
    fn name(&self) -> Result<std::ops::Range<u32>, Refused> {
        let (from, length) = (self.short(0)?, self.short(1)?);
        let end = from.checked_add(length).ok_or(Refused::OutOfRange)?;
        Ok(from..end)
    }

    /// An alignment in bytes, from its logarithm plus one; 0 for none.
    fn align(&self, index: usize) -> Result<u64, Refused> {
        /// LLVM's largest alignment.
        const MOST: u32 = 32;
        match self.short(index)?.checked_sub(1) {
            None => Ok(0),
            Some(log @ 0..=MOST) => Ok(1 << log),
            Some(_) => Err(Refused::OutOfRange),
        }
    }

    fn linkage(&self, index: usize) -> Result<Linkage, Refused> {
        Ok(match self.at(index) {
            0 => Linkage::External,
            2 => Linkage::Appending,
            3 => Linkage::Internal,
            7 => Linkage::ExternalWeak,
            8 => Linkage::Common,
            9 => Linkage::Private,
            12 => Linkage::AvailableExternally,
            16 => Linkage::Weak,
            17 => Linkage::WeakOdr,
            18 => Linkage::LinkOnce,
            19 => Linkage::LinkOnceOdr,
            _ => return Err(Refused::Unknown("linkage of an old form")),
        })
    }

    fn visibility(&self, index: usize) -> Result<Visibility, Refused> {
        Ok(match self.at(index) {
            0 => Visibility::Default,
            1 => Visibility::Hidden,
            2 => Visibility::Protected,
            _ => return Err(Refused::OutOfRange),
        })
    }

    fn unnamed(&self, index: usize) -> Unnamed {
        match self.at(index) {
            0 => Unnamed::Significant,
            2 => Unnamed::LocallyUnnamed,
            _ => Unnamed::Unnamed,
        }
    }
}

/// Reads a global from its record.
pub(crate) fn global(kind: GlobalKind, record: &[u64]) -> Result<(Global, Details), Refused> {
    let fields = Fields(record);
    let plain = Global {
        kind,
        name: fields.name()?,
        ty: TypeId(fields.short(2)?),
        is_thread_local: false,
        convention: 0,
        attributes: AttributesId(0),
        personality: None,
        is_special: false,
        is_definition: true,
        aliasee: None,
    };
    match kind {
        GlobalKind::Variable => variable(&fields, plain),
        GlobalKind::Function => function(&fields, plain),
        GlobalKind::Alias | GlobalKind::Ifunc => alias(&fields, plain),
    }
}

fn variable(fields: &Fields<'_>, plain: Global) -> Result<(Global, Details), Refused> {
    const CONSTANT: u64 = 1;
    const EXPLICIT: u64 = 2;
    let flags = fields.at(3);
    if flags & EXPLICIT == 0 {
        return Err(Refused::Unknown("a variable of an old form"));
    }
    let initializer = fields.value(4)?;
    let global = Global {
        is_definition: initializer.is_some(),
        is_thread_local: fields.at(9) != 0,
        // Another address space.
        is_special: flags >> 2 != 0,
        ..plain
    };
    let details = Details {
        linkage: fields.linkage(5)?,
        align: fields.align(6)?,
        section: fields.maybe(7)?,
        visibility: fields.visibility(8)?,
        unnamed: fields.unnamed(10),
        comdat: fields.maybe(13)?,
        is_constant: flags & CONSTANT != 0,
        initializer,
        is_externally_initialized: fields.at(11) != 0,
        // A storage class of Windows, a partition, a code model.
        is_unusual: fields.any(&[12, 17, 19]),
        ..Details::default()
    };
    Ok((global, details))
}

fn function(fields: &Fields<'_>, plain: Global) -> Result<(Global, Details), Refused> {
    let global = Global {
        convention: fields.short(3)?,
        is_definition: fields.at(4) == 0,
        attributes: AttributesId(fields.short(6)?),
        // A collector, prologue data, prefix data, another address space.
        is_special: fields.any(&[10, 12, 15, 18]),
        personality: fields.value(16)?,
        ..plain
    };
    let details = Details {
        linkage: fields.linkage(5)?,
        align: fields.align(7)?,
        section: fields.maybe(8)?,
        visibility: fields.visibility(9)?,
        collector: fields.maybe(10)?,
        unnamed: fields.unnamed(11),
        comdat: fields.maybe(14)?,
        has_prefix: fields.at(15) != 0,
        is_unusual: fields.any(&[13, 18, 20]),
        ..Details::default()
    };
    Ok((global, details))
}

fn alias(fields: &Fields<'_>, plain: Global) -> Result<(Global, Details), Refused> {
    let is_alias = plain.kind == GlobalKind::Alias;
    let global = Global {
        is_special: fields.at(3) != 0,
        is_thread_local: is_alias && fields.at(8) != 0,
        aliasee: Some(ValueId(fields.short(4)?)),
        ..plain
    };
    let details = Details {
        linkage: fields.linkage(5)?,
        visibility: fields.visibility(6)?,
        is_unusual: match is_alias {
            true => fields.any(&[7, 12]),
            false => fields.any(&[9]),
        },
        ..Details::default()
    };
    Ok((global, details))
}

/// The selection kind of a group of definitions.
pub(crate) fn comdat(record: &[u64]) -> Result<ComdatKind, Refused> {
    let fields = Fields(record);
    fields.name()?;
    Ok(match fields.at(2) {
        1 => ComdatKind::Any,
        2 => ComdatKind::Exact,
        3 => ComdatKind::Largest,
        4 => ComdatKind::NoDuplicates,
        5 => ComdatKind::SameSize,
        _ => return Err(Refused::OutOfRange),
    })
}
