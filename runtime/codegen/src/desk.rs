//! A desk: one LLVM context, and the emitters for its modules. Each reader uses one desk.
//!
//! A context with a target machine and a pipeline for each tier takes a megabyte and 0.3 ms to
//! make. Machine and pipeline are made when a module is emitted, which code of the baseline
//! compiler is not. A large module has a desk to itself. A program may have tens of thousands of
//! small modules. They are read one after the other at desks that a session shares
//! ([`ReadingRoom`](crate::ReadingRoom)). The last few stay open there ([`Opened`]), so that a
//! module that is added and called at once is read once.
//!
//! # Invariants
//! - A module open at a desk belongs to its context, and is closed before the context is dropped.
//! - A context keeps types, constants and metadata of closed modules. So a desk is *worn* after
//!   some work, and is dropped ([`Desk::is_worn`]).
//! - A module of a shared desk may have structs under other names than in its file: LLVM numbers a
//!   name that another module of the context has. No code depends on it, but text does; see
//!   [`Desk::renames`].

use std::cell::OnceCell;

use uruk_base::Tier;

use crate::attributes::AttributeKinds;
use crate::bitcode::Bitcode;
use crate::context::{LlvmContext, OwnedModule};
use crate::emit::Emitter;
use crate::error::CodegenError;
use crate::opened::{Opened, ReadingContext};
use crate::warm;

/// Bytes of bitcode up to which a module is read at shared desks: reading it again takes no longer
/// than a tenth of a compile.
pub(crate) const SMALL: usize = 32 << 10;

/// Number of modules that stay open at a shared desk.
const OPEN: usize = 8;

/// Bytes of bitcode of the open modules.
const OPEN_BYTES: usize = 64 << 10;

/// Bytes read at a shared desk in all. Their remains in the context are as large again.
const WORN_BYTES: usize = 1 << 20;

/// Units emitted at a shared desk in all.
const WORN_UNITS: usize = 2_000;

/// A context, and the emitters of its modules.
pub(crate) struct Desk {
    // Field order is drop order: modules and pipelines go before their context.
    /// Open modules that no reader holds, the last one read last.
    open: Vec<Opened>,
    /// The emitter of each tier, once needed.
    emitters: [OnceCell<Emitter>; 3],
    context: LlvmContext,
    kinds: AttributeKinds,
    /// True if modules are opened and closed here.
    shared: bool,
    /// Bytes of bitcode that were read at it.
    read: usize,
    units: usize,
    sound: bool,
}

// SAFETY: everything inside belongs to the desk's own context; a desk is moved between threads
// whole and used by one at a time (`&mut`).
unsafe impl Send for Desk {}

impl Drop for Desk {
    fn drop(&mut self) {
        // Open modules may point into the emitters that `warm` keeps for the next context.
        self.open.clear();
        if self.sound {
            let tiers = [Tier::Baseline, Tier::Optimized, Tier::Guided];
            let emitters = self.emitters.iter_mut().map(OnceCell::take);
            let there = tiers.into_iter().zip(emitters);
            warm::keep(there.filter_map(|(tier, emitter)| Some((tier, emitter?))));
        }
    }
}

impl Desk {
    /// A fresh one.
    pub(crate) fn new(shared: bool) -> Result<Desk, CodegenError> {
        let context = LlvmContext::new()?;
        let kinds = AttributeKinds::new();
        Ok(Desk {
            open: Vec::new(),
            emitters: Default::default(),
            context,
            kinds,
            shared,
            read: 0,
            units: 0,
            sound: true,
        })
    }

    /// The parts that reading a module takes.
    pub(crate) fn reading(&self) -> ReadingContext<'_> {
        ReadingContext {
            llvm: &self.context,
            kinds: &self.kinds,
            is_shared: self.shared,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether the structs of `bitcode` may have other names here than in the file.
    pub(crate) fn renames(&self, bitcode: &Bitcode) -> bool {
        self.shared && bitcode.names_structs()
    }

    /// Notes that a module is read.
    pub(crate) fn note_read(&mut self, bitcode: &Bitcode) {
        self.read += bitcode.bytes().len();
    }

    /// Units emitted so far.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    /// True once its context has gathered much data.
    pub(crate) fn is_worn(&self) -> bool {
        self.read > WORN_BYTES || self.units > WORN_UNITS
    }

    /// Keeps a module open, and closes the oldest beyond the limits.
    pub(crate) fn leave_open(&mut self, opened: Opened) {
        self.open.push(opened);
        let bytes = |open: &[Opened]| -> usize {
            let open = open.iter();
            open.map(|opened| opened.bitcode.bytes().len()).sum()
        };
        while self.open.len() > OPEN || (self.open.len() > 1 && bytes(&self.open) > OPEN_BYTES) {
            self.open.remove(0);
        }
    }

    /// Whether `bitcode` is open.
    pub(crate) fn has_open(&self, bitcode: &Bitcode) -> bool {
        self.open.iter().any(|opened| opened.bitcode.is(bitcode))
    }

    /// Takes up an open module.
    pub(crate) fn take_open(&mut self, bitcode: &Bitcode) -> Option<Opened> {
        let mut open = self.open.iter();
        let at = open.position(|opened| opened.bitcode.is(bitcode))?;
        Some(self.open.remove(at))
    }

    /// False after an error of LLVM: the state left in the context and in kept passes is not to be
    /// used.
    pub(crate) fn is_sound(&self) -> bool {
        self.sound
    }

    pub(crate) fn note_sound(&mut self, sound: bool) {
        self.sound &= sound;
    }

    pub(crate) fn note_unit(&mut self) {
        self.units += 1;
    }

    pub(crate) fn context(&self) -> &LlvmContext {
        &self.context
    }

    pub(crate) fn kinds(&self) -> &AttributeKinds {
        &self.kinds
    }

    /// The context, and the emitter of a tier.
    pub(crate) fn emitter(
        &mut self,
        tier: Tier,
    ) -> Result<(&LlvmContext, &mut Emitter), CodegenError> {
        self.ready(tier)?;
        let emitter = self.emitters[tier as usize - 1].get_mut();
        Ok((&self.context, emitter.expect("made above")))
    }

    /// The emitter of a tier, made if it is not there.
    fn ready(&self, tier: Tier) -> Result<&Emitter, CodegenError> {
        let place = &self.emitters[tier as usize - 1];
        match place.get() {
            Some(emitter) => Ok(emitter),
            None => {
                let emitter = warm::emitter(tier)?;
                Ok(place.get_or_init(|| emitter))
            }
        }
    }

    /// Gives a fresh module the target's triple and layout.
    pub(crate) fn prepare(&self, module: &OwnedModule) {
        // Without a machine the emission fails too, and reports why.
        if let Ok(emitter) = self.ready(Tier::Baseline) {
            emitter.prepare(module);
        }
    }

    /// Runs passes on a module that will not be emitted; LLVM's message if they fail.
    pub(crate) fn run_passes(&self, module: &mut OwnedModule, passes: &str) -> Result<(), String> {
        let emitter = self
            .ready(Tier::Baseline)
            .map_err(|cause| cause.to_string())?;
        emitter.run_passes(module, passes)
    }
}
