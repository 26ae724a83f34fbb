//! Listening, ringing, waiting.

use std::sync::Arc;

use super::{Preemptions, explore};
use crate::executor::bell::Bell;
use crate::executor::mood::Mood;
use crate::executor::pace::Pace;
use crate::executor::sync::{AtomicU32, Ordering, thread};

/// Small enough for every order.
const ALL: Preemptions = Preemptions {
    short: None,
    full: None,
};

const BOUND: Preemptions = Preemptions {
    short: Some(3),
    full: Some(4),
};

/// A bell, and the work it rings for.
struct Queue {
    bell: Bell,
    pace: Pace,
    work: AtomicU32,
}

fn queue() -> Arc<Queue> {
    Arc::new(Queue {
        bell: Bell::new(),
        pace: Pace::new(),
        work: AtomicU32::new(0),
    })
}

/// Waits for work and takes one item of it.
fn take(queue: &Queue) {
    loop {
        let heard = queue.bell.listen();
        let taken = queue
            .work
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |work| {
                work.checked_sub(1)
            });
        if taken.is_ok() {
            return;
        }
        queue.bell.wait(heard, &queue.pace);
    }
}

fn put(queue: &Queue, items: u32, most: u32) {
    queue.work.fetch_add(items, Ordering::Relaxed);
    queue.bell.ring(most);
}

#[test]
fn one_ring_is_heard() {
    explore("one ring", ALL, || {
        let queue = queue();
        let waiter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || take(&queue)
        });
        put(&queue, 1, 1);
        waiter.join().unwrap();
    });
}

#[test]
fn a_ring_is_heard_while_waking_from_another() {
    explore("two rings", BOUND, || {
        let queue = queue();
        let waiter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                take(&queue);
                take(&queue);
            }
        });
        put(&queue, 1, 1);
        put(&queue, 1, 1);
        waiter.join().unwrap();
    });
}

#[test]
fn two_ringers_are_both_heard() {
    explore("two ringers", BOUND, || {
        let queue = queue();
        let ringer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || put(&queue, 1, 1)
        });
        let waiter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                take(&queue);
                take(&queue);
            }
        });
        put(&queue, 1, 1);
        ringer.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_ring_for_all_wakes_all_and_rings_for_one_wake_one_each() {
    for rings in [1, 2] {
        explore("two waiters", BOUND, move || {
            let queue = queue();
            let waiters = [(), ()].map(|()| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || take(&queue))
            });
            match rings {
                1 => put(&queue, 2, 2),
                _ => (0..2).for_each(|_| put(&queue, 1, 1)),
            }
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
    }
}

#[test]
fn a_mood_changed_while_waiting_is_kept_to_and_loses_no_ring() {
    explore("moods", ALL, || {
        let queue = queue();
        queue.pace.mood.set(Mood::Spinning);
        let waiter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || take(&queue)
        });
        queue.pace.mood.set(Mood::Parked);
        put(&queue, 1, 1);
        waiter.join().unwrap();
    });
}
