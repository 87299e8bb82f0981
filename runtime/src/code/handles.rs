//! Handles of images (`__dso_handle`), by their address.

use crate::code::life::{ImageGone, Life};
use crate::fork::gate;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use uruk_base::locks::Mutex;

/// The registration of a handle, until its memory is freed.
pub(crate) struct Handle {
    address: u64,
    life: Weak<Life>,
}

static HANDLES: Mutex<BTreeMap<u64, Weak<Life>>> = Mutex::new(BTreeMap::new());

impl Handle {
    pub(crate) fn new(address: u64, life: &Arc<Life>) -> Handle {
        let mut handles = HANDLES.lock();
        let weak = Arc::downgrade(life);
        handles.insert(address, Weak::clone(&weak));
        drop(handles);
        life.note_handle(address);
        Handle {
            address,
            life: weak,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _pass = gate::enter();
        let mut handles = HANDLES.lock();
        handles.remove(&self.address);
        drop(handles);
        if let Some(life) = self.life.upgrade() {
            life.forget_handle(self.address);
        }
    }
}

/// The image whose handle is at `address`; `None` if it is no handle of the runtime. Under a pass.
pub(crate) fn image_of(address: u64) -> Option<Result<Arc<Life>, ImageGone>> {
    let handles = HANDLES.lock();
    let life = handles.get(&address)?;
    Some(life.upgrade().ok_or(ImageGone))
}
