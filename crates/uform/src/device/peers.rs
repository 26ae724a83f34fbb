//! Sums over the devices of one process, and copies from one of them to the others.
//!
//! **The order of summation.** An element's sum is `((x₀ + x₁) + x₂) + …` in f32, rounded to nearest, of
//! the members in their order: by whichever device or host it is computed, and however many elements
//! there are. So all members end with the same bits, and the next run with those again.
//!
//! Where the devices reach each other's memory, kernels do it, in two steps. Each member first adds up
//! one part of the elements, reading all others there, into its own memory; then it takes the parts
//! that the others have added up. No element is added up twice, and no memory beside the members' own is needed.
//!
//! Where they do not (most cards for desktops, devices of two vendors), all that they have passes through
//! the host, which adds it up in the same order.
//!
//! Between two steps the host waits for every member. A stream could wait for the other devices' events
//! instead, which spares some microseconds; but for that of a device that faulted it may wait for ever.

use std::sync::Arc;

use super::kernels;
use super::memory::{Buffer, HostBuffer};
use super::module::{Argument, Kernel, MOST_ADDRESSES, Shape};
use super::owned::Device;
use super::stream::Stream;
use crate::{Error, Result};

/// A member's part in a collective.
pub struct Share<'a> {
    /// In which its device works on it. What was submitted before is waited for.
    pub stream: &'a Stream,
    /// Where its numbers are, f32.
    pub buffer: &'a Buffer,
    /// From how many bytes on, a multiple of 4.
    pub offset: usize,
}

impl Share<'_> {
    pub(super) fn address(&self) -> u64 {
        self.buffer.address() + self.offset as u64
    }
}

/// The devices of one process that work together.
pub struct Peers {
    devices: Vec<Arc<Device>>,
    /// Of each device, where all reach all.
    kernels: Option<Vec<Kernels>>,
}

struct Kernels {
    reduce: Kernel,
    take: Kernel,
}

/// Elements a thread works on at a time; parts begin at multiples of it.
const EACH: usize = 4;
/// Threads of a block, as the kernels declare it.
const BLOCK: u32 = 256;
/// Blocks of a launch at most, for each of the device's multiprocessors.
const BLOCKS_EACH: u32 = 4;
/// Elements that pass through the host at a time.
const STAGED: usize = 1 << 20;

impl Peers {
    /// The devices, which from now on reach each other's memory where the machine can do that.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for a device that is named twice;
    /// [`Unsupported`](crate::Status::Unsupported) for more than 16 devices, or kernels that one does not take;
    /// [`DeviceFault`](crate::Status::DeviceFault), [`OutOfMemory`](crate::Status::OutOfMemory).
    pub fn new(devices: &[Arc<Device>]) -> Result<Peers> {
        check_devices(devices)?;
        if devices.len() > MOST_ADDRESSES {
            return Err(Error::unsupported(format!(
                "{} devices in one process: at most {MOST_ADDRESSES} work together; use several \
                 processes",
                devices.len()
            )));
        }
        let kernels = match all_reach_all(devices)? {
            true => Some(devices.iter().map(Kernels::load).collect::<Result<_>>()?),
            false => None,
        };
        Ok(Peers {
            devices: devices.to_vec(),
            kernels,
        })
    }

    /// Whether they read each other's memory; if not, all passes through the host.
    pub fn reach_each_other(&self) -> bool {
        self.kernels.is_some()
    }

