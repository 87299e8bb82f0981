//! Variables with memory of their own, outside of the reservation.
//!
//! Code and data of the small model reach 2 GiB. A static linker puts large zero-initialized
//! variables behind all other data, where their beginnings are still reached; the reservation has
//! no such place. Where those of an image are more than [`MOST`] together, the largest are mapped
//! separately. For all files of the image they are then like variables of libraries: code reads
//! their addresses from words.

use std::collections::HashSet;
use std::sync::Arc;

use uruk_codegen::{Access, Kind, ModulePlan, SymbolId};
use uruk_session::Tracker;

use crate::code::bonds::Remaining;
use crate::code::names::{Definition, NewName};
use crate::code::static_names::display_name;
use crate::error::Error;
use crate::host::mapping::Mapping;
use crate::load::input::Input;
use crate::load::loader::Loader;

/// Maximal bytes of large variables that an image has in the reservation: any reservation has room
/// for them.
const MOST: u64 = 512 << 20;

/// A zero-initialized variable.
#[derive(Debug)]
pub(crate) struct ZeroVariable {
    /// Its link name.
    pub(crate) name: Box<str>,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Whether only its own dylib finds it.
    pub(crate) hidden: bool,
}

/// Chooses the variables to map separately, the largest first, and marks them in the plans.
pub(super) fn choose(inputs: &[Input<'_>], plans: &mut [ModulePlan]) -> Vec<ZeroVariable> {
    let mut large = Vec::new();
    for (input, (file, plan)) in inputs.iter().zip(plans.iter().enumerate()) {
        let Input::Module { summary, .. } = input else {
            continue;
        };
        for (index, info) in summary.symbols.iter().enumerate() {
            if info.zeros != 0 && plan.imports[index].defined {
                large.push((info.zeros, file, SymbolId(index as u32)));
            }
        }
    }
    let mut total = (large.iter()).fold(0u64, |sum, (size, ..)| sum.saturating_add(*size));
    if total <= MOST {
        return Vec::new();
    }
    large.sort_unstable_by_key(|&(size, file, id)| (u64::MAX - size, file, id.0));
    let mut apart = Vec::new();
    for (size, file, id) in large {
        if total <= MOST {
            break;
        }
        let Input::Module { summary, .. } = &inputs[file] else {
            continue;
        };
        // The target of an alias lies where the alias is defined.
        let is_base = |kind: &Kind| matches!(kind, Kind::Alias { base, .. } if *base == Some(id));
        if summary.symbols.iter().any(|info| is_base(&info.kind)) {
            continue;
        }
        total -= size;
        let import = &plans[file].imports[id.index()];
        apart.push(ZeroVariable {
            name: import.name.clone(),
            size,
            hidden: summary.symbols[id.index()].hidden,
        });
    }
    let names: HashSet<&str> = apart.iter().map(|it| &*it.name).collect();
    let of_plans = plans.iter_mut().flat_map(|plan| &mut plan.imports);
    for import in of_plans.filter(|import| names.contains(&*import.name)) {
        import.defined = false;
        import.access = Access::Indirect;
    }
    apart
}

impl Loader {
    /// Maps these variables, and defines their names.
    pub(super) fn define_apart(
        &self,
        tracker: &Tracker,
        remaining: Option<&Remaining>,
        variables: Vec<ZeroVariable>,
    ) -> Result<Arc<[Mapping]>, Error> {
        let map = |variable: &ZeroVariable| {
            let mapping = Mapping::new(variable.size as usize);
            mapping.map_err(|cause| Error::Variable {
                name: display_name(&variable.name).to_owned(),
                size: variable.size,
                cause: Arc::new(cause),
            })
        };
        let mapped = variables.iter().map(map);
        let mapped = mapped.collect::<Result<Arc<[Mapping]>, Error>>()?;
        let named = variables.into_iter().zip(&*mapped);
        let names = named.map(|(variable, mapping)| {
            let at = Definition::Address(mapping.range().start);
            NewName::strong(variable.name, at).hidden(variable.hidden)
        });
        self.define_names(tracker, remaining, names.collect())?;
        if !mapped.is_empty() {
            self.owners.expect_apart();
        }
        Ok(mapped)
    }
}
