//! Lays out the data of a module, as sections and symbols, without LLVM.
//!
//! The result equals the part of an object file that LLVM's code generation would make for these
//! variables, position-independent and without a section for each. It has the same bytes, sizes,
//! alignments and references, in sections of the same kinds. Within a section variables lie in the
//! order of the module, so offsets may differ from LLVM's, which puts mergeable constants apart.
//!
//! If an initializer is unknown here (differences of addresses that are not in one section, vectors
//! of bits), the whole module is refused: LLVM emits it then.
//!
//! | file | does |
//! |---|---|
//! | here | variables, aliases and mentioned symbols |
//! | [`places`] | alignment, and choice of sections |
//! | [`values`] | values to bytes |
//! | [`addresses`] | constant expressions to addresses |

mod addresses;
mod places;
mod values;

use rustc_hash::FxHashMap;
use uruk_baseline::ir::Reach;
use uruk_bitcode::ir::{Module, ValueId};

use self::addresses::Address;
use self::places::Kept;
use self::values::Bytes;
use crate::refused::{Covered, invalid};
use crate::types::Types;
use crate::{Lowering, Outside, Refused};

/// Most bytes of values; a module with more is left to LLVM.
const MOST_BYTES: u64 = 1 << 28;

/// Most nested aliases of later aliases.
const ALIASES: usize = 8;

/// The globals to define, by number.
#[derive(Debug, Clone, Default)]
pub struct Chosen {
    /// Variables, and how they bind.
    pub variables: Vec<(u32, Binding)>,
    /// Aliases of them, or of each other.
    pub aliases: Vec<(u32, Binding)>,
    /// Globals to mention without a use: the linker defines them for modules that mention them.
    pub mentioned: Vec<u32>,
}

/// The binding of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The only one.
    Strong,
    /// Yields to another.
    Weak,
    /// Tentative: the largest is used.
    Common,
}

/// The content of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holds {
    /// Variables.
    Variables,
    /// Constants without addresses.
    Constants,
    /// Constants with addresses.
    Addresses,
    /// Variables that are zero at first.
    Zeros,
    /// Thread-local variables.
    ThreadLocals,
    /// Thread-local variables that are zero at first.
    ThreadLocalZeros,
}

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The name, as in an object file.
    pub name: Box<str>,
    /// Its content.
    pub holds: Holds,
    /// A power of two.
    pub align: u64,
    /// Its bytes; of zeros there are none.
    pub bytes: Vec<u8>,
    /// Its size in bytes.
    pub size: u64,
    /// The fields to fill in, by rising offset.
    pub fields: Vec<Field>,
}

/// Bytes that hold an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The field's offset.
    pub at: u64,
    /// The field's form.
    pub form: Form,
    /// The symbol's number.
    pub symbol: u32,
    /// The addend.
    pub addend: i64,
}

/// The form of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// 8 bytes: the address.
    Address,
    /// 4 bytes: the distance from the field.
    Distance,
    /// 8 bytes: the distance from the field.
    LongDistance,
}

/// A symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: Box<str>,
    /// Its place.
    pub place: Place,
    /// Size in bytes.
    pub size: u64,
    /// Yields to others; one from outside may be absent.
    pub is_weak: bool,
}

/// The place of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Outside of the module.
    Outside,
    /// At an offset in a section.
    In(u32, u64),
    /// Anywhere, aligned to that.
    Common(u64),
}

/// The data of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Data {
    /// Sections.
    pub sections: Vec<Section>,
    /// Symbols; each name once.
    pub symbols: Vec<Symbol>,
}

/// Sections and symbols as they come to be.
struct Making<'a> {
    module: &'a Module,
    types: &'a Types,
    outside: &'a dyn Outside,
    data: Data,
    /// Sections by name.
    sections: FxHashMap<Box<str>, u32>,
    symbols: FxHashMap<Box<str>, u32>,
    /// Symbols by global.
    of_globals: FxHashMap<u32, u32>,
    /// Parts of constants that may still be visited.
    parts: u32,
    /// Addresses to fill in, once all symbols have their places.
    late: Vec<Late>,
}

/// An address in a section.
struct Late {
    section: u32,
    at: u64,
    width: u64,
    address: Address,
}

