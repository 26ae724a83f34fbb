//! What loads and stores reach: the device's memory, which is the host's, and a block's own.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{ILLEGAL_ADDRESS, LAUNCH_FAILED, MISALIGNED_ADDRESS, Trap};

/// Where shared memory begins among all addresses; its own begin at 0.
pub(super) const SHARED: u64 = 0x0100_0000_0000_0000;
/// Where each thread's local memory does.
pub(super) const LOCAL: u64 = 0x0200_0000_0000_0000;

/// Parts of the device's memory that are somebody's: beginnings and ends, ascending.
pub(super) struct Global<'a> {
    pub ranges: &'a [(u64, u64)],
}

impl Global<'_> {
    fn check(&self, address: u64, bytes: usize) -> Result<(), Trap> {
        let before = self.ranges.partition_point(|&(start, _)| start <= address);
        let range = before.checked_sub(1).map(|at| self.ranges[at]);
        match range {
            Some((_, end)) if address + bytes as u64 <= end => Ok(()),
            _ => Err(Trap::new(
                ILLEGAL_ADDRESS,
                format!("{bytes} bytes at {address:#x} are no allocation's"),
            )),
        }
    }

    /// The value of a place that was checked.
    pub(super) fn load(&self, address: u64, bytes: usize) -> Result<u64, Trap> {
        self.check(address, bytes)?;
        let at = address as usize;
        // SAFETY: within an allocation, and aligned, which `aligned` sees to; threads of a
        // device meet there by atomics.
        Ok(unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(at as *mut u8).load(Relaxed).into(),
                2 => AtomicU16::from_ptr(at as *mut u16).load(Relaxed).into(),
                4 => AtomicU32::from_ptr(at as *mut u32).load(Relaxed).into(),
                _ => AtomicU64::from_ptr(at as *mut u64).load(Relaxed),
            }
        })
    }

    pub(super) fn store(&self, address: u64, bytes: usize, value: u64) -> Result<(), Trap> {
        self.check(address, bytes)?;
        let at = address as usize;
        // SAFETY: as in `load`.
        unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(at as *mut u8).store(value as u8, Relaxed),
                2 => AtomicU16::from_ptr(at as *mut u16).store(value as u16, Relaxed),
                4 => AtomicU32::from_ptr(at as *mut u32).store(value as u32, Relaxed),
                _ => AtomicU64::from_ptr(at as *mut u64).store(value, Relaxed),
            }
        }
        Ok(())
    }

    /// Replaces a value by what is made of it; returns what it was.
    pub(super) fn update(
        &self,
        address: u64,
        bytes: usize,
        new: impl Fn(u64) -> u64,
    ) -> Result<u64, Trap> {
        self.check(address, bytes)?;
        let at = address as usize;
        // SAFETY: as in `load`.
        Ok(unsafe {
            match bytes {
                4 => AtomicU32::from_ptr(at as *mut u32)
                    .fetch_update(Relaxed, Relaxed, |value| Some(new(value.into()) as u32))
                    .unwrap_or_else(|value| value)
                    .into(),
                _ => AtomicU64::from_ptr(at as *mut u64)
                    .fetch_update(Relaxed, Relaxed, |value| Some(new(value)))
                    .unwrap_or_else(|value| value),
            }
        })
    }
}

/// Refuses an address that is not a multiple of what is read there.
pub(super) fn aligned(address: u64, bytes: usize) -> Result<(), Trap> {
    match address % bytes as u64 {
        0 => Ok(()),
        _ => Err(Trap::new(
            MISALIGNED_ADDRESS,
            format!("{bytes} bytes at {address:#x}"),
        )),
    }
}

/// A block's shared memory, and who touched it since the last barrier.
pub(super) struct Shared {
    bytes: Vec<u8>,
    /// A note for every two bytes, which is the smallest that warps share out.
    notes: Vec<Note>,
    /// Counts barriers.
    epoch: u32,
}

#[derive(Clone, Copy, Default)]
struct Note {
    written: u32,
    writer: u16,
    reader: u16,
    read: u32,
}

/// More than one.
const SEVERAL: u16 = u16::MAX;

impl Shared {
    pub(super) fn new(bytes: usize) -> Shared {
        Shared {
            bytes: vec![0xff; bytes],
            notes: vec![Note::default(); bytes.div_ceil(2)],
            epoch: 1,
        }
    }

    /// What a new block finds: no number, in every type of float.
    pub(super) fn reset(&mut self) {
        self.bytes.fill(0xff);
        self.barrier();
    }

    /// What was touched before is everybody's again.
    pub(super) fn barrier(&mut self) {
        self.epoch += 1;
    }

    fn range(&self, address: u64, bytes: usize) -> Result<std::ops::Range<usize>, Trap> {
        match usize::try_from(address)
            .ok()
            .and_then(|at| Some((at, at.checked_add(bytes)?)))
        {
            Some((at, end)) if end <= self.bytes.len() => Ok(at..end),
            _ => Err(Trap::new(
                ILLEGAL_ADDRESS,
                format!(
                    "{bytes} bytes at {address:#x} of shared memory, which has {}",
                    self.bytes.len()
                ),
            )),
        }
    }

    pub(super) fn load(&mut self, warp: u16, address: u64, bytes: usize) -> Result<u64, Trap> {
        let range = self.range(address, bytes)?;
        for note in &mut self.notes[range.start / 2..range.end.div_ceil(2)] {
            if note.written == self.epoch && note.writer != warp {
                return Err(race(address, note.writer, "wrote", warp, "reads"));
            }
            note.reader = match note.read == self.epoch && note.reader != warp {
                true => SEVERAL,
                false => warp,
            };
            note.read = self.epoch;
        }
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(&self.bytes[range]);
        Ok(u64::from_le_bytes(value))
    }

    pub(super) fn store(
        &mut self,
        warp: u16,
        address: u64,
        bytes: usize,
        value: u64,
    ) -> Result<(), Trap> {
        self.claim(warp, address, bytes)?;
        let range = self.range(address, bytes)?;
        self.bytes[range].copy_from_slice(&value.to_le_bytes()[..bytes]);
        Ok(())
    }

    /// What a store does to everybody else, without the store.
    pub(super) fn claim(&mut self, warp: u16, address: u64, bytes: usize) -> Result<(), Trap> {
        let range = self.range(address, bytes)?;
        for note in &mut self.notes[range.start / 2..range.end.div_ceil(2)] {
            if note.written == self.epoch && note.writer != warp {
                return Err(race(address, note.writer, "wrote", warp, "writes"));
            }
            if note.read == self.epoch && note.reader != warp {
                return Err(race(address, note.reader, "read", warp, "writes"));
            }
            (note.written, note.writer) = (self.epoch, warp);
        }
        Ok(())
    }

    /// As [`Global::update`]. Atomics need no barrier between them.
    pub(super) fn update(
        &mut self,
        address: u64,
        bytes: usize,
        new: impl Fn(u64) -> u64,
    ) -> Result<u64, Trap> {
        let range = self.range(address, bytes)?;
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(&self.bytes[range.clone()]);
        let before = u64::from_le_bytes(value);
        self.bytes[range].copy_from_slice(&new(before).to_le_bytes()[..bytes]);
        Ok(before)
    }
}

fn race(address: u64, first: u16, did: &str, second: u16, does: &str) -> Trap {
    let first = match first {
        SEVERAL => "several warps".into(),
        warp => format!("warp {warp}"),
    };
    Trap::new(
        LAUNCH_FAILED,
        format!(
            "a barrier is missing: {first} {did} {address:#x} of shared memory, which warp {second} {does}"
        ),
    )
}
