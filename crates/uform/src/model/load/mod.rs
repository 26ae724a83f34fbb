//! Reading a model: an immediate or deferred call like any other, whose lanes share
//! the work.

pub mod opened;
pub mod wanted;

#[cfg(feature = "native")]
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use self::opened::Opened;
#[cfg(feature = "native")]
use crate::executor::LoadingTeam;
use crate::executor::{Arena, Control, Executor, Share, Work, complete, pause};
use crate::hardware::CpuClass;
use crate::hardware::topology::Topology;
use crate::kernels::fork_join::for_each;
use crate::kernels::{ForkJoin, Kernels, Precision, Region};
use crate::model::checkpoint::fingerprint::{Digest, Fingerprint, Recorder};
use crate::model::checkpoint::weights::Weights;
use crate::model::files::Source;
#[cfg(feature = "native")]
use crate::model::files::folder::Folder;
use crate::model::ram::bert::{Bert, Embeddings, Layer};
use crate::model::ram::dense::Head;
use crate::model::tokenizer::Tokenizer;
use crate::model::{Model, ModelOptions, Network, Parts, Ram, Residency};
use crate::placement::check_domains;
use crate::{Error, Result};

impl Model {
    /// Loads the model at `path` into host memory while the caller waits: an immediate
    /// call on `executor`, whose lanes share the work. The inline executor's one lane is joined by
    /// temporary threads, two where two can run.
    ///
    /// `path` is a folder in the Hugging Face or sentence-transformers layout, or a
    /// `.safetensors` file with its `config.json` and `tokenizer.json` beside it.
    ///
    /// # Errors
    /// `NotFound`, `CorruptModel`, `Unsupported` and `Io` name the file and what is
    /// wrong with it; `InvalidArgument` for a class this CPU cannot run or the executor
    /// is not pinned to, and for memory domains that are not there; `Contended` when another call holds the executor.
    #[cfg(feature = "native")]
    pub fn load_ram(path: &Path, options: &ModelOptions, executor: &Executor) -> Result<Model> {
        Model::load_from(&Folder::open(path)?, options, executor)
    }

    /// Loads a model whose files come from anywhere: [`load_ram`](Self::load_ram) is this
    /// for a folder. Errors are the same.
    pub fn load_from(
        source: &dyn Source,
        options: &ModelOptions,
        executor: &Executor,
    ) -> Result<Model> {
        let plan = Plan::new(options, executor)?;
        executor.immediate(&Control::new(), |hold| {
            complete(read(source, &plan, hold.team, hold.control))
        })
    }

    /// [`load_ram`](Self::load_ram) as a deferred call: returns at once, and hands the
    /// outcome to `done`, exactly once. Progress is in bytes of weights.
    #[cfg(feature = "native")]
    pub fn open_ram(
        path: PathBuf,
        options: ModelOptions,
        executor: &Executor,
        control: Arc<Control>,
        done: impl FnOnce(Result<Model>) + Send + 'static,
    ) {
        let folder = move || Ok(Box::new(Folder::open(&path)?) as Box<dyn Source>);
        open(folder, options, executor, control, done);
    }

    /// [`load_from`](Self::load_from) as a deferred call, as [`open_ram`](Self::open_ram) is of
    /// [`load_ram`](Self::load_ram).
    pub fn open_from(
        source: Box<dyn Source>,
        options: ModelOptions,
        executor: &Executor,
        control: Arc<Control>,
        done: impl FnOnce(Result<Model>) + Send + 'static,
    ) {
        open(|| Ok(source), options, executor, control, done);
    }
}

/// Reads a model in a deferred call, whose first act is to open the source.
fn open(
    source: impl FnOnce() -> Result<Box<dyn Source>> + Send + 'static,
    options: ModelOptions,
    executor: &Executor,
    control: Arc<Control>,
    done: impl FnOnce(Result<Model>) + Send + 'static,
) {
    let plan = match Plan::new(&options, executor) {
        Ok(plan) => plan,
        Err(error) => return done(Err(error)),
    };
    let source = Some(source);
    executor.deferred_work(control, Load { source, plan }, done);
}

/// What a deferred call does that reads a model.
struct Load<F> {
    /// What opens the files; `None` once it did.
    source: Option<F>,
    plan: Plan,
}

impl<F> Work for Load<F>
where
    F: FnOnce() -> Result<Box<dyn Source>> + Send + 'static,
{
    type Output = Model;

    fn admits(&mut self, _next: &Self) -> bool {
        false
    }

    async fn run(
        calls: &mut [Share<'_, Self>],
        team: &dyn ForkJoin,
        _arenas: &mut [Arena],
    ) -> Result<Vec<Result<Model>>> {
        let mut models = Vec::new();
        for Share { work, control } in calls {
            if let Some(open) = work.source.take() {
                models.push(read(&*open()?, &work.plan, team, control).await);
            }
        }
        Ok(models)
    }
}

/// Options that met the executor that loads.
pub(in crate::model) struct Plan {
    class: CpuClass,
    kernels: &'static Kernels,
    /// Where weights go; empty: wherever the system puts them.
    #[cfg_attr(
        not(feature = "native"),
        expect(dead_code, reason = "there is one memory")
    )]
    memory_domains: Vec<u32>,
    /// How many threads read. Without an executor the tables, half of a small model, are read beside
    /// the layers.
    #[cfg(feature = "native")]
    threads: usize,
}

