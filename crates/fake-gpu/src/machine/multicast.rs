//! Multicast objects: devices that a switch writes to at once, and the memory of each that it writes.
//!
//! They are made, bound and taken apart as on a machine that has them, each step checked; nothing is
//! ever written through one.

use std::collections::HashMap;
use std::sync::Arc;

use super::{
    Answer, Device, INVALID_HANDLE, INVALID_VALUE, Machine, NOT_SUPPORTED, OUT_OF_MEMORY,
    SYSTEM_NOT_READY, locked,
};

/// What sizes are multiples of, of these objects and of the memory bound to them.
pub const GRANULARITY: usize = 2 << 20;

/// Objects, and memory without an address.
#[derive(Default)]
pub(super) struct Multicasts {
    objects: HashMap<usize, Multicast>,
    memory: HashMap<usize, Physical>,
}

struct Multicast {
    bytes: usize,
    /// How many devices it is for.
    wanted: usize,
    members: Vec<usize>,
    /// Of which device's memory, from where on, how much.
    bound: Vec<(usize, usize, usize)>,
}

struct Physical {
    device: Arc<Device>,
    bytes: usize,
}

impl Multicasts {
    pub(super) fn count(&self) -> usize {
        self.objects.len()
    }
}

impl Machine {
    /// Memory of a device, without an address.
    pub fn create_memory(&self, device: i32, bytes: usize) -> Answer<usize> {
        let device = self.device(device)?.clone();
        self.may_allocate(bytes)?;
        if !bytes.is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        let mut memory = locked(&device.memory);
        if memory.used + bytes as u64 > device.described.bytes {
            return Err(OUT_OF_MEMORY);
        }
        memory.used += bytes as u64;
        memory.unmapped += 1;
        drop(memory);
        let handle = self.handle();
        let physical = Physical { device, bytes };
        locked(&self.multicasts).memory.insert(handle, physical);
        Ok(handle)
    }

