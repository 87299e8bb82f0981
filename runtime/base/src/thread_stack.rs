//! A stack of values for a thread-local variable that has no destructor.
//!
//! The C library registers destructors of thread-local variables under the dynamic loader's lock. A thread
//! of the program may hold this lock while it waits for the thread that registers: in a constructor of a
//! library that is being opened, or interrupted in `dlsym` by a handler that calls or forks. So threads of
//! the runtime register theirs at their start, and others have none. A [`ThreadStack`] keeps no memory
//! while it is empty.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;

/// The stack. Values that are on it when the thread ends are not dropped.
pub struct ThreadStack<T>(ManuallyDrop<RefCell<Vec<T>>>);

impl<T> ThreadStack<T> {
    /// An empty stack.
    #[must_use]
    pub const fn new() -> ThreadStack<T> {
        ThreadStack(ManuallyDrop::new(RefCell::new(Vec::new())))
    }

    /// Puts a value on top.
    pub fn push(&self, value: T) {
        self.0.borrow_mut().push(value);
    }

    /// Drops the value on top, and the stack's memory with the last one.
    pub fn pop(&self) {
        let (_value, _memory);
        let mut values = self.0.borrow_mut();
        _value = values.pop();
        if values.is_empty() {
            _memory = std::mem::take(&mut *values);
        }
    }

    /// The result of `read` for all values, the top last.
    pub fn read<R>(&self, read: impl FnOnce(&[T]) -> R) -> R {
        read(&self.0.borrow())
    }
}

impl<T> Default for ThreadStack<T> {
    fn default() -> ThreadStack<T> {
        ThreadStack::new()
    }
}

impl<T> fmt::Debug for ThreadStack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.try_borrow().map(|values| values.len());
        f.debug_tuple("ThreadStack").field(&len.ok()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::ThreadStack;

    #[test]
    fn a_stack_needs_no_destructor_and_keeps_no_memory() {
        assert!(!std::mem::needs_drop::<ThreadStack<Vec<u8>>>());
        let stack = ThreadStack::new();
        stack.push(vec![1]);
        stack.push(vec![2]);
        assert_eq!(stack.read(<[Vec<u8>]>::to_vec), [[1], [2]]);
        stack.pop();
        assert_eq!(stack.read(|all| (all.len(), all[0][0])), (1, 1));
        stack.pop();
        stack.pop();
        assert_eq!(stack.0.borrow().capacity(), 0);
    }
}