impl Plan {
    pub(in crate::model) fn new(options: &ModelOptions, executor: &Executor) -> Result<Plan> {
        Residency::Ram.fits(executor)?;
        let class = class_for(options, executor)?;
        let memory_domains = match &options.memory_domains[..] {
            [] => executor.memory_domains(),
            asked => {
                check_domains(asked, Topology::here())?;
                asked
            }
        };
        Ok(Plan {
            class,
            kernels: Kernels::of(class, options.precision.unwrap_or(Precision::auto(class))),
            memory_domains: memory_domains.to_vec(),
            #[cfg(feature = "native")]
            threads: executor.loading_threads(),
        })
    }
}

fn class_for(options: &ModelOptions, executor: &Executor) -> Result<CpuClass> {
    match (options.cpu_class, executor.cpu_class()) {
        (Some(asked), Some(pinned)) if asked != pinned => Err(Error::invalid(format!(
            "`cpuClass` is {:?} and the executor is pinned to {:?}: pin both alike, or only one",
            asked.word(),
            pinned.word()
        ))),
        (asked, pinned) => CpuClass::resolve(asked.or(pinned)),
    }
}

/// What one lane reads at a time: what cannot be shared comes first.
#[derive(Clone, Copy)]
pub(in crate::model) enum Item {
    Tokenizer,
    Embeddings,
    Layer(usize),
    Head(usize),
}

/// Reads a model from wherever its files are. In a box, since a compiler would make as many copies of all that it
/// does as there are callers, which WebAssembly downloads.
fn read<'a>(
    source: &'a dyn Source,
    plan: &'a Plan,
    team: &'a dyn ForkJoin,
    control: &'a Control,
) -> Pin<Box<dyn Future<Output = Result<Model>> + Send + 'a>> {
    Box::pin(async move {
        let recorder = Recorder::new(source);
        Reader::open(&recorder, plan)?.read(team, control).await
    })
}

/// A model's files while they are read, wherever its weights go.
pub(in crate::model) struct Files<'a> {
    source: &'a Recorder<'a>,
    pub(in crate::model) opened: Opened,
}

impl<'a> Files<'a> {
    /// Opens them.
    pub(in crate::model) fn open(source: &'a Recorder<'a>) -> Result<Self> {
        Ok(Files {
            source,
            opened: Opened::open(source)?,
        })
    }

    /// Loads every item, shared by the lanes: what each became, in their order.
    pub(in crate::model) async fn load<T: Send, F: Future<Output = Result<T>> + Send>(
        &self,
        team: &dyn ForkJoin,
        control: &Control,
        load: impl Fn(Item) -> F + Sync,
    ) -> Result<Vec<T>> {
        let mut items = vec![(Item::Tokenizer, None), (Item::Embeddings, None)];
        items.extend((0..self.opened.config.layers).map(|layer| (Item::Layer(layer), None)));
        items.extend((0..self.opened.heads.len()).map(|head| (Item::Head(head), None)));
        self.report(control);
        if cfg!(feature = "native") {
            let lanes = &mut vec![(); team.lanes()];
            for_each(team, lanes, &mut items, |(), (item, loaded)| {
                *loaded = Some(control.check().and_then(|()| complete(load(*item))));
                self.report(control);
            });
        } else {
            for (item, loaded) in &mut items {
                *loaded = Some(match control.check() {
                    Ok(()) => load(*item).await,
                    Err(error) => Err(error),
                });
                self.report(control);
                pause().await;
            }
        }
        let loaded = items.into_iter().filter_map(|(_, loaded)| loaded);
        let loaded = loaded.collect::<Result<_>>()?;
        self.check_unchanged()?;
        control.report(self.total(), self.total());
        Ok(loaded)
    }

    pub(in crate::model) async fn tokenizer(&self) -> Result<Box<Tokenizer>> {
        let Opened {
            config, settings, ..
        } = &self.opened;
        let tokenizer = Tokenizer::load_in_steps(
            self.source,
            &settings.transformer,
            &settings.tokens,
            config.vocabulary,
        )
        .await?;
        Ok(Box::new(tokenizer))
    }

