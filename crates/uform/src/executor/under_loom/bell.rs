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
struct Place {
    bell: Bell,
    pace: Pace,
    work: AtomicU32,
}

fn place() -> Arc<Place> {
    Arc::new(Place {
        bell: Bell::new(),
        pace: Pace::new(),
        work: AtomicU32::new(0),
    })
}

/// Waits for work and takes one piece of it.
fn take(place: &Place) {
    loop {
        let heard = place.bell.listen();
        let taken = place
            .work
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |work| {
                work.checked_sub(1)
            });
        if taken.is_ok() {
            return;
        }
        place.bell.wait(heard, &place.pace);
    }
}

fn put(place: &Place, pieces: u32, most: u32) {
    place.work.fetch_add(pieces, Ordering::Relaxed);
    place.bell.ring(most);
}

#[test]
fn one_ring_is_heard() {
    explore("one ring", ALL, || {
        let place = place();
        let waiter = thread::spawn({
            let place = Arc::clone(&place);
            move || take(&place)
        });
        put(&place, 1, 1);
        waiter.join().unwrap();
    });
}

#[test]
fn a_ring_is_heard_while_waking_from_another() {
    explore("two rings", BOUND, || {
        let place = place();
        let waiter = thread::spawn({
            let place = Arc::clone(&place);
            move || {
                take(&place);
                take(&place);
            }
        });
        put(&place, 1, 1);
        put(&place, 1, 1);
        waiter.join().unwrap();
    });
}

#[test]
fn two_ringers_are_both_heard() {
    explore("two ringers", BOUND, || {
        let place = place();
        let ringer = thread::spawn({
            let place = Arc::clone(&place);
            move || put(&place, 1, 1)
        });
        let waiter = thread::spawn({
            let place = Arc::clone(&place);
            move || {
                take(&place);
                take(&place);
            }
        });
        put(&place, 1, 1);
        ringer.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_ring_for_all_wakes_all_and_rings_for_one_wake_one_each() {
    for rings in [1, 2] {
        explore("two waiters", BOUND, move || {
            let place = place();
            let waiters = [(), ()].map(|()| {
                let place = Arc::clone(&place);
                thread::spawn(move || take(&place))
            });
            match rings {
                1 => put(&place, 2, 2),
                _ => (0..2).for_each(|_| put(&place, 1, 1)),
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
        let place = place();
        place.pace.mood.set(Mood::Spinning);
        let waiter = thread::spawn({
            let place = Arc::clone(&place);
            move || take(&place)
        });
        place.pace.mood.set(Mood::Parked);
        put(&place, 1, 1);
        waiter.join().unwrap();
    });
}
