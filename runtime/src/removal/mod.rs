//! Removes definitions from a session: the resources of an image, and their release.
//!
//! Every `add` puts its results under a tracker of the session: names, the stubs of functions,
//! memory. Removing the tracker releases the stubs (calls then go to the failure handler), and
//! retires all code. Data is freed after the last code that was linked against it: such code
//! [holds](crate::code::holding::Holding) the image. Before any of that, the image's destructors and its handlers of the
//! end of the process are called, and the parts that others may still call stay for as long
//! ([`life`](crate::code::life)).

mod leave;
mod undefined;

use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_session::{Dylib, Resource, Tracker};
use uruk_tiering::Next;

use crate::code::body::Body;
use crate::code::body::ModuleFunction;
use crate::code::life::Life;
use crate::code::static_names::LOCAL_MARKER;
use crate::error::Error;
use crate::fork::gate;
use crate::load::hooks::ImageHooks;
use crate::load::source::InputSource;
use crate::session::Session;
use uruk_base::Mode;

/// How often an input is bound anew because inputs that were added meanwhile had its names first.
const ATTEMPTS: u32 = 100;

impl Session {
    /// Drops a dylib that was removed.
    pub(crate) fn forget_dylib(&self, dylib: &Dylib) {
        self.removed.forget_dylib(dylib);
        self.waiting.allow(dylib, false);
    }

    /// Adds an input under `tracker`: all of it, or nothing.
    pub(crate) fn add(
        self: &Arc<Self>,
        tracker: &Tracker,
        source: InputSource,
    ) -> Result<(), Error> {
        let _pass = gate::enter();
        let mut attempts = 1..=ATTEMPTS;
        let mut spared = source.may_be_spared();
        let (own, image, started, remaining) = loop {
            let own = tracker.dylib().create_tentative_tracker()?;
            let remaining = self.remaining(&tracker.dylib())?;
            let names = Some(Arc::clone(&remaining));
            let tried = spared.then(|| self.load_spared(&own, names.clone(), &source));
            let loaded = match tried {
                Some(Some(done)) => done,
                Some(None) => {
                    spared = false;
                    remaining.remove();
                    let _ = own.remove();
                    continue;
                }
                None => self.load_and_start(&own, names, vec![source.clone()], Mode::Lazy, None),
            };
            match loaded {
                Ok((image, started)) => {
                    self.warn_of_interposers(&image, |_| false);
                    if let Err(cause) = self.keep_remaining(&own, &image.life, &remaining) {
                        remaining.remove();
                        return Err(cause);
                    }
                    break (own, image, started, remaining);
                }
                Err(cause) => {
                    // The definitions that were replaced are there again. Not left to the last
                    // handle: a thread that LLVM took down keeps one. Defunct only if the dylib is,
                    // and then its definitions are gone, too.
                    remaining.remove();
                    let _ = own.remove();
                    // Each late input lets another one finish.
                    if !remaining.is_late() || attempts.next().is_none() {
                        return Err(cause);
                    }
                }
            }
        };
        let hooks = started.map(|started| ImageHooks::of(self, &image, &started));
        if let Err(cause) = own.transfer_to(tracker) {
            remaining.remove();
            return Err(cause.into());
        }
        remaining.finish();
        if let Some(hooks) = hooks {
            self.schedule().add(hooks);
        }
        self.retry_failed();
        Ok(())
    }

    /// The resource that removes functions of an image when it is released, once none of them can
    /// be called. An image that stays keeps them, and so do images that replaced them.
    pub(crate) fn removal_of(
        self: &Arc<Self>,
        image: &Arc<Life>,
        functions: Vec<FunctionId>,
    ) -> Box<dyn Resource> {
        let weak = Arc::downgrade(self);
        let image = Arc::clone(image);
        let functions = self.removed.undefined.owned(functions);
        Box::new(move || {
            let owner = Arc::clone(&image);
            image.when_unbound(Box::new(move || {
                let Some(session) = weak.upgrade() else {
                    return;
                };
                let undefined = &session.removed.undefined;
                let left = functions.into_iter().filter(|own| undefined.claim(own));
                left.for_each(|own| session.let_go(own.id, &owner));
            }));
        })
    }

    /// Removes a function of `image`, to which no image is bound any more, once no other image can
    /// call it.
    fn let_go(self: &Arc<Self>, id: FunctionId, image: &Arc<Life>) {
        let weak = Arc::downgrade(self);
        let remove = Box::new(move || {
            if let Some(session) = weak.upgrade() {
                session.remove_function(id);
            }
        });
        let Err(remove) = image.park(remove) else {
            return;
        };
        let Some(body) = self.life_of(id) else {
            return remove.release();
        };
        let holder = Arc::clone(&body);
        body.when_unbound(Box::new(move || {
            if let Err(remove) = holder.park(remove) {
                remove.release();
            }
        }));
    }

    /// Removes a function: calls of it go to the failure handler, its code is retired.
    pub(crate) fn remove_function(self: &Arc<Self>, id: FunctionId) {
        let versions = self.versions.of(id);
        // Compiles under way are late from here on. A thread that replaces the function finds its
        // slot closed.
        let settled = match versions.commit(Next::Unbound, |_| self.stubs.release(id)) {
            Ok(outcome) => {
                if let Ok(done) = outcome {
                    self.under_way.cancel(&done.dropped);
                }
                true
            }
            Err(_) => {
                versions.withdraw(|| ());
                self.stubs.release(id);
                false
            }
        };
        self.tuning.forget(id);
        self.host.forget_lazy(id);
        self.continuations.forget(id);
        self.speculation.forget(id);
        // The body before the record: a request for a version under the next record finds none, or
        // the one that comes after.
        let body = self.take_body(id);
        let record = self.versions.lock().remove(&id.index());
        let built = record.map(|record| record.built.into_iter().chain(record.staying));
        self.tiers.forget(id);
        self.eviction.forget(id);
        self.versions.fixed().remove(&id.index());
        for version in built.into_iter().flatten() {
            self.retire(version);
        }
        drop(self.objects.take_all(id));
        self.forget_cause(id);
        // Last: a replacement under way may name it, and so may the rollback history.
        let settled = self.replacing.forget(id) && settled;
        drop(self.take_linked(id));
        let file = |dylib: &Dylib, link_name: &str| {
            // An image that stayed may go after its dylib.
            let files = settled && !dylib.is_defunct() && !link_name.contains(LOCAL_MARKER);
            files.then(|| self.removed.file(dylib, link_name, id))?;
            Some((dylib.id(), Box::from(link_name)))
        };
        let reuse = |name, of_object| {
            if settled && !self.is_program() {
                self.removed.waiting.add(id, name, of_object);
            }
        };
        match body {
            // It never had a name.
            Some(Body::Module(ModuleFunction {
                origin: Some(_), ..
            })) => {}
            Some(Body::Module(function)) => {
                let plan = function.module.plan();
                let name = &plan.import(function.symbol).name;
                reuse(file(&function.module.dylib, name), false);
            }
            Some(Body::Unit(unit)) => {
                file(&unit.dylib, self.names.session().name(unit.own));
            }
            Some(Body::Object(_)) => reuse(None, true),
            None => {}
        }
    }
}
