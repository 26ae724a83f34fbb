//! Processes that train one model together: how they find each other, or fail together.
//!
//! A [`Mesh`] is one process's place among them, made once and borrowed by whoever trains on the same
//! executor. The processes share a directory and nothing else: no server, no lock, no watcher, no
//! common clock. What each writes there, and what it may conclude from what others wrote, is the
//! whole matter, and it is in one function without side effects, `protocol`, whose
//! first comment is the argument why it is right. A model checker goes through it (`checker`), and
//! processes that are killed at every step.
//!
//! | file | what it is about |
//! | --- | --- |
//! | `options`, `description` | what the caller says of a run, and is told |
//! | `member`, `process` | the facts a process tells the others, and who it is |
//! | `checks` | whether facts fit together, and the sentence if not |
//! | `record`, `view` | what is written, and what was read |
//! | `protocol` | from what was read to what is done next |
//! | `folder` | what is done to files |
//! | [`rendezvous`] | the loop around all this, with the clock |
//! | [`tier`] | whether the switch adds up, or the devices |
//! | [`collectives`] | adding up |
//!
//! How a run of this time is told from a run that crashed, in short: every attempt to join draws
//! a random number, the nonce, and a record counts for nothing until it repeats the reader's own
//! nonce, which no dead process can have known. So process numbers that are used again, hosts whose
//! processes cannot be looked for, and clocks that disagree do not matter; and files that a crash left, even
//! after everything had been agreed, are recognised by never answering.

#[cfg(test)]
mod checker;
mod checks;
pub mod collectives;
mod description;
mod folder;
mod member;
mod options;
mod process;
mod protocol;
mod record;
pub mod rendezvous;
pub mod tier;
mod view;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub use self::description::MeshDescription;
pub use self::member::{Member, MemberDevice, Nonce, Prepared};
pub use self::options::{DEFAULT_TIMEOUT, MeshOptions};
pub use self::process::Process;
pub use self::tier::MultimemTier;

use self::collectives::Collectives;
use self::options::Place;
use self::rendezvous::{Joined, Meeting};
use crate::device::nccl::{self, UniqueId};
use crate::device::{Device, Patience, Runtime, Share};
use crate::executor::{Control, Devices, DrivenDevice, Executor};
use crate::hardware::{GpuClass, GpuVendor, gpu_devices};
use crate::model::DeviceEmbeddings;
use crate::{Error, Result, Status};

/// How long the end of a process waits for its files to be removed.
const AT_THE_END: Duration = Duration::from_secs(1);

/// One process's place in a run. Clones are the same mesh; dropping the last one leaves the run.
#[derive(Clone)]
pub struct Mesh(Arc<Shared>);

struct Shared {
    executor: Executor,
    place: Place,
    description: MeshDescription,
    state: Mutex<State>,
    /// Told when a call ends.
    idle: Condvar,
}

/// A mesh that is not kept from ending.
pub struct WeakMesh(Weak<Shared>);

/// What there is until the mesh is freed.
struct State {
    live: Option<Arc<Live>>,
    borrowers: usize,
    calls: usize,
}

/// In the order in which they end.
struct Live {
    collectives: std::result::Result<Collectives, String>,
    joined: Option<Joined>,
}

/// A mesh that a trainer has borrowed, until this is dropped.
pub struct BorrowedMesh(Mesh);

impl Mesh {
    /// Waits until every process of the run has joined. Without peers it needs nobody and writes
    /// nothing.
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    pub fn bootstrap(executor: &Executor, options: &MeshOptions) -> Result<Mesh> {
        Mesh::join(executor, options, &Control::new())
    }

