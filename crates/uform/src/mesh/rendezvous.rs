//! The loop around the [protocol](super::protocol): reads, asks it what to do, does it, waits.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::folder::Folder;
pub use super::folder::Watch;
use super::member::{Member, Nonce, Prepared};
use super::protocol::{Ending, Next, Protocol};
use super::record::{Record, Run, Verdict};
use super::view::{Clock, View};
use crate::executor::Control;
use crate::{Error, Result};

/// The shortest wait between two looks: somebody is about to act.
const SHORTEST: Duration = Duration::from_millis(1);

/// The longest, of a run of up to [`FEW`] processes; larger ones look in proportion less often, since
/// each look reads as many files as there are processes.
const LONGEST: Duration = Duration::from_millis(50);

/// See [`LONGEST`].
const FEW: u32 = 16;

/// However many processes: a deadline is kept to within a second.
const LONGEST_OF_ALL: Duration = Duration::from_millis(400);

/// How soon a caller who gave up is heard.
const HEARING: Duration = Duration::from_millis(20);

/// After so long the record is written again. A client of a network file system may take a folder
/// to be unchanged for up to a minute, unless it changed something there itself.
const REFRESH: Duration = Duration::from_secs(2);

/// How long a refusal is left to be read by those who are still to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same when the deadline has passed.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// Where processes meet, and how long they wait.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<'a> {
    /// A directory that all of them see.
    pub directory: &'a Path,
    /// The folder in it: one path component.
    pub job: &'a str,
    /// How long any of them is waited for.
    pub timeout: Duration,
}

/// What a process does once it knows the others: makes and binds multicast memory with them, and, as index 0, what
/// the collectives need to meet. Not before, since nobody may come.
pub type Prepare<'a> = &'a mut dyn FnMut(&[Member]) -> Prepared;

/// A run that was joined. Dropping it leaves.
pub struct Joined {
    /// The processes in the order of their indexes.
    pub members: Vec<Member>,
    /// What each of them has made ready.
    pub prepared: Vec<Prepared>,
    /// What lies in the folder of an earlier run, and how to be rid of it.
    pub leftovers: Option<String>,
    own: Arc<Record>,
    folder: Folder,
}

impl Joined {
    /// Removes this process's files, and waits so long at most until that is done.
    pub(super) fn leave(&self, at_most: Duration) {
        let (folder, own) = (self.folder.clone(), Arc::clone(&self.own));
        let (done, until_done) = mpsc::channel();
        let leaving = thread::Builder::new().name("uform-leave".into());
        let spawned = leaving.spawn(move || {
            folder.leave(&own);
            _ = done.send(());
        });
        if spawned.is_ok() {
            _ = until_done.recv_timeout(at_most);
        }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.folder.leave(&self.own);
    }
}

/// Waits until all of `member.count` processes have met in a folder and agreed to be one run.
///
/// `prepare` is called once, when all are known and their facts agree. `control` gives up.
/// Nothing of this process is left in the folder when this fails.
///
/// # Errors
/// [`ConfigMismatch`](crate::Status::ConfigMismatch) naming who says what, and
/// [`TimedOut`](crate::Status::TimedOut) naming who did not come, in every process that was there;
/// [`NotFound`](crate::Status::NotFound), [`InvalidArgument`](crate::Status::InvalidArgument) and
/// [`Io`](crate::Status::Io) for a directory that is none or cannot be used;
/// [`Aborted`](crate::Status::Aborted).
pub fn join(
    member: Member,
    meeting: &Meeting<'_>,
    control: &Control,
    prepare: Prepare<'_>,
) -> Result<Joined> {
    join_watched(member, meeting, control, prepare, &|_| ())
}

/// The same; `watch` is told before every change to a file and every reading, and what it
/// is, so that a test may end the process there.
#[doc(hidden)]
pub fn join_watched(
    member: Member,
    meeting: &Meeting<'_>,
    control: &Control,
    prepare: Prepare<'_>,
    watch: Watch,
) -> Result<Joined> {
    let folder = Folder::new(meeting.directory, meeting.job, watch);
    let mut timer = Timer::start(meeting.timeout, member.count);
    let mut protocol = Protocol::new(Nonce::new()?, member);
    control.check()?;
    let ending = meet(&folder, &mut protocol, &mut timer, control, prepare);
    if let Ok((Ending::Joined, view)) = &ending
        && let Some(joined) = joined(&protocol, view, &folder)
    {
        return Ok(joined);
    }
    folder.leave(protocol.record());
    Err(match ending? {
        (Ending::Refused(refusal), _) => refusal.into(),
        (Ending::Cancelled, _) => Error::aborted(),
        (Ending::Joined, _) => Error::new(
            crate::Status::Internal,
            "a run was joined whose processes are not known",
        ),
    })
}

