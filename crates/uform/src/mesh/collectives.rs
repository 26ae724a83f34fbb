//! Sums, copies and barriers over all members of a run, whichever way they reach each other.
//!
//! In one process our own kernels do it ([`Peers`]): every sum is of the members in their order, from
//! the first to the last, each step rounded to f32, so that all members have the same bits
//! in every run. Across processes NCCL does it, or RCCL ([`Communicators`]), in an order of its own, the
//! same in every run on the same machines.
//!
//! Every call waits until it is done; in one process that is for nobody but its own devices. One that
//! fails leaves unknown numbers in the buffers; across processes it also ends the group, and every
//! later call tells why. Processes that only disagree on what to add up have lost nothing.

use std::sync::Arc;

use crate::device::nccl::{self, Communicators, UniqueId};
use crate::device::{Device, Patience, Peers, Share, Stream};
use crate::{Error, Result, Status};

/// How the members of a run add up.
pub struct Collectives {
    how: How,
    members: u32,
    first: u32,
}

enum How {
    Within(Peers),
    Across(Communicators),
}

impl Collectives {
    /// Of the devices of one process, which are all members there are.
    ///
    /// # Errors
    /// As those of [`Peers::new`].
    pub fn within(devices: &[Arc<Device>]) -> Result<Collectives> {
        Ok(Collectives {
            how: How::Within(Peers::new(devices)?),
            members: devices.len() as u32,
            first: 0,
        })
    }

    /// Of `members` devices of several processes, of which this one's are those from `first` on. All
    /// come with the same id, which one of them drew with
    /// [`unique_id`](crate::device::nccl::unique_id). Waits for all of them.
    ///
    /// # Errors
    /// As those of [`Communicators::join`]: without NCCL [`Unsupported`](crate::Status::Unsupported),
    /// naming it and the way out.
    pub fn across(
        devices: &[Arc<Device>],
        id: &UniqueId,
        first: u32,
        members: u32,
        patience: &Patience<'_>,
    ) -> Result<Collectives> {
        Ok(Collectives {
            how: How::Across(Communicators::join(devices, id, first, members, patience)?),
            members,
            first,
        })
    }

    /// How many members there are in all processes.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// The number among all members of this process's first device.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// In which way the members add up, for people.
    pub fn way(&self) -> &'static str {
        match &self.how {
            How::Within(peers) if peers.reach_each_other() => {
                "one process, whose kernels read their peers' memory"
            }
            How::Within(_) => "one process, through the host: its devices do not reach each other",
            How::Across(_) => "several processes, through the vendor's library",
        }
    }

    /// Replaces the first `count` numbers (f32) of every member by their sums over all members. One
    /// share for each of this process's devices, in their order; every process asks the same.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for shares that do not fit; [`TimedOut`](crate::Status::TimedOut)
    /// and [`Aborted`](crate::Status::Aborted) by `patience`; [`Io`](crate::Status::Io) when a peer went;
    /// [`DeviceFault`](crate::Status::DeviceFault).
    pub fn all_reduce_sum(
        &self,
        shares: &[Share<'_>],
        count: usize,
        patience: &Patience<'_>,
    ) -> Result<()> {
        patience.check("a sum")?;
        match &self.how {
            How::Within(peers) => peers.all_reduce_sum(shares, count),
            How::Across(group) => group.all_reduce_sum(shares, count, patience),
        }
    }

    /// The same for rows of so many numbers (dimensions). Across processes all are asked first
    /// whether they have the same, so that rows which have nothing to do with each other are not added up.
    ///
    /// # Errors
    /// [`ConfigMismatch`](Status::ConfigMismatch), in every process, when not all have: nothing has changed
    /// then. And those of [`all_reduce_sum`](Collectives::all_reduce_sum).
    pub fn all_reduce_rows(
        &self,
        shares: &[Share<'_>],
        rows: usize,
        dimensions: usize,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let How::Across(group) = &self.how else {
            return self.all_reduce_sum(shares, rows * dimensions, patience);
        };
        // Not again between the two: who has compared is waited for.
        patience.check("a sum")?;
        let streams: Vec<&Stream> = shares.iter().map(|share| share.stream).collect();
        let all = group.extremes(&streams, [rows as u64, dimensions as u64], patience)?;
        match all {
            [(_, REFUSED), _] => Err(refused_elsewhere()),
            _ if all.iter().all(|(least, most)| least == most) => {
                group.all_reduce_sum(shares, rows * dimensions, patience)
            }
            _ => Err(disagreement(rows, dimensions, all, self.members)),
        }
    }

    /// In the place of [`all_reduce_rows`](Collectives::all_reduce_rows), by a process that has nothing to add up:
    /// those that have are told so, rather than left to wait.
    ///
    /// # Errors
    /// Those of [`all_reduce_sum`](Collectives::all_reduce_sum), when the others do not come.
    pub fn refuse_rows(&self, streams: &[&Stream], patience: &Patience<'_>) -> Result<()> {
        match &self.how {
            How::Within(_) => Ok(()),
            How::Across(group) => group.extremes(streams, [REFUSED; 2], patience).map(drop),
        }
    }

    /// Copies the first `count` numbers of member `from`, by its number among all, to all others.
    ///
    /// # Errors
    /// As those of [`all_reduce_sum`](Collectives::all_reduce_sum).
    pub fn broadcast(
        &self,
        shares: &[Share<'_>],
        count: usize,
        from: u32,
        patience: &Patience<'_>,
    ) -> Result<()> {
        patience.check("a broadcast")?;
        match &self.how {
            How::Within(peers) => peers.broadcast(shares, count, from as usize),
            How::Across(group) => group.broadcast(shares, count, from, patience),
        }
    }

    /// Waits until every process has come to this, and until all that was submitted to these streams,
    /// one for each of this process's devices, is done.
    ///
    /// # Errors
    /// As those of [`all_reduce_sum`](Collectives::all_reduce_sum).
    pub fn barrier(&self, streams: &[&Stream], patience: &Patience<'_>) -> Result<()> {
        patience.check("a barrier")?;
        match &self.how {
            How::Within(peers) => peers.barrier(streams),
            How::Across(group) => group.barrier(streams, patience),
        }
    }
}

/// The number of rows of a process that has none to add up.
const REFUSED: u64 = u64::MAX;

fn refused_elsewhere() -> Error {
    Error::new(
        Status::ConfigMismatch,
        "another process was refused its part of this sum, and nothing was added up: look at what it \
         reports, and have every process ask for the same",
    )
}

fn disagreement(
    rows: usize,
    dimensions: usize,
    [all_rows, all_dimensions]: [(u64, u64); nccl::COMPARED],
    members: u32,
) -> Error {
    let between = |(least, most)| match least == most {
        true => format!("{least}"),
        false => format!("{least} to {most}"),
    };
    Error::new(
        Status::ConfigMismatch,
        format!(
            "this process adds up {rows} rows of {dimensions} dimensions on each of its devices, and not \
             all others do: the {members} members have {} rows of {} dimensions each; encode as many \
             texts with the same `dimensions` in every process",
            between(all_rows),
            between(all_dimensions)
        ),
    )
}
