//! Resources of embedders that code keeps.

use crate::fork::errands::Errand;
use crate::fork::hands::EmbedderThreads;
use crate::fork::{gate, panics};
use std::fmt;
use std::sync::Arc;
use uruk_base::locks::Mutex;
use uruk_session::{Behalf, Resource};

/// Resources kept for as long as code may run. They are released on a thread for code of embedders,
/// as the last owner may be dropped where such code must not run.
pub(crate) struct KeptResources {
    hands: Arc<EmbedderThreads>,
    /// Never contended, as each owner locks it alone: the lock makes the rest shareable.
    resources: Mutex<Vec<Box<dyn Resource>>>,
}

impl KeptResources {
    /// Without resources.
    pub(crate) fn new(hands: &Arc<EmbedderThreads>) -> KeptResources {
        KeptResources {
            hands: Arc::clone(hands),
            resources: Mutex::default(),
        }
    }

    pub(crate) fn add(&mut self, resource: Box<dyn Resource>) {
        let _pass = gate::enter();
        let mut held = self.resources.lock();
        held.push(resource);
    }

    /// Takes all resources, for the code that needs them.
    pub(crate) fn take(&mut self) -> KeptResources {
        KeptResources {
            hands: Arc::clone(&self.hands),
            resources: std::mem::take(&mut self.resources),
        }
    }
}

impl fmt::Debug for KeptResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptResources")
    }
}

impl Drop for KeptResources {
    fn drop(&mut self) {
        let resources = std::mem::take(&mut self.resources).into_inner();
        if resources.is_empty() {
            return;
        }
        let _pass = gate::enter();
        // No replacement waits for it.
        let _working = Behalf::now().owned(0).enter();
        self.hands.start_late(move || {
            let _others = Errand::Others.begin();
            // The resource attached last is released first.
            let all = resources.into_iter().rev();
            all.for_each(|resource| {
                let _ = panics::contained(|| resource.release());
            });
        });
    }
}
