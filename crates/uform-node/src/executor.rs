//! Executors as JavaScript sees them.

use crate::{
    environment::{Account, Environment},
    errors::{Result, internal, refusal},
    outcome::Outcome,
};
use napi::{
    Env, JsValue,
    bindgen_prelude::{BigInt, External, Unknown},
};
use napi_derive::napi;
use std::rc::Rc;
use uform::{
    device::BorrowedStream,
    executor::{Executor, Mood},
    hardware::{CpuClass, GpuClass},
    placement::{PoolOptions, RamOptions, VramOptions},
};

/// What a thread pins beside the executor's scratch: its stack and what the system
/// keeps about it. An estimate for the collector, in bytes.
const THREAD_BYTES: usize = 256 << 10;

/// An executor and what the collector was told about it.
pub struct ExecutorHandle {
    pub executor: Executor,
    account: Account,
}

impl ExecutorHandle {
    fn new(executor: Executor, environment: Rc<Environment>) -> Self {
        environment.adopt(&executor);
        let handle = ExecutorHandle {
            executor,
            account: Account::new(environment),
        };
        handle.account();
        handle
    }

    /// The environment that made it.
    pub fn environment(&self) -> &Environment {
        self.account.environment()
    }

    /// Tells the collector what the executor keeps by now.
    pub fn account(&self) {
        let bytes = if self.executor.is_finished() {
            0
        } else {
            THREAD_BYTES * self.executor.threads() + self.executor.scratch_bytes()
        };
        self.account.set(bytes);
    }
}

impl Drop for ExecutorHandle {
    /// JavaScript forgot the handle, or its environment ended.
    fn drop(&mut self) {
        self.environment().retire(&self.executor);
    }
}

/// An executor's handle in JavaScript.
pub type CompiledExecutor = External<ExecutorHandle>;

/// Where an executor's threads go. Counts are safe integers; absent: the engine's default.
#[napi(object, object_to_js = false)]
pub struct RamConfig {
    pub memory_domains: Option<Vec<u32>>,
    pub threads: Option<f64>,
    pub cpu_class: Option<String>,
    pub deferred_limit: Option<f64>,
}

/// Spawns host threads for models that reside in host memory.
#[napi(catch_unwind)]
pub fn executor_for_ram(env: Env, config: RamConfig) -> Result<CompiledExecutor> {
    let options = RamOptions {
        memory_domains: config.memory_domains.unwrap_or_default(),
        threads: config.threads.map(|count| count as u64),
        cpu_class: class(config.cpu_class)?,
        deferred_limit: config.deferred_limit.map(|count| count as u64),
    };
    let environment = Environment::of(env.raw()).map_err(internal)?;
    let executor = Executor::for_ram(&options).map_err(refusal)?;
    Ok(External::new(ExecutorHandle::new(executor, environment)))
}

/// Which devices an executor drives, and where its threads go. Absent: the engine's default.
#[napi(object, object_to_js = false)]
pub struct VramConfig {
    pub devices: Option<Vec<u32>>,
    pub gpu_class: Option<String>,
    pub memory_domains: Option<Vec<u32>>,
    pub cpu_class: Option<String>,
    /// Addresses, which the caller checked to be of 64 bits; 0: one of its own.
    pub streams: Option<Vec<BigInt>>,
    pub scratch_limit: Option<f64>,
    pub deferred_limit: Option<f64>,
}

/// Drives GPUs for models that reside in their memory.
#[napi(catch_unwind)]
pub fn executor_for_vram(env: Env, config: VramConfig) -> Result<CompiledExecutor> {
    let streams = config.streams.unwrap_or_default().into_iter();
    let options = VramOptions {
        devices: config.devices.unwrap_or_default(),
        gpu_class: gpu_class(config.gpu_class)?,
        memory_domains: config.memory_domains.unwrap_or_default(),
        cpu_class: class(config.cpu_class)?,
        streams: streams
            // SAFETY: JavaScript's caller vouches for the addresses, as the documentation asks.
            .map(|stream| unsafe { BorrowedStream::at(stream.get_u64().1) })
            .collect(),
        scratch_limit: config.scratch_limit.map(|bytes| bytes as usize),
        deferred_limit: config.deferred_limit.map(|count| count as u64),
    };
    let environment = Environment::of(env.raw()).map_err(internal)?;
    let executor = Executor::for_vram(&options).map_err(refusal)?;
    Ok(External::new(ExecutorHandle::new(executor, environment)))
}

