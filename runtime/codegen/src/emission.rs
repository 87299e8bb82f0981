//! From a filled unit to an object: the embedder's transform, passes, late hooks, and emission.

use std::sync::OnceLock;

use uruk_base::Tier;
use uruk_base::parts::{self, Part};

use crate::apart;
use crate::compile::Compile;
use crate::error::{CodegenError, Stop};
use crate::instrument;
use crate::optimize;
use crate::reader::Reader;
use crate::transform::Transform;
use crate::unit::Unit;
use crate::verifying::verify_module;

/// Runs the passes of `tier` on a unit, and emits it; `listing` gets the IR that is emitted.
pub(crate) fn emit(
    reader: &mut Reader,
    unit: &mut Unit,
    name: &str,
    tier: Tier,
    listing: Option<&OnceLock<String>>,
) -> Result<Vec<u8>, CodegenError> {
    reader.note_unit();
    let (nonlazybind, optnone) = (reader.kinds().nonlazybind, reader.kinds().optnone);
    let (nounwind, uwtable) = (reader.kinds().nounwind, reader.kinds().uwtable);
    let extensions = reader.kinds().extensions;
    reader.run(unit, name, tier, |context, emitter, unit| {
        let gate = context.gate();
        if unit.contents.needs_passes || tier > Tier::Baseline {
            let _optimizing = parts::enter(Part::Optimizing);
            optimize::run(context, emitter, unit, tier, optnone)?;
        }
        instrument::put_late(context, unit, nonlazybind);
        unit.describe_frames(nounwind, uwtable);
        unit.clear_above_flags(extensions);
        if let Some(listing) = listing {
            listing.get_or_init(|| unit.module.text());
        }
        if gate.look() {
            return Err(Stop::Cancelled);
        }
        let _emitting = parts::enter(Part::Emitting);
        Ok(apart::emit(gate, emitter, unit))
    })
}

/// Runs an embedder's transform on a unit, and checks that it is still a module.
pub(crate) fn transform(
    reader: &Reader,
    transform: &Transform,
    unit: &mut Unit,
    name: &str,
    how: &Compile,
) -> Result<(), CodegenError> {
    let cancel = how.cancel.as_ref();
    let done = transform.apply(&mut unit.module, name, how.tier, cancel);
    reader.proceed(name)?;
    let broken = done.err().or_else(|| verify_module(&unit.module));
    broken.map_or(Ok(()), |message| {
        Err(CodegenError::Transform {
            module: reader.name().to_owned(),
            unit: name.to_owned(),
            message,
        })
    })
}
