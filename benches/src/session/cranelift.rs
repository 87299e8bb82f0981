//! The scenario of small modules by cranelift-jit: one function and one global at a time, in one
//! `JITModule`, each made ready before it is called.
//!
//! It has no way to give one back, so there are no cycles.

use anyhow::{Result, ensure};
use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlags, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{DataDescription, Linkage, Module, default_libcall_names};

use super::inputs;
use super::ours::call;
use super::readings::Meter;
use crate::reclaim::held_bytes;

/// Defines, calls and keeps some functions.
///
/// # Errors
/// What the library reports, another value.
pub fn modules(meter: &mut Meter, live: usize) -> Result<()> {
    let mut flags = settings::builder();
    flags.set("opt_level", "none")?;
    flags.set("is_pic", "false")?;
    let isa = cranelift_native::builder().map_err(anyhow::Error::msg)?;
    let isa = isa.finish(settings::Flags::new(flags))?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let mut building = FunctionBuilderContext::new();
    define(&mut module, &mut building, live)?;
    meter.phase("setup", 1);
    let before = held_bytes();
    for n in 0..live {
        define(&mut module, &mut building, n)?;
    }
    meter.phase("live", live.max(1));
    meter.value("live_bytes", (held_bytes() - before) / live.max(1) as f64);
    Ok(())
}

/// Defines function `n`, which returns a global of its own, and calls it.
fn define(module: &mut JITModule, building: &mut FunctionBuilderContext, n: usize) -> Result<()> {
    let global = module.declare_data(&format!("g{n}"), Linkage::Export, true, false)?;
    let mut data = DataDescription::new();
    data.define((n as i32).to_le_bytes().into());
    module.define_data(global, &data)?;
    let mut context = module.make_context();
    let result = AbiParam::new(types::I32);
    context.func.signature.returns.push(result);
    let name = inputs::numbered(n);
    let function = module.declare_function(&name, Linkage::Export, &context.func.signature)?;
    let global = module.declare_data_in_func(global, &mut context.func);
    let mut builder = FunctionBuilder::new(&mut context.func, building);
    let entry = builder.create_block();
    builder.switch_to_block(entry);
    builder.seal_block(entry);
    let pointer = module.target_config().pointer_type();
    let address = builder.ins().symbol_value(pointer, global);
    let value = builder
        .ins()
        .load(types::I32, MemFlags::trusted(), address, 0);
    builder.ins().return_(&[value]);
    builder.finalize();
    module.define_function(function, &mut context)?;
    module.clear_context(&mut context);
    module.finalize_definitions()?;
    let code = module.get_finalized_function(function) as usize as u64;
    // SAFETY: the function above, which takes nothing and returns its number.
    let value = unsafe { call(code) };
    ensure!(
        usize::try_from(value) == Ok(n),
        "function {n} returns {value}"
    );
    Ok(())
}
