//! The last calls of images before their removal, and the completion of those that stay.

use std::sync::Arc;

use tracing::debug;
use uruk_base::FunctionId;

use crate::code::body::Body;
use crate::code::life::Life;
use crate::exits;
use crate::fork::gate;
use crate::fork::threads;
use crate::session::Session;
use crate::version::calls;

impl Session {
    /// Runs destructors of images and their handlers of the end of the process, and compiles the
    /// functions of held images. To be called before they are removed, without a lock; handlers run
    /// on the calling thread. Returns whether any image is held.
    pub(crate) fn leave(self: &Arc<Self>, images: &[Arc<Life>]) -> bool {
        let held = exits::run_and_close(self.loader(), images);
        if held.is_empty() {
            return false;
        }
        for image in &held {
            let functions = {
                let _pass = gate::enter();
                self.functions_in(image)
            };
            for id in functions {
                // One pass for each function: a fork waits for one compile only.
                let _pass = gate::enter();
                if self.stubs.entry(id).is_some() {
                    continue;
                }
                // The names are removed next. A function that cannot be compiled could not have
                // been called before.
                if let Err(cause) = calls::compile_now(self, id, None) {
                    debug!(function = self.name_of(id), %cause, "stays without code");
                }
            }
        }
        true
    }

    /// Like [`Session::leave`], for all images, at the end of the session. Held images then keep the
    /// session's memory. A thread of the runtime, on which a listener dropped the last handle, runs
    /// no handlers: their first calls may wait for that very thread.
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
            // Never dropped: the callers do not say when they call for the last time.
            std::mem::forget(Arc::clone(self));
        }
    }

    /// The functions whose bodies are of an image's modules.
    fn functions_in(&self, image: &Arc<Life>) -> Vec<FunctionId> {
        self.functions_where(|body| match body {
            Body::Module(function) => Arc::ptr_eq(&function.module.life, image),
            _ => false,
        })
    }
}
