//! One module whose symbol table was read at a desk (`desk`), and whose bodies are read on
//! demand.
//!
//! A reader belongs to one thread at a time. Its module is never modified: units are copied out of
//! it (see `copying`), so it serves any number of compiles at any tier. Recycling readers in
//! [`ReaderPool`](crate::ReaderPool), and desks, bounds the types and constants that compiles add
//! to the context.

use std::sync::Arc;

use inkwell::llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyFunction};
use inkwell::llvm_sys::error::LLVMErrorRef;

use uruk_base::Tier;
use uruk_base::parts::{self, Part};

use crate::attributes::AttributeKinds;
use crate::bitcode::{self, Bitcode};
use crate::compile::Compile;
use crate::context::{LlvmContext, OwnedModule, take_error};
use crate::cplusplus;
use crate::desk::Desk;
use crate::emit::Emitter;
use crate::error::{CodegenError, Stop};
use crate::foreign::Foreign;
use crate::handles::{FunctionRef, ValueRef};
use crate::library::Library;
use crate::opened::{Known, Opened, check_target};
use crate::parcel::Offer;
use crate::structure::Structure;
use crate::summary::{ModuleSummary, SymbolId};
use crate::table::SymbolTable;
use crate::unit::Unit;
use crate::verifying::verify_module;

/// Reads one body of a lazily read module that belongs to no reader. Its bits were checked before.
pub(crate) fn read_body(function: FunctionRef<'_>) -> Result<(), String> {
    let mut error: LLVMErrorRef = std::ptr::null_mut();
    // SAFETY: a live function of a lazy module; `error` is the place for the returned
    // `llvm::Error`, a single pointer, which is ours since the call.
    unsafe {
        cplusplus::materialize(&mut error, function.raw());
        take_error(error).map_or(Ok(()), Err)
    }
}

/// Whether a body is verified after reading. It is, unless that is impossible: see
/// `Planning::read_bodies`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verify {
    Yes,
    No,
}

/// A lazily read module, and the desk it is open at.
pub struct Reader {
    // Dropped first: it belongs to the desk's context.
    opened: Opened,
    desk: Desk,
}

// SAFETY: everything inside belongs to the desk's own context; a reader is
// moved between threads whole and used by one at a time (`&mut`).
unsafe impl Send for Reader {}

impl Reader {
    /// Reads the symbol table of `bitcode`, at a desk of its own.
    ///
    /// # Errors
    /// Bytes that are not bitcode, a module for another machine.
    pub fn new(bitcode: &Bitcode) -> Result<Reader, CodegenError> {
        Reader::at(Desk::new(false)?, bitcode, None)
    }

    /// Like [`Reader::new`], at a desk where the module may be open, with the knowledge of another
    /// reader of the same bytes. The desk is dropped on an error.
    pub(crate) fn at(
        mut desk: Desk,
        bitcode: &Bitcode,
        known: Option<&Known>,
    ) -> Result<Reader, CodegenError> {
        let opened = match desk.take_open(bitcode) {
            Some(opened) => opened,
            None => {
                desk.note_read(bitcode);
                let opened = Opened::read(desk.reading(), bitcode, known);
                opened.inspect_err(|_| desk.note_sound(false))?
            }
        };
        Ok(Reader { opened, desk })
    }

    /// Parses IR text at a shared desk, and keeps its bitcode. `None` if the text is large, or may
    /// name structs, whose names have a meaning in the file only. `None` also if a body is invalid,
    /// which is reported when it is called. The desk is dropped on an error.
    ///
    /// Units are the same for a parsed module and for one read from its bitcode. Both have the same
    /// symbols in the same order, and instructions are copied in their order.
    pub(crate) fn of_text(
        mut desk: Desk,
        name: &str,
        text: &str,
    ) -> Result<Option<Reader>, CodegenError> {
        let context = desk.context();
        let module = bitcode::parse(context, name, text)?;
        check_target(&module, name)?;
        let invalid = verify_module(&module).is_some();
        if context.take_errors().is_some() || invalid {
            return Ok(None);
        }
        let bitcode = Bitcode::write(name, &module);
        desk.note_read(&bitcode);
        let opened = Opened::of(desk.reading(), module, &bitcode, None)?;
        Ok(Some(Reader { opened, desk }))
    }