    /// The same; `control` gives up.
    ///
    /// # Errors
    /// - [`InvalidArgument`](Status::InvalidArgument) for an executor that drives no device, and for options
    ///   that make no sense; [`Freed`](Status::Freed) for one that was freed.
    /// - [`ConfigMismatch`](Status::ConfigMismatch), with one message in every process, when processes
    ///   contradict each other; [`TimedOut`](Status::TimedOut) naming who did not come.
    /// - [`NotFound`](Status::NotFound), [`Io`](Status::Io) for a directory that cannot be used.
    /// - [`Aborted`](Status::Aborted) by `control`; and those of
    ///   [`Collectives`].
    pub fn join(executor: &Executor, options: &MeshOptions, control: &Control) -> Result<Mesh> {
        let start = Instant::now();
        let driving = executor.driving()?;
        let devices = driving.opened()?;
        let place = options.check(devices.len() as u32)?;
        let deadline = start + place.timeout;
        let is_cancelled = || control.is_cancelled();
        let patience = Patience::until(deadline, &is_cancelled);
        let (joined, collectives) = match &place.meeting {
            None => (None, Ok(Collectives::within(&devices)?)),
            Some((directory, job)) => {
                let meeting = Meeting {
                    directory,
                    job,
                    timeout: place.timeout,
                };
                let member = member(&place, driving);
                let mut prepare = |members: &[Member]| prepare(&place, driving, &devices, members);
                let joined = rendezvous::join(member, &meeting, control, &mut prepare)?;
                let collectives = across(&place, &devices, &joined, &patience)?;
                (Some(joined), collectives)
            }
        };
        let description = describe(&place, driving, &devices, joined.as_ref(), &collectives);
        let live = Live {
            collectives,
            joined,
        };
        Ok(Mesh(Arc::new(Shared {
            executor: executor.clone(),
            place,
            description,
            state: Mutex::new(State {
                live: Some(Arc::new(live)),
                borrowers: 0,
                calls: 0,
            }),
            idle: Condvar::new(),
        })))
    }

    /// What the run is, and this process's place in it.
    pub fn describe(&self) -> &MeshDescription {
        &self.0.description
    }

    /// Borrows the mesh, which is not freed until this is dropped.
    ///
    /// # Errors
    /// [`Freed`](Status::Freed).
    pub fn borrow(&self) -> Result<BorrowedMesh> {
        let mut state = self.state();
        if state.live.is_none() {
            return Err(freed());
        }
        state.borrowers += 1;
        drop(state);
        Ok(BorrowedMesh(self.clone()))
    }

    /// Sums vectors in place over all members of the run, as a deferred call on the mesh's executor:
    /// returns at once, and hands the outcome to `done`, exactly once. Every process asks it of as many
    /// vectors, which lie in equal parts on all of its devices. In a run without peers, sums are of the
    /// members in their order, and have the same bits in every run.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) for vectors that lie otherwise, once the others have
    /// been told; [`ConfigMismatch`](Status::ConfigMismatch), in every process, when not all have as many rows
    /// and dimensions, or in all others, when one was refused: the vectors are as they were, and the mesh of use;
    /// [`Unsupported`](Status::Unsupported) naming the library that is missing where there are peers;
    /// [`TimedOut`](Status::TimedOut), [`Io`](Status::Io) when a peer does not come or went;
    /// [`Freed`](Status::Freed), [`Aborted`](Status::Aborted), and those of the executor. Whatever is in
    /// the vectors after any other error than the first two is not known.
    pub fn all_reduce_deferred(
        &self,
        embeddings: &DeviceEmbeddings,
        control: Arc<Control>,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let call = match MeshCall::begin(self) {
            Ok(call) => call,
            Err(error) => return done(Err(error)),
        };
        let embeddings = embeddings.clone();
        let work = move |driven: &mut [DrivenDevice], control: &Control| {
            call.all_reduce(&embeddings, driven, control)
        };
        self.0.executor.on_devices_deferred(control, work, done);
    }

    /// The same while the caller waits: an immediate call.
    ///
    /// # Errors
    /// As those of [`all_reduce_deferred`](Self::all_reduce_deferred).
    pub fn all_reduce(&self, embeddings: &DeviceEmbeddings) -> Result<()> {
        let call = MeshCall::begin(self)?;
        let executor = &self.0.executor;
        executor.on_devices(&Control::new(), |driven, control| {
            call.all_reduce(embeddings, driven, control)
        })
    }

