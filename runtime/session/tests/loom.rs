//! Models of code that runs without the session's lock: run with
//! `RUSTFLAGS="--cfg loom" cargo test -p uruk-session --release --test loom`.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use uruk_session::model::{ReadyTable, Waiter};
use uruk_session::{Flags, Pool, PoolConfig, SymbolPool};

fn model(check: impl Fn() + Sync + Send + 'static) {
    bounded(3, check);
}

fn bounded(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

/// A thread that reads a ready address also sees the code written before it was published.
#[test]
fn a_ready_address_is_of_finished_code() {
    model(|| {
        let pool = SymbolPool::new();
        let symbol = pool.intern("f");
        let table = Arc::new(ReadyTable::new());
        let code = Arc::new(AtomicU64::new(0));
        table.define(symbol, Flags::EXPORTED);
        let (writer, bytes) = (Arc::clone(&table), Arc::clone(&code));
        let thread = loom::thread::spawn(move || {
            bytes.store(42, Ordering::Relaxed);
            writer.publish(symbol, 0x1000, Flags::EXPORTED);
        });
        if let Some(address) = table.address(symbol) {
            assert_eq!(address, 0x1000);
            assert_eq!(code.load(Ordering::Relaxed), 42);
        }
        thread.join().unwrap();
        assert_eq!(table.address(symbol), Some(0x1000));
        table.clear(symbol);
        assert_eq!(table.address(symbol), None);
    });
}

fn pool(jobs: usize) -> Pool {
    let config = PoolConfig {
        jobs,
        ..PoolConfig::default()
    };
    Pool::new(config, std::sync::Arc::new(|_: &str| {}))
}

/// A wait that another thread ends is never missed.
#[test]
fn a_wait_ends() {
    model(|| {
        let pool = pool(0);
        let waiter = std::sync::Arc::new(Waiter::new());
        let other = std::sync::Arc::clone(&waiter);
        let thread = loom::thread::spawn(move || other.finish());
        assert!(pool.wait(&waiter));
        thread.join().unwrap();
    });
}

/// A thread that sees the end of a wait also sees all earlier writes, without waiting itself.
#[test]
fn what_was_waited_for_is_seen() {
    model(|| {
        let pool = pool(0);
        let waiter = std::sync::Arc::new(Waiter::new());
        let done = Arc::new(AtomicU64::new(0));
        let (other, work) = (std::sync::Arc::clone(&waiter), Arc::clone(&done));
        let thread = loom::thread::spawn(move || {
            work.store(42, Ordering::Relaxed);
            other.finish();
        });
        if waiter.is_done() {
            assert_eq!(done.load(Ordering::Relaxed), 42);
        }
        assert!(pool.wait(&waiter));
        assert_eq!(done.load(Ordering::Relaxed), 42);
        thread.join().unwrap();
    });
}

/// A waiting thread does the work that another puts into the queue, or that one
/// does it itself: the wait ends either way.
#[test]
fn a_waiting_thread_helps() {
    model(|| {
        let pool = pool(0);
        let waiter = std::sync::Arc::new(Waiter::new());
        let (other, spawner) = (std::sync::Arc::clone(&waiter), pool.clone());
        let thread = loom::thread::spawn(move || spawner.spawn(move || other.finish()));
        assert!(pool.wait(&waiter));
        thread.join().unwrap();
    });
}

/// Without workers, two threads' tasks each run once.
#[test]
fn tasks_run_once() {
    model(|| {
        let pool = pool(0);
        let runs = Arc::new(AtomicUsize::new(0));
        let (other, count) = (pool.clone(), Arc::clone(&runs));
        let thread = loom::thread::spawn(move || {
            other.spawn(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        let count = Arc::clone(&runs);
        pool.spawn(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        thread.join().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    });
}

/// A worker that goes to sleep while a task comes is woken, and `quit` ends it.
#[test]
fn a_worker_misses_no_task() {
    model(|| {
        let config = PoolConfig {
            jobs: 1,
            help_outside: false,
            ..PoolConfig::default()
        };
        let pool = Pool::new(config, std::sync::Arc::new(|_: &str| {}));
        for _ in 0..2 {
            let waiter = std::sync::Arc::new(Waiter::new());
            let other = std::sync::Arc::clone(&waiter);
            pool.spawn(move || other.finish());
            assert!(pool.wait(&waiter));
        }
        assert_eq!(pool.threads(), 1);
        pool.quit();
    });
}

/// The same while another thread keeps tasks from starting for a while.
#[test]
fn a_held_task_runs_after_all() {
    bounded(1, || {
        let config = PoolConfig {
            jobs: 1,
            help_outside: false,
            ..PoolConfig::default()
        };
        let pool = Pool::new(config, std::sync::Arc::new(|_: &str| {}));
        let waiter = std::sync::Arc::new(Waiter::new());
        let (other, held) = (std::sync::Arc::clone(&waiter), pool.clone());
        held.spawn(move || other.finish());
        pool.quiesce();
        pool.resume();
        assert!(pool.wait(&waiter));
        pool.quit();
    });
}