    /// Replaces the first `count` elements of every member by their sums over all members, and waits.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) when the shares are not these devices', or
    /// smaller; [`DeviceFault`](crate::Status::DeviceFault), [`OutOfMemory`](crate::Status::OutOfMemory): what
    /// the buffers hold is then unknown.
    pub fn all_reduce_sum(&self, shares: &[Share<'_>], count: usize) -> Result<()> {
        check_shares(&self.devices, shares, count)?;
        together(shares, |_, _| Ok(()))?;
        if shares.len() == 1 {
            return Ok(());
        }
        let Some(kernels) = &self.kernels else {
            return staged(shares, count, None);
        };
        let mut members = [0; MOST_ADDRESSES];
        for (member, share) in members.iter_mut().zip(shares) {
            *member = share.address();
        }
        let parts = parts(count, shares.len(), are_wide(shares));
        together(shares, |at, share| {
            kernels[at].launch_reduce(share.stream, members, parts[at], members[at])
        })?;
        together(shares, |at, share| {
            // Each begins with another's part, so that they do not all read one device at once.
            let others = (at + 1..parts.len()).chain(0..at);
            others.into_iter().try_for_each(|other| {
                kernels[at].launch_take(share.stream, members[other], parts[other], members[at])
            })
        })
    }

    /// Copies the first `count` elements of one member to all others, and waits.
    ///
    /// # Errors
    /// As those of [`all_reduce_sum`](Peers::all_reduce_sum), and
    /// [`InvalidArgument`](crate::Status::InvalidArgument) when there is no such member.
    pub fn broadcast(&self, shares: &[Share<'_>], count: usize, from: usize) -> Result<()> {
        check_shares(&self.devices, shares, count)?;
        if from >= shares.len() {
            return Err(Error::invalid(format!(
                "there is no member {from} to copy from: expected 0 to {}",
                shares.len() - 1
            )));
        }
        together(shares, |_, _| Ok(()))?;
        let Some(kernels) = &self.kernels else {
            return staged(shares, count, Some(from));
        };
        let source = shares[from].address();
        let all = Part {
            first: 0,
            end: count,
            is_wide: are_wide(shares),
        };
        together(shares, |at, share| match at == from {
            true => Ok(()),
            false => kernels[at].launch_take(share.stream, source, all, share.address()),
        })
    }

    /// Waits until all that was submitted to these streams is done.
    ///
    /// # Errors
    /// [`DeviceFault`](crate::Status::DeviceFault).
    pub fn barrier(&self, streams: &[&Stream]) -> Result<()> {
        check_streams(&self.devices, streams)?;
        wait_all(streams.iter().copied())
    }
}

impl Kernels {
    fn load(device: &Arc<Device>) -> Result<Kernels> {
        let module = kernels::load_collectives(device)?;
        Ok(Kernels {
            reduce: module.kernel("reduce")?,
            take: module.kernel("take")?,
        })
    }

    fn launch_reduce(
        &self,
        stream: &Stream,
        members: [u64; MOST_ADDRESSES],
        part: Part,
        out: u64,
    ) -> Result<()> {
        launch(
            stream,
            &self.reduce,
            Argument::Addresses(members),
            part,
            out,
        )
    }

    fn launch_take(&self, stream: &Stream, from: u64, part: Part, to: u64) -> Result<()> {
        launch(stream, &self.take, Argument::Address(from), part, to)
    }
}

/// Submits one of the two kernels.
fn launch(stream: &Stream, kernel: &Kernel, from: Argument, part: Part, to: u64) -> Result<()> {
    if part.first == part.end {
        return Ok(());
    }
    let needed = (part.end - part.first).div_ceil(EACH * BLOCK as usize);
    let most = stream.device().properties().compute_units.max(1) * BLOCKS_EACH;
    let shape = Shape {
        grid: [needed.min(most as usize) as u32, 1, 1],
        block: [BLOCK, 1, 1],
        shared_bytes: 0,
    };
    let arguments = [
        from,
        Argument::U64(part.first as u64),
        Argument::U64(part.end as u64),
        Argument::Address(to),
        Argument::U32(part.is_wide.into()),
    ];
    // SAFETY: both kernels take these. The shares were checked to have as many elements, within
    // reach; their memory and the kernels are borrowed until all streams have been waited for.
    unsafe { stream.launch(kernel, shape, &arguments) }
}

/// Lets all devices reach all others; whether that is possible.
fn all_reach_all(devices: &[Arc<Device>]) -> Result<bool> {
    for one in devices {
        for other in devices {
            if !one.reach(other)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Elements from one to another, and whether [`EACH`] of them can be read and written at once.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    first: usize,
    end: usize,
    is_wide: bool,
}

/// Each member's part of so many elements: parts of one size, but for the last ones.
fn parts(count: usize, members: usize, is_wide: bool) -> Vec<Part> {
    let size = count.div_ceil(members).next_multiple_of(EACH);
    let part = |at: usize| Part {
        first: (at * size).min(count),
        end: ((at + 1) * size).min(count),
        is_wide,
    };
    (0..members).map(part).collect()
}

/// Whether all shares begin where [`EACH`] elements can be read at once.
fn are_wide(shares: &[Share<'_>]) -> bool {
    let bytes = (EACH * size_of::<f32>()) as u64;
    shares
        .iter()
        .all(|share| share.address().is_multiple_of(bytes))
}

/// Submits something for every member, and waits for all of them, even when one of them failed: its
/// peers may still read its memory.
fn together(
    shares: &[Share<'_>],
    mut submit: impl FnMut(usize, &Share<'_>) -> Result<()>,
) -> Result<()> {
    let mut all = shares.iter().enumerate();
    let submitted = all.try_for_each(|(at, share)| submit(at, share));
    let waited = wait_all(shares.iter().map(|share| share.stream));
    submitted.and(waited)
}

/// Waits for all streams; the first failure.
pub(super) fn wait_all<'a>(streams: impl Iterator<Item = &'a Stream>) -> Result<()> {
    streams.map(Stream::wait).fold(Ok(()), Result::and)
}

/// Passes everything through the host, a chunk after the other: the sums of all members, or what one
/// of them has.
fn staged(shares: &[Share<'_>], count: usize, from: Option<usize>) -> Result<()> {
    let size = count.min(STAGED);
    let chunks = shares.iter().map(|share| {
        let device = share.buffer.device();
        device.allocate_host(size * size_of::<f32>())
    });
    let mut chunks = chunks.collect::<Result<Vec<HostBuffer>>>()?;
    for first in (0..count).step_by(STAGED) {
        let count = (count - first).min(STAGED);
        let (start, bytes) = (first * size_of::<f32>(), count * size_of::<f32>());
        together(shares, |at, share| match from {
            Some(from) if from != at => Ok(()),
            // SAFETY: waited for by `together` before anybody looks at it.
            _ => unsafe {
                share.stream.submit_download(
                    &mut chunks[at][..bytes],
                    share.buffer,
                    share.offset + start,
                )
            },
        })?;
        let chosen = from.unwrap_or_else(|| add_up(&mut chunks, count));
        let chosen = &chunks[chosen][..bytes];
        together(shares, |at, share| match from == Some(at) {
            true => Ok(()),
            // SAFETY: waited for by `together`; the chunk stays until then.
            false => unsafe {
                share
                    .stream
                    .submit_upload(share.buffer, share.offset + start, chosen)
            },
        })?;
    }
    Ok(())
}

/// Adds all chunks up, into one of them; which.
fn add_up(chunks: &mut [HostBuffer], count: usize) -> usize {
    let Some((first, others)) = chunks.split_first_mut() else {
        return 0;
    };
    let sums = floats(first, count);
    for other in others {
        for (sum, value) in sums.iter_mut().zip(floats(other, count)) {
            *sum += *value;
        }
    }
    0
}

/// The chunk's first numbers.
fn floats(chunk: &mut HostBuffer, count: usize) -> &mut [f32] {
    // It cannot fail: a driver's host memory begins with a page.
    bytemuck::cast_slice_mut(&mut chunk[..count * size_of::<f32>()])
}

/// A device takes part once.
pub(super) fn check_devices(devices: &[Arc<Device>]) -> Result<()> {
    let place = |device: &Device| (device.properties().runtime, device.properties().index);
    if devices.is_empty() {
        return Err(Error::invalid(
            "a collective of no device: expected at least one",
        ));
    }
    for (at, device) in devices.iter().enumerate() {
        if let Some(before) = devices[..at].iter().find(|one| place(one) == place(device)) {
            let (runtime, index) = place(before);
            return Err(Error::invalid(format!(
                "{runtime} device {index} takes part twice: expected different devices"
            )));
        }
    }
    Ok(())
}

/// One share a device, in their order, and large enough.
pub(super) fn check_shares(
    devices: &[Arc<Device>],
    shares: &[Share<'_>],
    count: usize,
) -> Result<()> {
    let streams: Vec<&Stream> = shares.iter().map(|share| share.stream).collect();
    check_streams(devices, &streams)?;
    let bytes = count.checked_mul(size_of::<f32>());
    for (at, share) in shares.iter().enumerate() {
        let Share { buffer, offset, .. } = *share;
        if !Arc::ptr_eq(buffer.device(), &devices[at]) {
            return Err(Error::invalid(format!(
                "member {at}'s buffer is another device's than its stream"
            )));
        }
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        if end.is_none_or(|end| end > buffer.bytes()) || offset % size_of::<f32>() != 0 {
            return Err(Error::invalid(format!(
                "member {at}'s buffer has {} bytes: there are no {count} numbers at {offset}",
                buffer.bytes()
            )));
        }
    }
    Ok(())
}

/// One stream a device, in their order.
pub(super) fn check_streams(devices: &[Arc<Device>], streams: &[&Stream]) -> Result<()> {
    if streams.len() != devices.len() {
        return Err(Error::invalid(format!(
            "{} members of a collective that has {} in this process",
            streams.len(),
            devices.len()
        )));
    }
    let mut pairs = devices.iter().zip(streams);
    match pairs.position(|(device, stream)| !Arc::ptr_eq(stream.device(), device)) {
        Some(at) => Err(Error::invalid(format!(
            "stream {at} is not one of member {at}'s device"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_everything_once_and_begin_where_four_numbers_do() {
        for members in 1..=MOST_ADDRESSES {
            for count in [0, 1, 3, 4, 5, 63, 64, 65, 1000, 1003] {
                let parts = parts(count, members, true);
                assert_eq!(parts.len(), members);
                let mut end = 0;
                for part in &parts {
                    assert_eq!(part.first, end);
                    let begins_well = part.first.is_multiple_of(EACH) || part.first == count;
                    assert!(begins_well && part.first <= part.end, "{parts:?}");
                    end = part.end;
                }
                assert_eq!(end, count);
            }
        }
    }
}