    /// Leaves the run, when its calls have ended: removes this process's files, and as the last one the job's
    /// folder. Again, it does nothing.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) while a trainer borrows it.
    pub fn free(&self) -> Result<()> {
        let mut state = self.state();
        if state.borrowers > 0 {
            return Err(Error::invalid(format!(
                "the mesh is borrowed by {} trainers: free them first",
                state.borrowers
            )));
        }
        let live = state.live.take();
        while state.calls > 0 {
            state = self
                .0
                .idle
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        drop(live);
        Ok(())
    }

    /// The mesh, without keeping it.
    pub fn downgrade(&self) -> WeakMesh {
        WeakMesh(Arc::downgrade(&self.0))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakMesh {
    /// Whether the mesh was not dropped.
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// For a process that ends without freeing anything: removes this process's files, and nothing else. It waits
    /// for a second at most, since a file system of the network may not answer; what is left then is told to the
    /// next run.
    pub fn leave(&self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let live = Mesh(shared).state().live.clone();
        if let Some(joined) = live.as_ref().and_then(|live| live.joined.as_ref()) {
            joined.leave(AT_THE_END);
        }
    }
}

impl BorrowedMesh {
    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.0
    }
}

impl Drop for BorrowedMesh {
    fn drop(&mut self) {
        self.0.state().borrowers -= 1;
    }
}

/// A call that uses the mesh, which is not left meanwhile.
struct MeshCall {
    mesh: Mesh,
    /// Until it is dropped.
    live: Option<Arc<Live>>,
}

impl MeshCall {
    fn begin(mesh: &Mesh) -> Result<MeshCall> {
        let mut state = mesh.state();
        let live = state.live.clone().ok_or_else(freed)?;
        state.calls += 1;
        drop(state);
        Ok(MeshCall {
            mesh: mesh.clone(),
            live: Some(live),
        })
    }

    fn all_reduce(
        &self,
        embeddings: &DeviceEmbeddings,
        driven: &[DrivenDevice],
        control: &Control,
    ) -> Result<()> {
        let Some(live) = &self.live else {
            return Err(freed());
        };
        let collectives = live.collectives.as_ref();
        let collectives = collectives.map_err(|why| Error::unsupported(why.clone()))?;
        let is_cancelled = || control.is_cancelled();
        let deadline = Instant::now() + self.mesh.0.place.timeout;
        let patience = Patience::until(deadline, &is_cancelled);
        match shares(embeddings, driven) {
            Ok((shares, rows)) => {
                collectives.all_reduce_rows(&shares, rows, embeddings.dimensions(), &patience)
            }
            Err(refusal) => {
                let streams: Vec<_> = driven.iter().map(|device| &*device.stream).collect();
                // Whatever becomes of it, it is the refusal that this caller can do something about.
                _ = collectives.refuse_rows(&streams, &patience);
                Err(refusal)
            }
        }
    }
}

impl Drop for MeshCall {
    fn drop(&mut self) {
        // What ends the run is not to be the last of it: that is for who frees it.
        self.live = None;
        self.mesh.state().calls -= 1;
        self.mesh.0.idle.notify_all();
    }
}

/// The part of every device, in their order, and how many rows each has.
fn shares<'a>(
    embeddings: &'a DeviceEmbeddings,
    driven: &'a [DrivenDevice],
) -> Result<(Vec<Share<'a>>, usize)> {
    let parts: Vec<_> = embeddings.shares().collect();
    let part_of = |device: &DrivenDevice| {
        let mut own = parts
            .iter()
            .filter(|part| part.device == device.place.ordinal);
        own.next().filter(|_| own.next().is_none())
    };
    let own: Vec<_> = driven.iter().filter_map(part_of).collect();
    let rows = own.first().map_or(0, |part| part.rows);
    let all_there = own.len() == driven.len() && own.len() == parts.len();
    if !all_there || own.iter().any(|part| part.rows != rows) {
        let have: Vec<String> = parts
            .iter()
            .map(|part| format!("{} rows on device {}", part.rows, part.device))
            .collect();
        let ordinals: Vec<u32> = driven.iter().map(|device| device.place.ordinal).collect();
        return Err(Error::invalid(format!(
            "the vectors to add up are {}: expected as many on each of the mesh's devices {ordinals:?}, in \
             one part; encode as many texts of one length for each",
            match have.is_empty() {
                true => "none".to_owned(),
                false => have.join(", "),
            }
        )));
    }
    let shares = own.iter().zip(driven).map(|(part, device)| Share {
        stream: &device.stream,
        buffer: part.buffer,
        offset: part.offset,
    });
    Ok((shares.collect(), rows))
}

/// What this process says of itself.
fn member(place: &Place, driving: &Devices) -> Member {
    let described = driving.places().iter().map(|driven| {
        let listed = &gpu_devices()[driven.ordinal as usize];
        let identity = listed.uuid.as_ref().or(listed.pci_address.as_ref());
        MemberDevice {
            uuid: identity.cloned(),
            gpu_class: driven.class.word().to_owned(),
        }
    });
    let no_collectives = nccl::version(runtime(driving)).err();
    Member {
        index: place.index,
        count: place.count,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        devices: described.collect(),
        gpus_per_multimem_domain: place.gpus_per_multimem_domain,
        process: Process::this(),
        no_collectives: no_collectives.map(|error| error.message().to_owned()),
    }
}

/// What the run needs of this process, now that all of its processes are there and agree. With the id the library
/// listens for them, until all have come or this process ends: so it is not drawn for those who may never.
fn prepare(
    place: &Place,
    driving: &Devices,
    devices: &[Arc<Device>],
    members: &[Member],
) -> Prepared {
    let mut prepared = Prepared {
        no_multicast: tier::obstacle(devices, members.len() as u32),
        ..Prepared::default()
    };
    let can_all = members.iter().all(|member| member.no_collectives.is_none());
    if place.index == 0 && can_all {
        match nccl::unique_id(runtime(driving)) {
            Ok(id) => prepared.payload = id.bytes().to_vec(),
            Err(error) => prepared.no_collectives = Some(error.message().to_owned()),
        }
    }
    prepared
}

/// Whose library adds up across processes: that of the first device's vendor.
fn runtime(driving: &Devices) -> Runtime {
    let first = driving.places().first();
    match first.map(|driven| driven.class.vendor()) {
        Some(GpuVendor::Amd) => Runtime::Hip,
        _ => Runtime::Cuda,
    }
}

/// The collectives of a run with peers; why there are none, when a process cannot have them.
fn across(
    place: &Place,
    devices: &[Arc<Device>],
    joined: &Joined,
    patience: &Patience<'_>,
) -> Result<std::result::Result<Collectives, String>> {
    for (member, prepared) in joined.members.iter().zip(&joined.prepared) {
        let obstacle = member.no_collectives.as_ref();
        if let Some(why) = obstacle.or(prepared.no_collectives.as_ref()) {
            return Ok(Err(format!("{member} cannot add up with its peers: {why}")));
        }
    }
    let first = joined.prepared.first();
    let id = first.map(|prepared| UniqueId::from_bytes(&prepared.payload));
    let id = id.unwrap_or_else(|| UniqueId::from_bytes(&[]))?;
    let own = devices.len() as u32;
    let first = place.index * own;
    Collectives::across(devices, &id, first, place.count * own, patience).map(Ok)
}

fn describe(
    place: &Place,
    driving: &Devices,
    devices: &[Arc<Device>],
    joined: Option<&Joined>,
    collectives: &std::result::Result<Collectives, String>,
) -> MeshDescription {
    let own = devices.len() as u32;
    let multimem_obstacle = match joined {
        None => tier::obstacle(devices, place.count),
        Some(joined) => {
            let members = joined.members.iter().zip(&joined.prepared);
            let mut obstacles = members.filter_map(|(member, prepared)| {
                let why = prepared.no_multicast.as_ref()?;
                Some(format!("{member}: {why}"))
            });
            obstacles.next()
        }
    };
    let mut classes: Vec<GpuClass> = driving.places().iter().map(|driven| driven.class).collect();
    classes.dedup();
    MeshDescription {
        gpus_per_host_domain: own,
        gpus_per_multimem_domain: place.gpus_per_multimem_domain,
        gpus_per_colocated_domain: own * place.count,
        host_domain_index: place.index,
        first_gpu_index: own * place.index,
        multimem_tier: match multimem_obstacle {
            None => MultimemTier::SwitchReduced,
            Some(_) => MultimemTier::PeerRead,
        },
        gpu_class: classes.first().copied().filter(|_| classes.len() == 1),
        multimem_obstacle,
        reduction: match collectives {
            Ok(collectives) => collectives.way().to_owned(),
            Err(why) => why.clone(),
        },
        leftovers: joined.and_then(|joined| joined.leftovers.clone()),
    }
}

fn freed() -> Error {
    Error::new(Status::Freed, "the mesh was freed")
}
