//! Plans the data unit of a module by reading, before anything is copied.

use crate::compile::Compile;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef, VariableRef};
use crate::planning::Planning;
use crate::source::Source;
use crate::summary::{Kind, Placement, SymbolId};

/// The definitions of a data unit, each list in the order of the module.
#[derive(Default)]
pub(crate) struct DataPlan<'r> {
    pub(crate) functions: Vec<(SymbolId, FunctionRef<'r>)>,
    pub(crate) variables: Vec<(SymbolId, VariableRef<'r>)>,
    pub(crate) aliases: Vec<(SymbolId, ValueRef<'r>)>,
    /// True if the unit is not empty, even if it has only an alias of a definition elsewhere.
    pub(crate) any: bool,
}

impl<'r> DataPlan<'r> {
    /// The module's data, and with `everything` its functions too.
    pub(crate) fn of(source: Source<'r>, everything: bool) -> Result<DataPlan<'r>, CodegenError> {
        let how = Compile::baseline();
        let mut planning = Planning::new(source, &how);
        let mut plan = DataPlan::default();
        let is_here = |id: SymbolId| {
            let placement = source.info(id).placement;
            placement == Placement::DataUnit || (everything && placement == Placement::Own)
        };
        for (index, value) in source.reader.table().values().enumerate() {
            let id = SymbolId(index as u32);
            if !is_here(id) || !source.plan.import(id).defined {
                continue;
            }
            plan.any = true;
            if let Some(function) = value.as_function() {
                planning.read_bodies(function)?;
                plan.functions.push((id, function));
            } else if let Some(variable) = value.as_variable() {
                plan.variables.push((id, variable));
            } else if let Kind::Alias {
                base: Some(base), ..
            } = source.info(id).kind
                && is_here(base)
            {
                plan.aliases.push((id, value));
            }
        }
        Ok(plan)
    }
}
