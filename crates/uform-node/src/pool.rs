//! ForkUnion pools of our own, as JavaScript sees them.

use crate::{
    environment::Environment,
    errors::{Result, internal, refusal},
};
use napi::{
    Env,
    bindgen_prelude::{BigInt, External},
};
use napi_derive::napi;
use std::rc::Rc;
use uform::{executor::ThreadPool, placement::ThreadPoolOptions};

/// A pool and the environment that made it.
pub struct PoolHandle {
    pool: ThreadPool,
    environment: Rc<Environment>,
}

impl Drop for PoolHandle {
    /// JavaScript forgot the handle, or its environment ended.
    fn drop(&mut self) {
        self.environment.retire_pool(&self.pool);
    }
}

/// A pool's handle in JavaScript.
pub type CompiledPool = External<PoolHandle>;

/// What a pool is made of. The count is a safe integer; absent: the engine's default.
#[napi(object, object_to_js = false)]
pub struct ThreadPoolConfig {
    pub memory_domains: Option<Vec<u32>>,
    pub threads: Option<f64>,
    pub name: Option<String>,
}

/// Spawns a ForkUnion pool.
#[napi(catch_unwind)]
pub fn pool_spawn(env: Env, config: ThreadPoolConfig) -> Result<CompiledPool> {
    let options = ThreadPoolOptions {
        memory_domains: config.memory_domains.unwrap_or_default(),
        threads: config.threads.map(|count| count as u64),
        name: config.name,
    };
    let environment = Environment::of(env.raw()).map_err(internal)?;
    let pool = ThreadPool::spawn(&options).map_err(refusal)?;
    environment.adopt_pool(&pool);
    Ok(External::new(PoolHandle { pool, environment }))
}

/// Where the pool is, as executors and other packages borrow it.
#[napi(catch_unwind)]
pub fn pool_address(pool: &CompiledPool) -> BigInt {
    BigInt::from(pool.pool.address() as u64)
}

/// How many threads the pool has.
#[napi(catch_unwind)]
pub fn pool_threads(pool: &CompiledPool) -> f64 {
    pool.pool.threads() as f64
}

/// Joins the pool's threads, unless an executor borrows it. Again: nothing.
#[napi(catch_unwind)]
pub fn pool_free(pool: &CompiledPool) -> Result<()> {
    // An executor that was collected may still be known here, and borrow the pool.
    pool.environment.forget_finished();
    pool.pool.free().map_err(refusal)
}
