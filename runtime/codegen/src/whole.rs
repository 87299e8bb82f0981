//! Compiles definitions of a module together to one object: its data, or all of it.

use uruk_base::Tier;

use crate::compile::Compile;
use crate::copy::UnitCopy;
use crate::copying::PlainLabels;
use crate::data::DataPlan;
use crate::emission::emit;
use crate::error::CodegenError;
use crate::jumps;
use crate::plan::ModulePlan;
use crate::reader::Reader;
use crate::source::Source;
use crate::unit::Unit;

/// The object of the module's data; `None` if there is nothing to compile.
pub(crate) fn compile_data(
    reader: &mut Reader,
    plan: &ModulePlan,
) -> Result<Option<Vec<u8>>, CodegenError> {
    compile(reader, plan, "the module's data", false)
}

/// The object of all that the plan says is defined here.
pub(crate) fn compile_everything(
    reader: &mut Reader,
    plan: &ModulePlan,
) -> Result<Option<Vec<u8>>, CodegenError> {
    compile(reader, plan, "the whole module", true)
}

fn compile(
    reader: &mut Reader,
    plan: &ModulePlan,
    name: &str,
    everything: bool,
) -> Result<Option<Vec<u8>>, CodegenError> {
    let how = Compile::baseline();
    let source = Source { reader, plan };
    let chosen = DataPlan::of(source, everything)?;
    let module = source.fresh(name);
    let mut copy = UnitCopy::new(source, &how, name, &module);
    if everything {
        copy.set_plain_labels(PlainLabels::All);
    }
    if !copy.data(&chosen)? {
        return Ok(None);
    }
    let contents = copy.finish()?;
    jumps::complete(reader.context(), &module);
    let mut unit = Unit { module, contents };
    emit(reader, &mut unit, name, Tier::Baseline, None).map(Some)
}
