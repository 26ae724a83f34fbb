//! A warp: 32 threads that do one instruction at a time.
//!
//! Threads that go different ways become groups, each at its own place in the code. The group
//! furthest behind runs, and groups that meet become one again.

use std::collections::VecDeque;

use super::block::{Block, Grid};
use super::decode::{Address, Guard, Instruction, Operation, Shuffle, Source, Space, Special};
use super::memory::{LOCAL, SHARED, aligned};
use super::parse::Kernel;
use super::{ILLEGAL_ADDRESS, LANES, LAUNCH_FAILED, Lanes, Trap, decode, matrix};

/// Why a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Barrier,
    Exit,
}

/// Lanes at one place.
#[derive(Clone, Copy, Debug)]
struct Group {
    place: usize,
    lanes: u32,
}

pub(super) struct Warp {
    number: u16,
    /// The lanes that are threads.
    all: u32,
    /// Those still running, the furthest behind last.
    groups: Vec<Group>,
    registers: Vec<Lanes>,
    predicates: Vec<u32>,
    local: Vec<Vec<u8>>,
    threads: [Lanes; 3],
    /// Copies that were begun and not waited for: groups of them, and those in no group yet.
    copies: VecDeque<Vec<Copy>>,
    loose: Vec<Copy>,
}

/// A copy into shared memory under way.
struct Copy {
    to: u64,
    bytes: Vec<u8>,
}

impl Warp {
    pub(super) fn new(kernel: &Kernel, number: u16, grid: &Grid) -> Warp {
        let first = usize::from(number) * LANES;
        let count = grid.block.iter().product::<u32>() as usize;
        let [x, y, _] = grid.block.map(|size| size as usize);
        let thread = |lane: usize| {
            let at = first + lane;
            [at % x, at / x % y, at / x / y]
        };
        let threads = [0, 1, 2].map(|axis| std::array::from_fn(|lane| thread(lane)[axis] as u64));
        Warp {
            number,
            all: match count - first {
                count @ 0..LANES => (1 << count) - 1,
                _ => u32::MAX,
            },
            groups: Vec::new(),
            registers: vec![[0; LANES]; kernel.registers],
            predicates: vec![0; kernel.predicates],
            local: vec![Vec::new(); LANES],
            threads,
            copies: VecDeque::new(),
            loose: Vec::new(),
        }
    }

    /// Begins anew. Registers have what nobody should read.
    pub(super) fn begin(&mut self, kernel: &Kernel) {
        self.groups = vec![Group {
            place: 0,
            lanes: self.all,
        }];
        self.registers.fill([0xffff_ffff_7fff_ffff; LANES]);
        self.predicates.fill(0xaaaa_aaaa);
        for local in &mut self.local {
            local.clear();
            local.resize(kernel.local_bytes, 0xff);
        }
        self.copies.clear();
        self.loose.clear();
    }

    /// Runs until all lanes are at a barrier or have ended.
    pub(super) fn run(&mut self, kernel: &Kernel, block: &mut Block<'_>) -> Result<Stop, Trap> {
        loop {
            let Some(mut group) = self.groups.pop() else {
                return Ok(Stop::Exit);
            };
            while let Some(next) = self.groups.last().filter(|next| next.place == group.place) {
                group.lanes |= next.lanes;
                self.groups.pop();
            }
            // As far as the next group, or for ever.
            let meets = self.groups.last().map_or(usize::MAX, |next| next.place);
            while group.place < meets {
                let instruction = kernel.code.get(group.place);
                let Some(instruction) = instruction else {
                    group.lanes = 0;
                    break;
                };
                let lanes = group.lanes & instruction.guard.map_or(u32::MAX, |by| self.mask(by));
                group.place += 1;
                match &instruction.operation {
                    Operation::Branch { target, .. } => {
                        if lanes == group.lanes {
                            group.place = *target;
                        } else if lanes != 0 {
                            group.lanes &= !lanes;
                            self.insert(Group {
                                place: *target,
                                lanes,
                            });
                        }
                        break;
                    }
                    Operation::Exit => {
                        group.lanes &= !lanes;
                        if group.lanes == 0 {
                            break;
                        }
                    }
                    Operation::Barrier if lanes != 0 => {
                        if lanes != self.all {
                            let words = format!(
                                "a barrier that only lanes {lanes:#x} of {:#x} reach",
                                self.all
                            );
                            return Err(self.trapped(instruction, Trap::new(LAUNCH_FAILED, words)));
                        }
                        self.insert(group);
                        return Ok(Stop::Barrier);
                    }
                    _ if lanes == 0 => {}
                    operation => {
                        self.step(operation, lanes, block)
                            .map_err(|trap| self.trapped(instruction, trap))?;
                    }
                }
            }
            if group.lanes != 0 {
                self.insert(group);
            }
        }
    }