    /// How many weights were read, and which model they and its settings are.
    pub(in crate::model) fn identify(&self, precision: Precision) -> (u64, Fingerprint) {
        let modules: Vec<_> = self.all_weights().map(Weights::digests).collect();
        let tensors = modules.iter().flat_map(|tensors| tensors.values());
        let parameters = tensors.map(Digest::values).sum();
        let modules = modules.iter().map(|tensors| &**tensors);
        let fingerprint = Fingerprint::of(&self.source.files(), modules, precision);
        (parameters, fingerprint)
    }

    /// Whether all weights that were read are of the files as they were opened.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        self.all_weights().try_for_each(Weights::check_unchanged)
    }

    fn report(&self, control: &Control) {
        let read = self.all_weights().map(Weights::bytes_read).sum();
        control.report(read, self.total());
    }

    fn total(&self) -> u64 {
        self.all_weights().map(Weights::bytes).sum()
    }

    pub(in crate::model) fn all_weights(&self) -> impl Iterator<Item = &Weights> {
        std::iter::once(&self.opened.weights).chain(&self.opened.heads)
    }
}

/// Reads what a model's files hold into host memory.
pub(in crate::model) struct Reader<'a> {
    plan: &'a Plan,
    pub(in crate::model) files: Files<'a>,
    /// Where the layers' weights are packed.
    region: Arc<Region>,
    head_kernels: &'static Kernels,
}

/// What an [`Item`] became.
enum Loaded {
    Tokenizer(Box<Tokenizer>),
    Embeddings(Embeddings),
    Layer(Box<Layer>),
    Head(Head),
}

impl<'a> Reader<'a> {
    /// Opens a model's files.
    pub(in crate::model) fn open(source: &'a Recorder<'a>, plan: &'a Plan) -> Result<Self> {
        let files = Files::open(source)?;
        // A configuration may promise more than the files can hold: such a model fails for what is
        // missing, not for memory. Nothing is widened to more than four times its bytes.
        let most = files.opened.weights.bytes().saturating_mul(5);
        let packed = Layer::packed_bytes(plan.kernels, &files.opened.config);
        Ok(Reader {
            plan,
            region: Region::new(packed.min(usize::try_from(most).unwrap_or(usize::MAX)))?,
            files,
            head_kernels: Kernels::of(plan.class, Precision::F32),
        })
    }

    /// Reads the model, on an executor that is held.
    pub(in crate::model) async fn read(
        &self,
        team: &dyn ForkJoin,
        control: &Control,
    ) -> Result<Model> {
        #[cfg(feature = "native")]
        if !self.plan.memory_domains.is_empty() || self.plan.threads > team.lanes() {
            let team = LoadingTeam::new(self.plan.threads, self.plan.memory_domains.clone());
            let mut parts = self.load(&team, control).await?;
            parts.refused = team.into_refused();
            return Ok(Model::new(parts));
        }
        self.load(team, control).await.map(Model::new)
    }

    /// Reads every item, shared by the lanes, and puts the model together.
    async fn load(&self, team: &dyn ForkJoin, control: &Control) -> Result<Parts> {
        let load = |item| self.item(item);
        let loaded = self.files.load(team, control, load).await?;
        let (mut tokenizer, mut embeddings) = (None, None);
        let (mut layers, mut heads) = (Vec::new(), Vec::new());
        for loaded in loaded {
            match loaded {
                Loaded::Tokenizer(read) => tokenizer = Some(*read),
                Loaded::Embeddings(read) => embeddings = Some(read),
                Loaded::Layer(layer) => layers.push(*layer),
                Loaded::Head(head) => heads.push(head),
            }
        }
        let (Some(tokenizer), Some(embeddings)) = (tokenizer, embeddings) else {
            unreachable!("every item was read, or its error returned");
        };
        let kernels = self.plan.kernels;
        let (parameters, fingerprint) = self.files.identify(kernels.precision());
        let Opened {
            config, settings, ..
        } = &self.files.opened;
        Ok(Parts {
            network: Network::Ram(Box::new(Ram {
                bert: Bert::new(config.clone(), kernels, embeddings, layers),
                heads,
                head_kernels: self.head_kernels,
                class: self.plan.class,
            })),
            tokenizer,
            settings: settings.clone(),
            precision: kernels.precision(),
            parameters,
            fingerprint,
            refused: Vec::new(),
        })
    }

    async fn item(&self, item: Item) -> Result<Loaded> {
        let Opened {
            config,
            settings,
            weights,
            heads,
        } = &self.files.opened;
        let kernels = self.plan.kernels;
        Ok(match item {
            Item::Tokenizer => Loaded::Tokenizer(self.files.tokenizer().await?),
            Item::Embeddings => Loaded::Embeddings(Embeddings::read(weights, config).await?),
            Item::Layer(index) => {
                let memory = (kernels, &self.region);
                Loaded::Layer(Box::new(Layer::read(weights, config, memory, index)?))
            }
            Item::Head(index) => Loaded::Head(Head::read(
                &heads[index],
                self.head_kernels,
                &settings.dense[index],
            )?),
        })
    }
}
