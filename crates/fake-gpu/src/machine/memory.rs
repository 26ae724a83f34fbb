//! Memory of devices and of the host, and which device reaches whose.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::stream::Stream;
use super::{
    Answer, Device, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, Machine, OUT_OF_MEMORY,
    PEER_ALREADY_ENABLED, PEER_NOT_ENABLED, current, locked,
};

#[derive(Default)]
pub(super) struct Memory {
    pub(super) used: u64,
    /// Allocations that are in no range of addresses.
    pub(super) unmapped: usize,
    allocations: BTreeMap<u64, Allocation>,
}

/// Memory, which begins as NaN in every type of float.
pub(super) struct Allocation {
    at: usize,
    layout: Layout,
}

impl Memory {
    /// How many allocations are alive.
    pub(super) fn count(&self) -> usize {
        self.allocations.len() + self.unmapped
    }
}

impl Allocation {
    fn new(bytes: usize) -> Answer<Allocation> {
        let layout = Layout::from_size_align(bytes, 256).map_err(|_| OUT_OF_MEMORY)?;
        // SAFETY: of more than no bytes, which callers see to.
        let pointer = unsafe { alloc(layout) };
        if pointer.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: just allocated, of this size.
        unsafe { pointer.write_bytes(0xff, bytes) };
        Ok(Allocation {
            at: pointer as usize,
            layout,
        })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.at as *mut u8, self.layout) };
    }
}

impl Machine {
    /// Memory of the current device.
    pub fn allocate(&self, bytes: usize) -> Answer<u64> {
        let device = self.current()?;
        self.may_allocate(bytes)?;
        let mut memory = locked(&device.memory);
        if memory.used + bytes as u64 > device.described.bytes {
            return Err(OUT_OF_MEMORY);
        }
        let allocation = Allocation::new(bytes)?;
        let address = allocation.at as u64;
        memory.used += bytes as u64;
        memory.allocations.insert(address, allocation);
        Ok(address)
    }

    pub(super) fn may_allocate(&self, bytes: usize) -> Answer<()> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let number = self.allocations.fetch_add(1, SeqCst) + 1;
        match self.faults.out_of_memory == Some(number) {
            true => Err(OUT_OF_MEMORY),
            false => Ok(()),
        }
    }

    /// Gives memory back when all streams are done whose devices reach it.
    pub fn free(&self, address: u64) -> Answer<()> {
        let index = current().ok_or(INVALID_CONTEXT)?;
        let device = self.devices.get(index).ok_or(INVALID_CONTEXT)?;
        let streams: Vec<Arc<Stream>> = locked(&self.streams).values().cloned().collect();
        let reaching = streams
            .iter()
            .filter(|stream| stream.device().reaches(index));
        reaching.for_each(|stream| stream.finish());
        let mut memory = locked(&device.memory);
        let freed = memory.allocations.remove(&address).ok_or(INVALID_VALUE)?;
        memory.used -= freed.layout.size() as u64;
        drop(memory);
        device.check()
    }

    /// Memory of the host.
    pub fn allocate_host(&self, bytes: usize) -> Answer<usize> {
        self.current()?;
        self.may_allocate(bytes)?;
        let allocation = Allocation::new(bytes)?;
        let address = allocation.at;
        locked(&self.host).insert(address, allocation);
        Ok(address)
    }

    /// Gives it back.
    pub fn free_host(&self, address: usize) -> Answer<()> {
        let freed = locked(&self.host).remove(&address);
        freed.map(drop).ok_or(INVALID_VALUE)
    }
}

impl Device {
    /// Free and total bytes.
    pub fn memory(&self) -> (u64, u64) {
        let total = self.described.bytes;
        (total - locked(&self.memory).used, total)
    }

    /// Beginnings and ends of all memory that its kernels may reach, ascending.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges = self.own_ranges();
        for peer in locked(&self.peers).iter() {
            ranges.extend(peer.own_ranges());
        }
        ranges.sort_unstable();
        ranges
    }

    fn own_ranges(&self) -> Vec<(u64, u64)> {
        let memory = locked(&self.memory);
        let ranges = memory.allocations.iter();
        ranges
            .map(|(&at, memory)| (at, at + memory.layout.size() as u64))
            .collect()
    }

    fn reaches(&self, index: usize) -> bool {
        let peers = locked(&self.peers);
        self.index == index || peers.iter().any(|peer| peer.index == index)
    }

    /// Refuses what is not within one allocation that it reaches.
    pub(super) fn holds(&self, address: u64, bytes: usize) -> Answer<()> {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let ranges = self.ranges();
        match ranges.iter().rfind(|(start, _)| *start <= address) {
            Some((_, last)) if end <= *last => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Reaches a peer's memory from now on, as well.
    pub fn reach(&self, peer: &Arc<Device>) -> Answer<()> {
        if peer.index == self.index {
            return Err(INVALID_DEVICE);
        }
        if self.reaches(peer.index) {
            return Err(PEER_ALREADY_ENABLED);
        }
        locked(&self.peers).push(peer.clone());
        Ok(())
    }

    /// Reaches it no more.
    pub fn unreach(&self, peer: &Device) -> Answer<()> {
        let mut peers = locked(&self.peers);
        let at = peers.iter().position(|other| other.index == peer.index);
        peers.remove(at.ok_or(PEER_NOT_ENABLED)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Faults, devices};
    use crate::machine::enter;

    #[test]
    fn a_device_reaches_its_peers_memory_when_it_asked_for_it() {
        let described = devices("H200:9.0:132:8,H200:9.0:132:8").unwrap();
        let machine = Machine::of(described, Faults::default());
        enter(Some(1));
        let address = machine.allocate(64).unwrap();
        let [one, other] = [&machine.devices[0], &machine.devices[1]];
        assert_eq!(one.holds(address, 64), Err(INVALID_VALUE));
        one.reach(other).unwrap();
        assert_eq!(one.reach(other), Err(PEER_ALREADY_ENABLED));
        assert_eq!(one.reach(one), Err(INVALID_DEVICE));
        one.holds(address, 64).unwrap();
        assert_eq!(one.holds(address, 65), Err(INVALID_VALUE));
        assert_eq!(one.ranges(), [(address, address + 64)]);
        one.unreach(other).unwrap();
        assert_eq!(one.unreach(other), Err(PEER_NOT_ENABLED));
        assert_eq!(one.holds(address, 64), Err(INVALID_VALUE));
        machine.free(address).unwrap();
    }
}