/// Takes the protocol to its end.
fn meet(
    folder: &Folder,
    protocol: &mut Protocol,
    timer: &mut Timer,
    control: &Control,
    prepare: Prepare<'_>,
) -> Result<(Ending, View)> {
    let mut view = View {
        folder: folder.path().display().to_string(),
        ..View::default()
    };
    let mut entered = false;
    loop {
        match protocol.step(&view, timer.clock(control)) {
            Next::Publish => {
                match entered {
                    true => folder.publish(protocol.record())?,
                    false => folder.enter(protocol.record())?,
                }
                entered = true;
                timer.published(protocol.record().refused.is_some());
                if protocol.promised().is_none() {
                    folder.look(protocol.record(), &mut view)?;
                }
            }
            Next::Prepare(run) => {
                let members = members_of(&run, protocol.record(), &view);
                protocol.promise(run, prepare(&members));
            }
            Next::Decide(verdict) => {
                if let Some(run) = protocol.promised() {
                    let own = protocol.record().nonce;
                    view.verdict = Some(folder.decide(&own, run, verdict)?);
                }
            }
            Next::Done(ending) => return Ok((ending, view)),
            Next::Wait => {
                timer.wait(control);
                if timer.is_stale() {
                    folder.publish(protocol.record())?;
                    timer.published(false);
                }
                let before = view.clone();
                folder.look(protocol.record(), &mut view)?;
                if let Some(run) = protocol.promised() {
                    view.verdict = folder.verdict(run)?;
                }
                if view != before {
                    timer.hurry();
                }
            }
        }
    }
}

/// The facts of a run's processes, as far as they are known.
fn members_of(run: &Run, own: &Record, view: &View) -> Vec<Member> {
    let records = run.0.iter().filter_map(|nonce| record_of(nonce, own, view));
    records.map(|record| record.member.clone()).collect()
}

fn record_of<'a>(nonce: &Nonce, own: &'a Record, view: &'a View) -> Option<&'a Record> {
    match *nonce == own.nonce {
        true => Some(own),
        false => view.others.get(nonce).map(|other| &*other.record),
    }
}

/// What everybody agreed on.
fn joined(protocol: &Protocol, view: &View, folder: &Folder) -> Option<Joined> {
    let own = protocol.record();
    let run = protocol.promised()?;
    let Some(Verdict::Go(prepared)) = &view.verdict else {
        return None;
    };
    Some(Joined {
        members: members_of(run, own, view),
        prepared: prepared.clone(),
        leftovers: view.leftovers(&own.nonce, Some(run)),
        own: own.clone(),
        folder: folder.clone(),
    })
}

/// Tells how late it is, by this process's own clock that only goes forward.
struct Timer {
    deadline: Instant,
    /// Until when a refusal is left to be read.
    patience: Option<Instant>,
    written: Instant,
    pause: Duration,
    longest: Duration,
}

impl Timer {
    fn start(timeout: Duration, count: u32) -> Timer {
        let now = Instant::now();
        Timer {
            deadline: now.checked_add(timeout).unwrap_or(now),
            patience: None,
            written: now,
            pause: SHORTEST,
            longest: (LONGEST * count.div_ceil(FEW)).min(LONGEST_OF_ALL),
        }
    }

    fn clock(&self, control: &Control) -> Clock {
        let now = Instant::now();
        Clock {
            cancelled: control.is_cancelled(),
            expired: now >= self.deadline,
            out_of_patience: self.patience.is_some_and(|patience| now >= patience),
        }
    }

    fn published(&mut self, refused: bool) {
        self.written = Instant::now();
        if refused {
            let latest = self.deadline + LAST_PATIENCE;
            self.patience
                .get_or_insert((self.written + PATIENCE).min(latest));
        }
    }

    fn is_stale(&self) -> bool {
        self.written.elapsed() >= REFRESH
    }

    /// Something has changed: more will.
    fn hurry(&mut self) {
        self.pause = SHORTEST;
    }

    /// Waits a while, and next time a little longer; not beyond the deadline.
    fn wait(&mut self, control: &Control) {
        let now = Instant::now();
        let mut until = now + self.pause;
        let ends = [Some(self.deadline), self.patience];
        for end in ends.into_iter().flatten().filter(|end| *end > now) {
            until = until.min(end);
        }
        self.pause = (self.pause * 3 / 2).min(self.longest);
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !control.is_cancelled()
        {
            thread::sleep(left.min(HEARING));
        }
    }
}