    /// Gives up the reader; returns its desk, at which the module stays open for a while.
    pub(crate) fn leave(self) -> Desk {
        let Reader { opened, mut desk } = self;
        desk.leave_open(opened);
        desk
    }

    /// True if the desk is shared by many modules.
    pub(crate) fn is_at_shared_desk(&self) -> bool {
        self.desk.is_shared()
    }

    /// The shape of the bitcode, if bodies are still to be read.
    pub(crate) fn structure(&self) -> Option<&Arc<Structure>> {
        self.opened.structure.as_ref()
    }

    /// Whether struct names in text about the module are those of the file.
    pub(crate) fn names_as_in_file(&self) -> bool {
        !self.desk.renames(self.bitcode())
    }

    /// The summary of the module.
    pub fn summary(&self) -> &Arc<ModuleSummary> {
        &self.opened.summary
    }

    /// The module's bytes.
    pub(crate) fn bitcode(&self) -> &Bitcode {
        &self.opened.bitcode
    }

    /// Number of units compiled at this reader's desk.
    pub fn compiles(&self) -> usize {
        self.desk.units()
    }

    /// Notes that one more unit is emitted.
    pub(crate) fn note_unit(&mut self) {
        self.desk.note_unit();
    }

    /// Runs `work`, which the token of `how` can cancel.
    pub(crate) fn watched<T>(
        &mut self,
        how: &Compile,
        work: impl FnOnce(&mut Reader) -> Result<T, CodegenError>,
    ) -> Result<T, CodegenError> {
        self.context().gate().watch(how.cancel.clone());
        let result = work(self);
        self.context().gate().watch(None);
        result
    }

    /// Fails if the compile of `unit` was cancelled.
    pub(crate) fn proceed(&self, unit: &str) -> Result<(), CodegenError> {
        match self.context().gate().look() {
            false => Ok(()),
            true => Err(self.cancelled(unit)),
        }
    }

