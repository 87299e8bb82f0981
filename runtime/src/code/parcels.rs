//! The bodies that a module offers to other modules.

use std::collections::HashMap;
use std::sync::Arc;
use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_codegen::{Parcel, SymbolId, Tier};

/// Maximal parcels kept by a module, including failed ones: some 8 MB.
const MOST_KEPT: usize = 4_000;

/// The bodies that a module offers to others.
#[derive(Default)]
pub(crate) struct Parcels(Mutex<Store>);

/// The parcels of one plan; another plan clears it.
#[derive(Default)]
struct Store {
    plan: u64,
    kept: HashMap<SymbolId, WantedParcel>,
}

/// The outcome for a body that was wanted.
#[derive(Clone)]
pub(crate) struct WantedParcel {
    /// `None`: not inlinable, at this tier or below.
    pub(crate) parcel: Option<Arc<Parcel>>,
    pub(crate) tier: Tier,
    /// The sources of the parcel.
    pub(crate) depends: Arc<[FunctionId]>,
}

impl Parcels {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock()
    }

    pub(crate) fn get(&self, plan: u64, symbol: SymbolId) -> Option<WantedParcel> {
        let store = self.lock();
        let kept = store.kept.get(&symbol).filter(|_| store.plan == plan);
        kept.cloned()
    }

    pub(crate) fn keep(&self, plan: u64, symbol: SymbolId, kept: WantedParcel) {
        let mut store = self.lock();
        if store.plan != plan || store.kept.len() >= MOST_KEPT {
            store.plan = plan;
            store.kept.clear();
        }
        store.kept.insert(symbol, kept);
    }
}
