//! A process's place in a run, as JavaScript sees it.

use crate::{
    call::{CompiledCall, control},
    embeddings::CompiledVectors,
    environment::Environment,
    errors::{Result, internal, refusal},
    executor::CompiledExecutor,
    outcome::Outcome,
};
use napi::{
    Env, JsValue,
    bindgen_prelude::{External, Unknown},
};
use napi_derive::napi;
use std::{rc::Rc, sync::Arc};
use uform::{
    executor::{Control, Executor},
    mesh::{Mesh, MeshOptions},
};

/// A mesh and the environment that made it.
pub struct MeshHandle {
    mesh: Mesh,
    environment: Rc<Environment>,
}

impl MeshHandle {
    pub fn new(mesh: Mesh, environment: Rc<Environment>) -> Self {
        environment.adopt_mesh(&mesh);
        MeshHandle { mesh, environment }
    }
}

impl Drop for MeshHandle {
    /// JavaScript forgot the handle, or its environment ended. Leaving touches files that may lie on
    /// another machine, so the JS thread leaves it to another one while there is one.
    fn drop(&mut self) {
        let mesh = self.mesh.clone();
        if self.environment.is_closed() {
            drop(mesh.free());
        } else {
            beside(
                &self.environment,
                Arc::default(),
                move |_| mesh.free(),
                drop,
            );
        }
    }
}

/// A mesh's handle in JavaScript.
pub type CompiledMesh = External<MeshHandle>;

/// A process's place. Numbers fit 32 bits; absent: the engine's default.
#[napi(object, object_to_js = false)]
pub struct MeshConfig {
    pub host_domain_index: Option<u32>,
    pub host_domain_count: Option<u32>,
    pub gpus_per_multimem_domain: Option<u32>,
    pub directory: Option<String>,
    pub job: Option<String>,
    pub timeout_seconds: Option<f64>,
}

impl From<MeshConfig> for MeshOptions {
    fn from(config: MeshConfig) -> MeshOptions {
        MeshOptions {
            host_domain_index: config.host_domain_index,
            host_domain_count: config.host_domain_count,
            gpus_per_multimem_domain: config.gpus_per_multimem_domain,
            directory: config.directory.map(Into::into),
            job: config.job,
            timeout_seconds: config.timeout_seconds,
        }
    }
}

/// Waits until every process has joined.
#[napi(catch_unwind)]
pub fn mesh_bootstrap(
    env: Env,
    executor: &CompiledExecutor,
    config: MeshConfig,
) -> Result<CompiledMesh> {
    let environment = Environment::of(env.raw()).map_err(internal)?;
    let mesh = Mesh::bootstrap(&executor.executor, &config.into()).map_err(refusal)?;
    Ok(External::new(MeshHandle::new(mesh, environment)))
}

/// The same without blocking: `settle(error, mesh)` is called when they have.
#[napi(catch_unwind)]
pub fn mesh_join(
    executor: &CompiledExecutor,
    config: MeshConfig,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let environment = executor.environment();
    let ticket = environment.ticket(settle.raw())?;
    let own = executor.executor.clone();
    let options = MeshOptions::from(config);
    beside(
        environment,
        control(call),
        move |control| Mesh::join(&own, &options, control),
        move |outcome| ticket.settle(outcome.map(Outcome::Mesh)),
    );
    Ok(())
}

/// What the run is, and this process's place in it.
#[napi(catch_unwind)]
pub fn mesh_describe<'env>(env: &'env Env, mesh: &CompiledMesh) -> Result<Unknown<'env>> {
    env.to_js_value(mesh.mesh.describe()).map_err(internal)
}

/// Sums vectors in place over all members: `settle(error, nothing)` is called when it is done.
#[napi(catch_unwind)]
pub fn mesh_all_reduce(
    mesh: &CompiledMesh,
    vectors: &CompiledVectors,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let embeddings = vectors.embeddings()?;
    let ticket = mesh.environment.ticket(settle.raw())?;
    mesh.mesh
        .all_reduce_deferred(&embeddings, control(call), move |outcome| {
            ticket.settle(outcome.map(|()| Outcome::Done));
        });
    Ok(())
}

/// Leaves the run, when its calls have ended. Again: nothing.
#[napi(catch_unwind)]
pub fn mesh_free(mesh: &CompiledMesh) -> Result<()> {
    mesh.mesh.free().map_err(refusal)
}

/// Removes the files of every mesh, for when the process ends at once: neither a handle nor an environment
/// is given up then.
#[napi(catch_unwind)]
pub fn meshes_leave(env: Env) -> Result<()> {
    let environment = Environment::of(env.raw()).map_err(internal)?;
    environment.leave_runs();
    Ok(())
}

/// Runs what may take long on a thread for it alone, which the environment knows, and at its end
/// cancels and joins.
fn beside<R: Send + 'static>(
    environment: &Environment,
    control: Arc<Control>,
    work: impl FnOnce(&Control) -> uform::Result<R> + Send + 'static,
    done: impl FnOnce(uform::Result<R>) + Send + 'static,
) {
    let thread = Executor::inline();
    environment.adopt(&thread);
    thread.deferred(control, move |hold| work(hold.control), done);
    environment.retire(&thread);
}