    fn insert(&mut self, group: Group) {
        let at = self
            .groups
            .partition_point(|other| other.place > group.place);
        self.groups.insert(at, group);
    }

    fn trapped(&self, instruction: &Instruction, trap: Trap) -> Trap {
        let Trap { code, words } = trap;
        let words = format!("{words}, in `{}` of warp {}", instruction.text, self.number);
        Trap { code, words }
    }

    fn mask(&self, guard: Guard) -> u32 {
        let mask = self.predicates[guard.predicate];
        if guard.is_negated { !mask } else { mask }
    }

    /// The value of each lane; `hold` is where it is put if it is in no register.
    fn value<'a>(&'a self, source: &Source, block: &Block<'_>, hold: &'a mut Lanes) -> &'a Lanes {
        *hold = match *source {
            Source::Register(at) => return &self.registers[at],
            Source::Value(value) => decode::broadcast(value),
            Source::Special(special) => match special {
                Special::Thread(axis) => return &self.threads[axis],
                Special::Threads(axis) => decode::broadcast(block.grid.block[axis].into()),
                Special::Block(axis) => decode::broadcast(block.place[axis].into()),
                Special::Blocks(axis) => decode::broadcast(block.grid.blocks[axis].into()),
                Special::Lane => std::array::from_fn(|lane| lane as u64),
                Special::Warp => decode::broadcast(self.number.into()),
                Special::DynamicShared => decode::broadcast(block.grid.shared_bytes.into()),
            },
        };
        hold
    }

    fn copied(&self, source: &Source, block: &Block<'_>) -> Lanes {
        *self.value(source, block, &mut [0; LANES])
    }

    fn set(&mut self, out: usize, value: &Lanes, lanes: u32) {
        let register = &mut self.registers[out];
        if lanes == u32::MAX {
            *register = *value;
            return;
        }
        for lane in each(lanes) {
            register[lane] = value[lane];
        }
    }

    fn set_predicate(&mut self, out: usize, value: u32, lanes: u32) {
        let predicate = &mut self.predicates[out];
        *predicate = *predicate & !lanes | value & lanes;
    }

    fn addresses(&self, address: &Address, block: &Block<'_>) -> Lanes {
        let base = self.copied(&address.base, block);
        base.map(|base| base.wrapping_add(address.offset))
    }

    fn step(
        &mut self,
        operation: &Operation,
        lanes: u32,
        block: &mut Block<'_>,
    ) -> Result<(), Trap> {
        match operation {
            Operation::Lanewise { out, sources, run } => {
                let mut hold = [[0; LANES]; 3];
                let [first, second, third] = &mut hold;
                let value = run(
                    self.value(&sources[0], block, first),
                    self.value(&sources[1], block, second),
                    self.value(&sources[2], block, third),
                );
                self.set(*out, &value, lanes);
            }
            Operation::Compare {
                out,
                opposite,
                sources,
                run,
                with,
            } => {
                let [mut one, mut other] = [[0; LANES]; 2];
                let holds = run(
                    self.value(&sources[0], block, &mut one),
                    self.value(&sources[1], block, &mut other),
                );
                let combined = |holds| match with {
                    Some((combine, guard)) => combine(holds, self.mask(*guard)),
                    None => holds,
                };
                let (holds, fails) = (combined(holds), combined(!holds));
                self.set_predicate(*out, holds, lanes);
                if let Some(opposite) = opposite {
                    self.set_predicate(*opposite, fails, lanes);
                }
            }
            Operation::Predicates { out, sources, run } => {
                let value = run(self.mask(sources[0]), self.mask(sources[1]));
                self.set_predicate(*out, value, lanes);
            }
            Operation::Select { out, sources, by } => {
                let [one, other] = [0, 1].map(|at| self.copied(&sources[at], block));
                let mask = self.mask(*by);
                let value = std::array::from_fn(|lane| match mask >> lane & 1 {
                    1 => one[lane],
                    _ => other[lane],
                });
                self.set(*out, &value, lanes);
            }
            Operation::Pack { out, parts, bits } => {
                let width = bits / parts.len();
                let mask = u64::MAX >> (64 - width);
                let mut value = [0; LANES];
                for (at, part) in parts.iter().enumerate() {
                    let part = self.copied(part, block);
                    for lane in 0..LANES {
                        value[lane] |= (part[lane] & mask) << (at * width);
                    }
                }
                self.set(*out, &value, lanes);
            }
            Operation::Unpack { outs, source, bits } => {
                let width = bits / outs.len();
                let mask = u64::MAX >> (64 - width);
                let value = self.copied(source, block);
                for (at, out) in outs.iter().enumerate() {
                    let part = value.map(|value| value >> (at * width) & mask);
                    self.set(*out, &part, lanes);
                }
            }
            Operation::Load {
                outs,
                space,
                address,
                bytes,
                is_signed,
            } => {
                let addresses = self.addresses(address, block);
                for lane in each(lanes) {
                    aligned(addresses[lane], bytes * outs.len())?;
                    for (at, &out) in outs.iter().enumerate() {
                        let address = addresses[lane] + (at * bytes) as u64;
                        let value = self.load(*space, address, *bytes, lane, block)?;
                        let unused = 64 - 8 * bytes;
                        self.registers[out][lane] = match is_signed {
                            true => ((value << unused) as i64 >> unused) as u64,
                            false => value,
                        };
                    }
                }
            }
            Operation::Store {
                sources,
                space,
                address,
                bytes,
            } => {
                let addresses = self.addresses(address, block);
                for lane in each(lanes) {
                    aligned(addresses[lane], bytes * sources.len())?;
                }
                for (at, source) in sources.iter().enumerate() {
                    let value = self.copied(source, block);
                    for lane in each(lanes) {
                        let address = addresses[lane] + (at * bytes) as u64;
                        self.store(*space, address, *bytes, value[lane], lane, block)?;
                    }
                }
            }
            Operation::Atomic {
                out,
                space,
                address,
                sources,
                bytes,
                run,
            } => {
                let addresses = self.addresses(address, block);
                let [one, other] = [0, 1].map(|at| self.copied(&sources[at], block));
                for lane in each(lanes) {
                    let address = addresses[lane];
                    aligned(address, *bytes)?;
                    let lone = decode::broadcast;
                    let new = |there| run(&lone(there), &lone(one[lane]), &lone(other[lane]))[lane];
                    let before = match place(*space, address) {
                        (Space::Shared, at) => block.shared.update(at, *bytes, new),
                        (Space::Global, at) => block.global.update(at, *bytes, new),
                        (space, _) => Err(unreachable_place(space, address)),
                    }?;
                    if let Some(out) = out {
                        self.registers[*out][lane] = before;
                    }
                }
            }
            Operation::CopyAsync {
                to,
                from,
                bytes,
                from_bytes,
            } => {
                let [to, from] = [to, from].map(|address| self.addresses(address, block));
                let from_bytes = self.copied(from_bytes, block);
                for lane in each(lanes) {
                    aligned(to[lane], *bytes)?;
                    aligned(from[lane], *bytes)?;
                    // It may arrive at once, or as late as it is waited for.
                    block.shared.claim(self.number, to[lane], *bytes)?;
                    let mut copy = vec![0; *bytes];
                    let present = (from_bytes[lane] as usize).min(*bytes);
                    for (at, byte) in copy[..present].iter_mut().enumerate() {
                        *byte = block.global.load(from[lane] + at as u64, 1)? as u8;
                    }
                    self.loose.push(Copy {
                        to: to[lane],
                        bytes: copy,
                    });
                }
            }
            Operation::CopiesGrouped => {
                let group = std::mem::take(&mut self.loose);
                self.copies.push_back(group);
            }
            Operation::CopiesAwaited { but } => {
                while self.copies.len() > *but {
                    for copy in self.copies.pop_front().unwrap_or_default() {
                        for (at, &byte) in copy.bytes.iter().enumerate() {
                            let to = copy.to + at as u64;
                            block.shared.store(self.number, to, 1, byte.into())?;
                        }
                    }
                }
            }
            Operation::Shuffle {
                kind,
                out,
                valid,
                sources,
            } => {
                let [value, by, clamp, members] =
                    [0, 1, 2, 3].map(|at| self.copied(&sources[at], block));
                for lane in each(lanes) {
                    self.named(members[lane], lanes)?;
                }
                let from = |lane: usize| shuffled(*kind, lane, by[lane] as u32, clamp[lane] as u32);
                let value = std::array::from_fn(|lane| value[from(lane).unwrap_or(lane)]);
                if let Some(valid) = valid {
                    let came = each(lanes).filter(|&lane| from(lane).is_some());
                    let came = came.fold(0, |mask, lane| mask | 1 << lane);
                    self.set_predicate(*valid, came, lanes);
                }
                self.set(*out, &value, lanes);
            }
            Operation::WarpBarrier(members) => {
                let members = self.copied(members, block);
                for lane in each(lanes) {
                    self.named(members[lane], lanes)?;
                }
            }
            Operation::Multiply {
                factor,
                out,
                left,
                right,
                sum,
            } => {
                self.everybody(lanes)?;
                let left = left.map(|source| self.copied(&source, block));
                let right = right.map(|source| self.copied(&source, block));
                let sum = sum.map(|source| self.copied(&source, block));
                let product =
                    matrix::multiply(*factor, left.each_ref(), right.each_ref(), sum.each_ref());
                for (out, value) in out.iter().zip(&product) {
                    self.set(*out, value, lanes);
                }
            }
            Operation::LoadMatrices {
                outs,
                address,
                is_transposed,
            } => {
                self.everybody(lanes)?;
                let rows = self.addresses(address, block);
                for (at, &out) in outs.iter().enumerate() {
                    let mut value = [0; LANES];
                    for (lane, value) in value.iter_mut().enumerate() {
                        for (half, (row, column)) in matrix::elements(lane, *is_transposed)
                            .into_iter()
                            .enumerate()
                        {
                            let row = rows[at * 8 + row];
                            aligned(row, 16)?;
                            let address = row + 2 * column as u64;
                            let element = block.shared.load(self.number, address, 2)?;
                            *value |= element << (16 * half);
                        }
                    }
                    self.set(out, &value, lanes);
                }
            }
            Operation::Nothing => {}
            Operation::Branch { .. } | Operation::Barrier | Operation::Exit => {
                return Err(Trap::new(LAUNCH_FAILED, "a step that is none"));
            }
        }
        Ok(())
    }

    /// Lanes that say who takes part are those, and all of those.
    fn named(&self, members: u64, lanes: u32) -> Result<(), Trap> {
        match members as u32 & self.all == lanes {
            true => Ok(()),
            false => Err(Trap::new(
                LAUNCH_FAILED,
                format!("lanes {lanes:#x} say that {members:#x} take part"),
            )),
        }
    }

    fn everybody(&self, lanes: u32) -> Result<(), Trap> {
        match lanes {
            u32::MAX => Ok(()),
            _ => Err(Trap::new(
                LAUNCH_FAILED,
                format!("lanes {lanes:#x} alone do what takes a whole warp"),
            )),
        }
    }

    fn load(
        &self,
        space: Space,
        address: u64,
        bytes: usize,
        lane: usize,
        block: &mut Block<'_>,
    ) -> Result<u64, Trap> {
        let of = |memory: &[u8], at: u64| {
            let at = at as usize;
            let found = at.checked_add(bytes).and_then(|end| memory.get(at..end));
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(found.ok_or_else(|| unreachable_place(space, address))?);
            Ok(u64::from_le_bytes(value))
        };
        match place(space, address) {
            (Space::Shared, at) => block.shared.load(self.number, at, bytes),
            (Space::Local, at) => of(&self.local[lane], at),
            (Space::Parameter, at) => of(block.parameters, at),
            (_, at) => block.global.load(at, bytes),
        }
    }

    fn store(
        &mut self,
        space: Space,
        address: u64,
        bytes: usize,
        value: u64,
        lane: usize,
        block: &mut Block<'_>,
    ) -> Result<(), Trap> {
        match place(space, address) {
            (Space::Shared, at) => block.shared.store(self.number, at, bytes, value),
            (Space::Local, at) => {
                let at = at as usize;
                let end = at.checked_add(bytes);
                let found = end.and_then(|end| self.local[lane].get_mut(at..end));
                let found = found.ok_or_else(|| unreachable_place(space, address))?;
                found.copy_from_slice(&value.to_le_bytes()[..bytes]);
                Ok(())
            }
            (Space::Parameter, _) => Err(unreachable_place(space, address)),
            (_, at) => block.global.store(at, bytes, value),
        }
    }
}

