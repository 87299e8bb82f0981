//! What images do before they are removed: their last calls, and being complete if they stay.

use std::sync::{Arc, PoisonError};

use tracing::debug;
use uruk_base::FunctionId;

use super::life::Life;
use crate::core::{Body, Core};
use crate::fork::gate;
use crate::guest::{exit, threads};
use crate::version::calls;

impl Core {
    /// Runs destructors of images and what they registered to be called at the end of the process,
    /// and has what somebody holds of them be complete. To be called before they are removed, without a lock; handlers
    /// run on the calling thread. Whether somebody holds any of them.
    pub(crate) fn leave(self: &Arc<Self>, images: &[Arc<Life>]) -> bool {
        let held = exit::run_and_close(self, images);
        if held.is_empty() {
            return false;
        }
        for image in &held {
            let functions = {
                let _pass = gate::enter();
                self.functions_in(image)
            };
            for id in functions {
                // One for each: a fork waits for no more than one of them.
                let _pass = gate::enter();
                if self.stubs.entry(id).is_some() {
                    continue;
                }
                // Names go next. What cannot be compiled could not have been called before.
                if let Err(cause) = calls::compile_now(self, id, None) {
                    debug!(function = self.name_of(id), %cause, "stays without code");
                }
            }
        }
        true
    }

    /// [`Core::leave`] of all images, where the session ends. What somebody holds then keeps the
    /// session's memory. A thread of ours, on which a listener dropped the last handle, runs no
    /// handlers: it may be the one that their first calls wait for.
    pub(crate) fn leave_all(self: &Arc<Self>) {
        let images = {
            let _pass = gate::enter();
            let lives = &self.names.lives;
            lives.going(lives.all())
        };
        let ours = threads::is_ours();
        let held = !ours && self.leave(&images);
        let _pass = gate::enter();
        let held = held || ours && images.iter().any(|image| image.is_held());
        if held || self.names.lives.any_stays() {
            // For good: who calls it does not say when it was for the last time.
            std::mem::forget(Arc::clone(self));
        }
    }

    /// The functions whose bodies are of an image's modules.
    fn functions_in(&self, image: &Arc<Life>) -> Vec<FunctionId> {
        let functions = self
            .functions
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let theirs = functions.iter().filter(|(_, body)| match body {
            Body::Module(function) => Arc::ptr_eq(&function.module.life, image),
            _ => false,
        });
        theirs
            .filter_map(|(index, _)| self.stubs.function(index))
            .collect()
    }
}