impl Lowering {
    /// The data of the module: the definitions in `chosen`.
    ///
    /// # Errors
    /// The reason why LLVM has to emit it.
    pub fn data(&self, chosen: &Chosen, outside: &dyn Outside) -> Result<Data, Refused> {
        if let Some(refused) = self.not {
            return Err(refused);
        }
        let mut making = Making {
            module: &self.module,
            types: &self.types,
            outside,
            data: Data::default(),
            sections: FxHashMap::default(),
            symbols: FxHashMap::default(),
            of_globals: FxHashMap::default(),
            parts: addresses::PARTS,
            late: Vec::new(),
        };
        for &(global, binding) in &chosen.variables {
            making.variable(global, binding)?;
        }
        // An alias may refer to a later one.
        let mut left = chosen.aliases.clone();
        for _ in 0..ALIASES {
            let mut still = Vec::new();
            for (global, binding) in left {
                if !making.alias(global, binding)? {
                    still.push((global, binding));
                }
            }
            left = still;
        }
        if !left.is_empty() {
            return Err(Refused::Unread("an alias of something else"));
        }
        making.mention(&chosen.mentioned)?;
        making.fill()?;
        Ok(making.data)
    }
}

impl Making<'_> {
    fn variable(&mut self, global: u32, binding: Binding) -> Covered<()> {
        let (it, details) = self.global(global)?;
        let Some(value) = details.initializer else {
            return invalid("a variable without a value");
        };
        let Some(size) = self.types.info(it.ty).size else {
            return invalid("a variable without a size");
        };
        if it.is_special || details.is_unusual {
            return Err(Refused::Unread("an unusual variable"));
        }
        let align = self.alignment(it, details, size);
        if binding == Binding::Common {
            // As in LLVM, a tentative definition takes some room.
            let symbol = self.define(global, Place::Common(align), size.max(1))?;
            self.data.symbols[symbol as usize].is_weak = false;
            return Ok(());
        }
        let zero = !details.is_constant && self.is_zero(value, 0)?;
        let named = details
            .section
            .map(|at| &*self.module.sections[at as usize]);
        let kept = match (it.is_thread_local, named) {
            (true, Some(_)) => return Err(Refused::Unread("a section of thread-locals")),
            (_, None) if zero => Kept::Zeros,
            _ => Kept::Bytes(self.bytes(value, it.ty, size)?),
        };
        let has_addresses = matches!(&kept, Kept::Bytes(bytes) if !bytes.addresses.is_empty());
        let holds = match (it.is_thread_local, &kept) {
            (true, Kept::Zeros) => Holds::ThreadLocalZeros,
            (true, Kept::Bytes(_)) => Holds::ThreadLocals,
            (false, Kept::Zeros) => Holds::Zeros,
            (false, Kept::Bytes(_)) if !details.is_constant => Holds::Variables,
            (false, Kept::Bytes(_)) if has_addresses => Holds::Addresses,
            (false, Kept::Bytes(_)) => Holds::Constants,
        };
        let section = self.section(named, holds)?;
        let at = self.put(section, kept, size, align)?;
        let symbol = self.define(global, Place::In(section, at), size)?;
        self.data.symbols[symbol as usize].is_weak = binding == Binding::Weak;
        Ok(())
    }

    /// Defines an alias, if its target is defined.
    fn alias(&mut self, global: u32, binding: Binding) -> Covered<bool> {
        let (it, _) = self.global(global)?;
        let Some(aliasee) = it.aliasee else {
            return invalid("an alias of nothing");
        };
        let address = self.address(aliasee, 0)?;
        let (Some(base), None) = (address.plus, address.minus) else {
            return invalid("an alias of no address");
        };
        let Some(&symbol) = self.of_globals.get(&base) else {
            return Ok(false);
        };
        let base = &self.data.symbols[symbol as usize];
        let (Place::In(section, at), size) = (base.place, base.size) else {
            return Ok(false);
        };
        let at = at.checked_add_signed(address.addend);
        let end = self.data.sections[section as usize].size;
        let Some(at) = at.filter(|&at| at <= end) else {
            return Err(Refused::Unread("an alias outside of its base"));
        };
        let symbol = self.define(global, Place::In(section, at), size)?;
        self.data.symbols[symbol as usize].is_weak = binding == Binding::Weak;
        Ok(true)
    }

    /// Makes a table of the addresses of the globals to mention.
    fn mention(&mut self, globals: &[u32]) -> Covered<()> {
        if globals.is_empty() {
            return Ok(());
        }
        let section = self.section(None, Holds::Variables)?;
        let mut bytes = Bytes::of_size(8 * globals.len() as u64);
        for (index, &global) in globals.iter().enumerate() {
            let at = 8 * index as u64;
            bytes.addresses.push((at, 8, Address::of(global)));
        }
        let size = 8 * globals.len() as u64;
        let align = if size > 16 { 16 } else { 8 };
        self.put(section, Kept::Bytes(bytes), size, align)?;
        Ok(())
    }

    /// Defines a symbol of this module.
    fn define(&mut self, global: u32, place: Place, size: u64) -> Covered<u32> {
        let symbol = self.symbol(global)?;
        let it = &mut self.data.symbols[symbol as usize];
        if it.place != Place::Outside {
            return Err(Refused::Unread("two definitions of a name"));
        }
        it.place = place;
        it.size = size;
        Ok(symbol)
    }

    /// The symbol of a global.
    fn symbol(&mut self, global: u32) -> Covered<u32> {
        if let Some(&symbol) = self.of_globals.get(&global) {
            return Ok(symbol);
        }
        let symbol = match addresses::labelled(global) {
            Some(function) => self.outside.label_space(function)?,
            None => self.outside.symbol(global)?,
        };
        let next = self.data.symbols.len() as u32;
        let at = *self.symbols.entry(symbol.name.clone()).or_insert(next);
        if at == next {
            self.data.symbols.push(Symbol {
                name: symbol.name,
                place: Place::Outside,
                size: 0,
                is_weak: symbol.is_weak,
            });
        }
        self.of_globals.insert(global, at);
        Ok(at)
    }

    /// Fills addresses in.
    fn fill(&mut self) -> Covered<()> {
        for late in std::mem::take(&mut self.late) {
            let Late {
                section,
                at,
                width,
                address,
            } = late;
            let Some(plus) = address.plus else {
                return Err(Refused::Unread("a negative address"));
            };
            if addresses::labelled(plus).is_none()
                && self.outside.symbol(plus)?.reach == Reach::ThreadLocal
            {
                return Err(Refused::Unread("the address of a thread-local variable"));
            }
            let symbol = self.symbol(plus)?;
            let (form, addend) = match (address.minus, width) {
                (None, 8) => (Form::Address, address.addend),
                (Some(minus), 4 | 8) => {
                    let minus = self.symbol(minus)?;
                    let Some(base) = self.place_in(section, minus) else {
                        return Err(Refused::Unread("a distance from another section"));
                    };
                    // The distance of two places of one section is a number.
                    if let Some(place) = self.place_in(section, symbol) {
                        let distance = place.wrapping_sub(base) as i64;
                        let number = address.addend.wrapping_add(distance).to_le_bytes();
                        let bytes = &mut self.data.sections[section as usize].bytes;
                        let (at, width) = (at as usize, width as usize);
                        bytes[at..at + width].copy_from_slice(&number[..width]);
                        continue;
                    }
                    let form = match width {
                        4 => Form::Distance,
                        _ => Form::LongDistance,
                    };
                    let moved = at.wrapping_sub(base) as i64;
                    (form, address.addend.wrapping_add(moved))
                }
                _ => return Err(Refused::Unread("an address in another width")),
            };
            let field = Field {
                at,
                form,
                symbol,
                addend,
            };
            self.data.sections[section as usize].fields.push(field);
        }
        Ok(())
    }

    /// The offset in a section of a symbol that is not weak.
    fn place_in(&self, section: u32, symbol: u32) -> Option<u64> {
        let it = &self.data.symbols[symbol as usize];
        match it.place {
            Place::In(of, at) if of == section && !it.is_weak => Some(at),
            _ => None,
        }
    }

    fn is_zero(&mut self, value: ValueId, depth: u32) -> Covered<bool> {
        use uruk_bitcode::ir::Constant;
        let Some(constant) = self.constant(value, depth)? else {
            return Ok(false);
        };
        Ok(match constant {
            Constant::Null | Constant::Undef | Constant::Poison => true,
            Constant::Integer(words) | Constant::Float(words) => words.iter().all(|&it| it == 0),
            Constant::Data(elements) => elements.iter().all(|&it| it == 0),
            Constant::Aggregate(parts) => {
                for &part in parts {
                    if !self.is_zero(part, depth + 1)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }
}