    /// An object of so many bytes for so many devices.
    pub fn create_multicast(&self, devices: u32, bytes: usize) -> Answer<usize> {
        let able = self.devices.iter();
        let able = able.filter(|device| device.described.has_multicast());
        match able.count() {
            0 => return Err(NOT_SUPPORTED),
            count if devices == 0 || devices as usize > count => return Err(INVALID_VALUE),
            _ if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) => return Err(INVALID_VALUE),
            _ => {}
        }
        let handle = self.handle();
        let object = Multicast {
            bytes,
            wanted: devices as usize,
            members: Vec::new(),
            bound: Vec::new(),
        };
        locked(&self.multicasts).objects.insert(handle, object);
        Ok(handle)
    }

    /// Makes a device a member.
    pub fn add_member(&self, object: usize, device: i32) -> Answer<()> {
        let device = self.device(device)?;
        let mut multicasts = locked(&self.multicasts);
        let object = multicasts.objects.get_mut(&object).ok_or(INVALID_HANDLE)?;
        if !device.described.has_multicast() {
            return Err(NOT_SUPPORTED);
        }
        if object.members.len() == object.wanted || object.members.contains(&device.index) {
            return Err(INVALID_VALUE);
        }
        object.members.push(device.index);
        Ok(())
    }

    /// Binds a member's memory, when all members are there.
    pub fn bind(&self, object: usize, at: usize, memory: usize, bytes: usize) -> Answer<()> {
        let mut multicasts = locked(&self.multicasts);
        let Multicasts {
            objects,
            memory: all,
        } = &mut *multicasts;
        let object = objects.get_mut(&object).ok_or(INVALID_HANDLE)?;
        let memory = all.get(&memory).ok_or(INVALID_HANDLE)?;
        let is_free = |&(device, from, bound): &(usize, usize, usize)| {
            device != memory.device.index || at + bytes <= from || from + bound <= at
        };
        let fits = [at, bytes]
            .iter()
            .all(|size| size.is_multiple_of(GRANULARITY))
            && at.checked_add(bytes).is_some_and(|end| end <= object.bytes)
            && bytes <= memory.bytes;
        if object.members.len() < object.wanted
            || !object.members.contains(&memory.device.index)
            || bytes == 0
            || !fits
            || !object.bound.iter().all(is_free)
        {
            return Err(INVALID_VALUE);
        }
        if self.faults.multicast_bind {
            return Err(SYSTEM_NOT_READY);
        }
        object.bound.push((memory.device.index, at, bytes));
        Ok(())
    }

    /// Undoes a binding.
    pub fn unbind(&self, object: usize, device: i32, at: usize, bytes: usize) -> Answer<()> {
        let device = self.device(device)?.index;
        let mut multicasts = locked(&self.multicasts);
        let object = multicasts.objects.get_mut(&object).ok_or(INVALID_HANDLE)?;
        let mut bound = object.bound.iter();
        let found = bound.position(|bound| *bound == (device, at, bytes));
        object.bound.remove(found.ok_or(INVALID_VALUE)?);
        Ok(())
    }

    /// Gives an object back, or memory.
    pub fn release(&self, handle: usize) -> Answer<()> {
        let mut multicasts = locked(&self.multicasts);
        if multicasts.objects.remove(&handle).is_some() {
            return Ok(());
        }
        let released = multicasts.memory.remove(&handle).ok_or(INVALID_HANDLE)?;
        let mut memory = locked(&released.device.memory);
        memory.used -= released.bytes as u64;
        memory.unmapped -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{devices, faults};
    use crate::machine::INVALID_DEVICE;

    fn machine(fault: &str) -> Machine {
        let described = devices("H200:9.0:132:8,H200:9.0:132:8,L4:8.9:58:8").unwrap();
        Machine::of(described, faults(fault).unwrap())
    }

    /// An object with two members, and memory of both.
    fn made(machine: &Machine) -> (usize, [usize; 2]) {
        let object = machine.create_multicast(2, GRANULARITY).unwrap();
        for device in [0, 1] {
            machine.add_member(object, device).unwrap();
        }
        let memory = [0, 1].map(|device| machine.create_memory(device, GRANULARITY).unwrap());
        (object, memory)
    }

    #[test]
    fn an_object_is_made_bound_and_taken_apart() {
        let machine = machine("");
        let (object, memory) = made(&machine);
        for (device, memory) in memory.into_iter().enumerate() {
            machine.bind(object, 0, memory, GRANULARITY).unwrap();
            let device = device as i32;
            assert_eq!(
                machine.bind(object, 0, memory, GRANULARITY),
                Err(INVALID_VALUE)
            );
            machine.unbind(object, device, 0, GRANULARITY).unwrap();
            let again = machine.unbind(object, device, 0, GRANULARITY);
            assert_eq!(again, Err(INVALID_VALUE));
            machine.release(memory).unwrap();
        }
        assert!(machine.counts().contains("\"multicasts\":1"));
        machine.release(object).unwrap();
        assert_eq!(machine.release(object), Err(INVALID_HANDLE));
        assert!(machine.counts().contains("\"allocations\":0"));
        assert!(machine.counts().contains("\"multicasts\":0"));
        assert_eq!(machine.devices[0].memory(), (8 << 20, 8 << 20));
    }

    #[test]
    fn what_no_switch_would_do_is_refused() {
        let machine = machine("");
        let wrong = |devices, bytes| machine.create_multicast(devices, bytes).unwrap_err();
        assert_eq!(wrong(3, GRANULARITY), INVALID_VALUE);
        assert_eq!(wrong(0, GRANULARITY), INVALID_VALUE);
        assert_eq!(wrong(2, 4096), INVALID_VALUE);
        let object = machine.create_multicast(2, GRANULARITY).unwrap();
        machine.add_member(object, 0).unwrap();
        assert_eq!(machine.add_member(object, 0), Err(INVALID_VALUE));
        assert_eq!(machine.add_member(object, 2), Err(NOT_SUPPORTED));
        assert_eq!(machine.add_member(object, 3), Err(INVALID_DEVICE));
        let memory = machine.create_memory(0, GRANULARITY).unwrap();
        // A member is missing.
        assert_eq!(
            machine.bind(object, 0, memory, GRANULARITY),
            Err(INVALID_VALUE)
        );
        assert_eq!(machine.create_memory(0, 8 << 20), Err(OUT_OF_MEMORY));
        assert_eq!(machine.create_memory(0, 4096), Err(INVALID_VALUE));
    }

    #[test]
    fn a_bind_that_fails_leaves_the_rest_as_it_was() {
        let machine = machine("multicast-bind");
        let (object, memory) = made(&machine);
        for memory in memory {
            assert_eq!(
                machine.bind(object, 0, memory, GRANULARITY),
                Err(SYSTEM_NOT_READY)
            );
            machine.release(memory).unwrap();
        }
        machine.release(object).unwrap();
    }
}
