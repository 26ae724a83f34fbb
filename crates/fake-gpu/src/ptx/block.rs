//! The blocks of a launch, on as many of the host's cores as there are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use super::memory::{Global, Shared};
use super::parse::Kernel;
use super::warp::{Stop, Warp};
use super::{LANES, LAUNCH_FAILED, Trap};

/// How many blocks of how many threads.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Blocks, in x, y and z.
    pub blocks: [u32; 3],
    /// Threads of each.
    pub block: [u32; 3],
    /// Dynamic shared memory of each.
    pub shared_bytes: u32,
}

/// A block that runs.
pub(super) struct Block<'a> {
    pub grid: Grid,
    pub place: [u32; 3],
    pub parameters: &'a [u8],
    pub global: &'a Global<'a>,
    pub shared: Shared,
}

/// Runs a kernel to its end. `memory` is where it may reach: beginnings and ends, ascending.
///
/// # Errors
/// What the first thread that may not go on did.
///
/// # Safety
/// The memory is there meanwhile, and nobody uses it but by atomics, or by other launches.
pub unsafe fn run(
    kernel: &Kernel,
    grid: Grid,
    parameters: &[u8],
    memory: &[(u64, u64)],
) -> Result<(), Trap> {
    let global = Global { ranges: memory };
    let [x, y, z] = grid.blocks.map(u64::from);
    let (next, trap) = (AtomicU64::new(0), Mutex::new(None));
    let work = || {
        let shared = Shared::new(kernel.shared_bytes + grid.shared_bytes as usize);
        let mut block = Block {
            grid,
            place: [0; 3],
            parameters,
            global: &global,
            shared,
        };
        let threads = grid.block.iter().product::<u32>() as usize;
        let warps = 0..threads.div_ceil(LANES) as u16;
        let mut warps: Vec<Warp> = warps.map(|at| Warp::new(kernel, at, &grid)).collect();
        loop {
            let at = next.fetch_add(1, Relaxed);
            if at >= x * y * z {
                return;
            }
            block.place = [at % x, at / x % y, at / x / y].map(|at| at as u32);
            if let Err(Trap { code, words }) = one(kernel, &mut warps, &mut block) {
                let words = format!("{words} of block {:?} of {}", block.place, kernel.name);
                // The others end with their blocks.
                next.store(u64::MAX / 2, Relaxed);
                let mut trap = trap.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                trap.get_or_insert(Trap { code, words });
                return;
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let workers = (x * y * z).min(cores as u64);
    thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    match trap
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
    {
        Some(trap) => Err(trap),
        None => Ok(()),
    }
}

/// Warp by warp, from barrier to barrier.
fn one(kernel: &Kernel, warps: &mut [Warp], block: &mut Block<'_>) -> Result<(), Trap> {
    block.shared.reset();
    warps.iter_mut().for_each(|warp| warp.begin(kernel));
    loop {
        let mut stops = [0, 0];
        for warp in &mut *warps {
            match warp.run(kernel, block)? {
                Stop::Barrier => stops[0] += 1,
                Stop::Exit => stops[1] += 1,
            }
        }
        match stops {
            [0, _] => return Ok(()),
            [_, 0] => block.shared.barrier(),
            [waiting, gone] => {
                return Err(Trap::new(
                    LAUNCH_FAILED,
                    format!("{waiting} warps at a barrier that {gone} never reach, all"),
                ));
            }
        }
    }
}