/// How an executor on a borrowed pool takes calls. Absent: the engine's default.
#[napi(object, object_to_js = false)]
pub struct PoolConfig {
    pub memory_domains: Option<Vec<u32>>,
    pub cpu_class: Option<String>,
    pub deferred_limit: Option<f64>,
}

/// Borrows the pool at an address, which the caller checked to be of 64 bits.
#[napi(catch_unwind)]
pub fn executor_on_pool(env: Env, pool: BigInt, config: PoolConfig) -> Result<CompiledExecutor> {
    let options = PoolOptions {
        memory_domains: config.memory_domains.unwrap_or_default(),
        cpu_class: class(config.cpu_class)?,
        deferred_limit: config.deferred_limit.map(|count| count as u64),
    };
    let environment = Environment::of(env.raw()).map_err(internal)?;
    // An executor that was collected may still be known here, and borrow the pool.
    environment.forget_finished();
    let (_, address, _) = pool.get_u64();
    // SAFETY: JavaScript's caller vouches for the address, as the documentation asks.
    let executor = unsafe { Executor::on_pool(address as usize, &options) }.map_err(refusal)?;
    Ok(External::new(ExecutorHandle::new(executor, environment)))
}

/// The executor that computes immediate calls on the caller and deferred ones on one thread.
#[napi(catch_unwind)]
pub fn executor_inline(env: Env) -> Result<CompiledExecutor> {
    let environment = Environment::of(env.raw()).map_err(internal)?;
    Ok(External::new(ExecutorHandle::new(
        Executor::inline(),
        environment,
    )))
}

/// What the executor is and does just now.
#[napi(catch_unwind)]
pub fn executor_describe<'env>(
    env: &'env Env,
    executor: &CompiledExecutor,
) -> Result<Unknown<'env>> {
    env.to_js_value(&executor.executor.describe())
        .map_err(internal)
}

/// Waits for every call submitted so far, then idles in `mood`: 0 parked, 1 spinning.
#[napi(catch_unwind)]
pub fn executor_drain(executor: &CompiledExecutor, mood: u32) -> Result<()> {
    executor.executor.drain(parse_mood(mood)).map_err(refusal)
}

/// The same without waiting: `settle(error, value)` is called when it is so.
#[napi(catch_unwind)]
pub fn executor_drain_deferred(
    executor: &CompiledExecutor,
    mood: u32,
    settle: Unknown<'_>,
) -> Result<()> {
    let ticket = executor.environment().ticket(settle.raw())?;
    executor
        .executor
        .drain_deferred(parse_mood(mood), move |outcome| {
            ticket.settle(outcome.map(|()| Outcome::Done));
        });
    Ok(())
}

/// Runs every deferred call, joins the threads, releases the scratch. Again: nothing.
#[napi(catch_unwind)]
pub fn executor_free(executor: &CompiledExecutor) {
    executor.executor.free();
    executor.account();
}

fn parse_mood(mood: u32) -> Mood {
    match mood {
        1 => Mood::Spinning,
        _ => Mood::Parked,
    }
}

/// A GPU class by its word.
pub fn gpu_class(word: Option<String>) -> Result<Option<GpuClass>> {
    word.map(|word| GpuClass::parse(&word).map_err(refusal))
        .transpose()
}

/// A CPU class by its word.
pub fn class(word: Option<String>) -> Result<Option<CpuClass>> {
    word.map(|word| CpuClass::parse(&word).map_err(refusal))
        .transpose()
}