    /// True if failures since may be due to a cancellation.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.context().gate().is_cancelled()
    }

    pub(crate) fn cancelled(&self, unit: &str) -> CodegenError {
        CodegenError::Cancelled {
            module: self.name().to_owned(),
            unit: unit.to_owned(),
        }
    }

    /// Runs `work` on a unit with the emitter of `tier`.
    pub(crate) fn run<T>(
        &mut self,
        unit: &mut Unit,
        name: &str,
        tier: Tier,
        work: impl FnOnce(&LlvmContext, &mut Emitter, &mut Unit) -> Result<T, Stop>,
    ) -> Result<T, CodegenError> {
        self.proceed(name)?;
        let module = self.opened.bitcode.name();
        let fail = |message| CodegenError::Emit {
            module: module.to_owned(),
            unit: name.to_owned(),
            message,
        };
        let (context, emitter) = self.desk.emitter(tier)?;
        let done = work(context, emitter, unit);
        if let Err(Stop::Failed(message)) = done {
            return Err(fail(message));
        }
        // Emission that was ended early may have met references to labels of functions that it did
        // not reach, and reported them as errors.
        let left = done.is_ok() && context.gate().is_cancelled();
        let whole = !(unit.contents.has_asm || left) || emitter.renew();
        // Emission always reports success; an error in the context decides.
        let error = context.take_errors();
        self.desk.note_sound(whole && (error.is_none() || left));
        match (done, error) {
            // Passes were skipped: neither the result nor an error is meaningful.
            _ if self.is_cancelled() => Err(self.cancelled(name)),
            (_, Some(message)) => Err(fail(message)),
            (Ok(done), None) => Ok(done),
            (Err(_), None) => Err(self.cancelled(name)),
        }
    }

    /// Runs passes on a unit that will not be emitted.
    pub(crate) fn run_passes(&self, unit: &mut Unit, passes: &str) -> Result<(), CodegenError> {
        let done = self.desk.run_passes(&mut unit.module, passes);
        done.map_err(|message| CodegenError::Emit {
            module: self.name().to_owned(),
            unit: String::from("facts"),
            message,
        })
    }

    /// False after an error of LLVM: the state left in the context and in kept passes is not to be
    /// used.
    pub fn is_sound(&self) -> bool {
        self.desk.is_sound()
    }

    /// Reads one body, and verifies it once.
    pub(crate) fn materialize(
        &self,
        function: FunctionRef<'_>,
        verify: Verify,
    ) -> Result<(), CodegenError> {
        let Some(id) = self.table().id(*function) else {
            // The module was read as a whole.
            return Ok(());
        };
        if self.opened.verified.borrow().contains(&id) {
            return Ok(());
        }
        let _materializing = parts::enter(Part::Materializing);
        self.proceed(&function.name())?;
        let fail = |message| CodegenError::Body {
            module: self.name().to_owned(),
            function: function.name(),
            message,
        };
        self.check_structure(id, function)?;
        let mut error: LLVMErrorRef = std::ptr::null_mut();
        // SAFETY: `function` is a live function of the lazy module; `error` is the
        // place for the returned `llvm::Error`, a single pointer.
        unsafe { cplusplus::materialize(&mut error, function.raw()) };
        // SAFETY: ours since the call.
        if let Some(message) = unsafe { take_error(error) } {
            return Err(fail(message));
        }
        // SAFETY: a live function with its body read.
        let broken = verify == Verify::Yes
            && unsafe {
                let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
                LLVMVerifyFunction(function.raw(), action) != 0
            };
        if broken {
            return Err(fail(format!(
                "its body is not valid IR: {}",
                self.verifier_message()
            )));
        }
        match self.context().take_errors() {
            None => {
                if verify == Verify::Yes {
                    self.opened.verified.borrow_mut().insert(id);
                }
                Ok(())
            }
            Some(message) => Err(fail(message)),
        }
    }

    /// Checks the bits of a body before LLVM reads them. Bodies are in the order of
    /// definitions, as are functions.
    fn check_structure(&self, id: SymbolId, function: FunctionRef<'_>) -> Result<(), CodegenError> {
        let Some(structure) = self.structure() else {
            return Ok(());
        };
        let Some(index) = self.table().body(id) else {
            return Ok(());
        };
        let checked = structure.check_body(self.bitcode().bytes(), index as usize);
        checked.map_err(|cause| CodegenError::Malformed {
            module: self.name().to_owned(),
            bit: cause.bit,
            block: cause.block,
            message: format!("in the body of `{}`, {}", function.name(), cause.what),
        })
    }

    /// The verifier's message on the bodies read so far.
    fn verifier_message(&self) -> String {
        verify_module(self.module()).unwrap_or_else(|| String::from("no message"))
    }

    pub(crate) fn library(&self) -> &Library {
        &self.opened.library
    }

    pub(crate) fn library_mut(&mut self) -> &mut Library {
        &mut self.opened.library
    }

    pub(crate) fn foreign(&self) -> &Foreign {
        &self.opened.foreign
    }

    /// Parses bodies that other modules offer.
    pub(crate) fn unpack(&mut self, offers: &[Offer]) {
        let context = self.desk.context();
        self.opened.foreign.unpack(context, offers);
    }

    pub(crate) fn module(&self) -> &OwnedModule {
        &self.opened.module
    }

    pub(crate) fn context(&self) -> &LlvmContext {
        self.desk.context()
    }

    pub(crate) fn table(&self) -> &SymbolTable {
        &self.opened.table
    }

    /// The function of that number.
    pub(crate) fn function(&self, id: SymbolId) -> Result<FunctionRef<'_>, CodegenError> {
        let function = self.table().function(id);
        function.ok_or_else(|| CodegenError::NoFunction {
            module: self.name().to_owned(),
            number: id.0,
        })
    }

    pub(crate) fn kinds(&self) -> &AttributeKinds {
        self.desk.kinds()
    }

    /// Gives a fresh module the target's triple and layout.
    pub(crate) fn prepare(&self, module: &OwnedModule) {
        self.desk.prepare(module);
    }

    /// The reader's global for one of a shelf, see `library`.
    pub(crate) fn home(&self, global: ValueRef<'_>) -> Option<ValueRef<'_>> {
        let id = self.library().home(global)?;
        Some(self.table().value(id))
    }

    pub(crate) fn name(&self) -> &str {
        self.opened.bitcode.name()
    }
}

/// Reads every body, also invalid ones.
pub(crate) fn read_all(reader: &Reader) -> Result<(), CodegenError> {
    for (index, info) in reader.summary().symbols.iter().enumerate() {
        let function = reader.table().function(SymbolId(index as u32));
        if let Some(function) = function
            && info.linkage.is_definition()
        {
            reader.materialize(function, Verify::No)?;
        }
    }
    Ok(())
}