/// Which memory an address is of, and where in it.
fn place(space: Space, address: u64) -> (Space, u64) {
    match (space, address & 0xff00_0000_0000_0000) {
        (Space::Generic, SHARED) => (Space::Shared, address - SHARED),
        (Space::Generic, LOCAL) => (Space::Local, address - LOCAL),
        (Space::Generic, _) => (Space::Global, address),
        // 32-bit registers hold addresses of these.
        (Space::Shared | Space::Local, _) => (space, address & 0xffff_ffff),
        _ => (space, address),
    }
}

fn unreachable_place(space: Space, address: u64) -> Trap {
    Trap::new(ILLEGAL_ADDRESS, format!("{address:#x} of {space:?} memory"))
}

/// Whose value a lane takes; `None`: its own, for there is no such lane.
fn shuffled(kind: Shuffle, lane: usize, by: u32, clamp: u32) -> Option<usize> {
    let lane = lane as u32;
    let (by, bound, segment) = (by & 31, clamp & 31, clamp >> 8 & 31);
    let last = lane & segment | bound & !segment;
    let first = lane & segment;
    let (from, is_there) = match kind {
        Shuffle::Up => {
            let from = lane.wrapping_sub(by);
            (from, from as i32 >= last as i32)
        }
        Shuffle::Down => (lane + by, lane + by <= last),
        Shuffle::Butterfly => (lane ^ by, lane ^ by <= last),
        Shuffle::Index => {
            let from = first | by & !segment;
            (from, from <= last)
        }
    };
    is_there.then_some(from as usize % LANES)
}

fn each(lanes: u32) -> impl Iterator<Item = usize> {
    let mut rest = lanes;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            lane
        })
    })
}
