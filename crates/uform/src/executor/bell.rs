//! A bell: rung when there may be something to do, waited for by idle threads.
//!
//! The bell counts its rings. A thread *listens* (reads the count), then looks for
//! work, and only then *waits* for the count to differ from what it heard: a
//! ring between its look and its sleep is a different count, so it does not sleep.
//!
//! A waiting thread is in one of two states, and the ringer owes each something else:
//!
//! | state | left when | the ringer |
//! | --- | --- | --- |
//! | spinning | it reads another count, or its [`Pace`] runs out | changes the count |
//! | sleeping | the kernel wakes it, or refuses to let it sleep | changes the count, then wakes |
//!
//! Waking is a system call, and most rings find everyone spinning, so the ringer
//! makes it only when the number of sleepers is not zero. That is where a
//! wake-up could be lost, and why it is not:
//!
//! - the sleeper adds itself to `sleepers`, then reads `rings`;
//! - the ringer adds to `rings`, then reads `sleepers`.
//!
//! All four are sequentially consistent, so one of the two comes second in a
//! single order and sees what the other did. If the sleeper reads the old count,
//! the ringer sees it among the sleepers and wakes it; should it wake before the
//! sleeper is asleep, the kernel compares the count once more and lets it not
//! sleep. The count is 32 bits wide: it would have to be rung exactly 2³² times
//! within one look to be mistaken.

use super::futex::Futex;
use super::pace::{IDLE, Pace};
use super::sync::{AtomicU32, CachePadded, Ordering, load_in_order};

/// See the module.
pub(super) struct Bell {
    rings: CachePadded<Futex>,
    sleepers: CachePadded<AtomicU32>,
}

impl Bell {
    pub(super) fn new() -> Self {
        Bell {
            rings: CachePadded::new(Futex::new(0)),
            sleepers: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// The count, to be read before looking for work.
    pub(super) fn listen(&self) -> u32 {
        load_in_order(&self.rings)
    }

    /// Ends the waits of all who spin, and of up to `most` who sleep. What was
    /// written before is seen by every thread it wakes.
    pub(super) fn ring(&self, most: u32) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        if load_in_order(&self.sleepers) > 0 {
            self.rings.wake(most);
        }
    }

    /// Waits until the bell was rung since `heard`.
    pub(super) fn wait(&self, heard: u32, pace: &Pace) {
        let rung = || self.listen() != heard;
        if pace.spin(&IDLE, rung) {
            return;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !rung() {
            self.rings.sleep(heard);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
