//! Backtraces of guarded calls: the addresses that a handler takes from the stack, and their names.

use std::ffi::CStr;

use crate::code::directory::directories;
use crate::code::static_names::continued;
use crate::error::trap::{Frame, Source, Trap};
use crate::fork::gate;

/// Return addresses of a stack, innermost first.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pcs: [u64; Trap::FRAMES],
    count: usize,
}

impl Addresses {
    pub(crate) const NONE: Addresses = Addresses {
        pcs: [0; Trap::FRAMES],
        count: 0,
    };

    /// Adds one; false if it is full.
    pub(crate) fn add(&mut self, pc: u64) -> bool {
        if let Some(place) = self.pcs.get_mut(self.count) {
            *place = pc;
            self.count += 1;
        }
        self.count < self.pcs.len()
    }

    /// Whether `is` holds for none of the callers.
    pub(crate) fn none(&self, is: impl Fn(u64) -> bool) -> bool {
        let pcs = self.pcs.iter().take(self.count).skip(1);
        pcs.copied().all(|pc| !is(pc))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The frames with names, up to the last one of a session: the guarded call is below it. The
    /// first address is that of an instruction, the others are behind their calls. While the
    /// addresses lie on a stack, their code stays.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::with_capacity(self.count);
        // The function whose continuation the previous frame is: it was called by a frame of the
        // same call, unless that was optimized away.
        let mut goes_on: Option<String> = None;
        for (index, &pc) in self.pcs.iter().take(self.count).enumerate() {
            let mut frame = frame(pc, pc.wrapping_sub(u64::from(index != 0)));
            let name = frame.function.as_deref().filter(|_| frame.jitted);
            let continued = name.and_then(continued).map(str::to_owned);
            if continued.is_some() {
                frame.function.clone_from(&continued);
            }
            let left = std::mem::replace(&mut goes_on, continued);
            if left.is_none() || left != frame.function {
                frames.push(frame);
            }
        }
        while frames.len() > 1 && frames.last().is_some_and(|frame| !frame.jitted) {
            frames.pop();
        }
        frames
    }
}

/// The frame of `address`, whose code is found by the address `within`.
fn frame(address: u64, within: u64) -> Frame {
    if uruk_unwind::covers(within) {
        let _pass = gate::enter();
        let found = directories().into_iter().find_map(|session| {
            let name = session.name_at(within)?;
            Some((name, session.source_at(within)))
        });
        let (function, source) = found.unzip();
        let source = source.flatten();
        let source = source.map(|(file, line)| Source { file, line });
        return Frame::jitted(address, function, source);
    }
    // SAFETY: an empty structure, filled by the call; names live as long as their library.
    let function = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(within as *const libc::c_void, &mut info) != 0;
        (found && !info.dli_sname.is_null()).then(|| {
            CStr::from_ptr(info.dli_sname)
                .to_string_lossy()
                .into_owned()
        })
    };
    Frame::native(address, function)
}
