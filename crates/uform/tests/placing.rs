//! Where an executor's threads and a model's weights go, and what is never touched.

#![cfg(all(feature = "native", target_os = "linux"))]

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use uform::Status;
use uform::executor::{Control, Description, Executor, ExecutorKind, Mood, ThreadPool};
use uform::hardware::CpuClass;
use uform::hardware::capabilities;
use uform::hardware::cores::{CoreLimit, UsableCores};
use uform::hardware::topology::Topology;
use uform::kernels::{ForkJoin, Precision};
use uform::model::{EncodeOptions, Model, ModelOptions, Texts};
use uform::placement::{PoolOptions, RamOptions, ThreadPoolOptions};

mod common;

/// What the system knows about a thread that others could have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seat {
    affinity: Vec<u32>,
    policy: Policy,
    scheduler: i32,
    name: String,
    /// Signals, by number.
    blocked: Vec<i32>,
}

/// Mode and nodes, or the error with which the system keeps it to itself.
type Policy = Result<(i32, Vec<u32>), i32>;

impl Seat {
    fn of_this_thread() -> Seat {
        // SAFETY: each call writes plain values into memory that is its to write.
        let (scheduler, blocked) = unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
            let blocked = (1..32).filter(|signal| libc::sigismember(&mask, *signal) == 1);
            (libc::sched_getscheduler(0), blocked.collect())
        };
        Seat {
            affinity: UsableCores::of_this_process().affinity.unwrap(),
            policy: policy(),
            scheduler,
            name: std::fs::read_to_string("/proc/thread-self/comm").unwrap(),
            blocked,
        }
    }
}

/// The memory policy of the calling thread.
fn policy() -> Policy {
    let (mut mode, mut nodes) = (0i32, [0u64; 64]);
    // SAFETY: the call writes a number, and at most as many bits as it is told.
    let outcome = unsafe {
        let bits = size_of_val(&nodes) * 8;
        let address = std::ptr::null::<u8>();
        libc::syscall(
            libc::SYS_get_mempolicy,
            &mut mode,
            nodes.as_mut_ptr(),
            bits,
            address,
            0,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error().raw_os_error().unwrap());
    }
    let set = (0..nodes.len() as u32 * 64)
        .filter(|node| nodes[*node as usize / 64] >> (node % 64) & 1 == 1);
    Ok((mode, set.collect()))
}

fn near(memory_domains: &[u32], threads: Option<u64>) -> RamOptions {
    RamOptions {
        memory_domains: memory_domains.to_vec(),
        threads,
        ..RamOptions::default()
    }
}

/// What each lane of a deferred call finds.
fn seats_of(executor: &Executor) -> BTreeSet<Seat> {
    let (tell, told) = mpsc::channel();
    let seats = Arc::new(Mutex::new(BTreeSet::new()));
    let found = Arc::clone(&seats);
    executor.deferred(
        Arc::new(Control::new()),
        move |hold| {
            meet(hold.team, &found);
            Ok(())
        },
        move |outcome| tell.send(outcome).unwrap(),
    );
    told.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
    Arc::into_inner(seats).unwrap().into_inner().unwrap()
}

/// A job that no lane may leave before every lane has come.
fn meet(team: &dyn ForkJoin, found: &Mutex<BTreeSet<Seat>>) {
    let everybody = std::sync::Barrier::new(team.lanes());
    team.run(team.lanes(), &|_, _| {
        found.lock().unwrap().insert(Seat::of_this_thread());
        everybody.wait();
    });
}

fn tiny_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    common::tiny::Tiny::new().write(folder.path()).unwrap();
    folder
}

/// The first domain this process may allocate on, which every machine has.
fn domain() -> u32 {
    Topology::here().allowed_domains().next().unwrap()
}

/// Every lane is on these cores and prefers the domain, save for what was refused.
fn check_seats(executor: &Executor, cores: &[u32], refused: &[String]) {
    let told = |words: &str| refused.iter().any(|text| text.contains(words));
    let preferred = Ok((libc::MPOL_PREFERRED, vec![domain()]));
    for seat in seats_of(executor) {
        assert!(
            seat.affinity == cores || told("cores"),
            "{seat:?} {refused:?}"
        );
        assert!(
            seat.policy == preferred || told("prefer memory"),
            "{seat:?} {refused:?}"
        );
    }
}

/// A pool of ours in the domain, and an executor that borrows it.
fn pool_near() -> (ThreadPool, Executor) {
    let options = ThreadPoolOptions {
        memory_domains: vec![domain()],
        threads: Some(2),
        ..ThreadPoolOptions::default()
    };
    let pool = ThreadPool::spawn(&options).unwrap();
    // The executor's own thread is one of the pool's while it leads a call.
    let options = PoolOptions {
        memory_domains: vec![domain()],
        ..PoolOptions::default()
    };
    // SAFETY: the caller frees the executor before the pool.
    let executor = unsafe { Executor::on_pool(pool.address(), &options) };
    (pool, executor.unwrap())
}

#[test]
fn a_pool_is_placed_by_who_spawns_it() {
    let before = Seat::of_this_thread();
    let (pool, executor) = pool_near();
    assert_eq!(Seat::of_this_thread(), before);
    let Description {
        kind,
        cores,
        refused,
        remarks,
        ..
    } = executor.describe();
    assert_eq!(kind, ExecutorKind::Pool);
    assert!(
        remarks[0].contains("where its owner put them"),
        "{remarks:?}"
    );
    check_seats(&executor, &cores, &refused);
    executor.free();
    pool.free().unwrap();
    assert_eq!(Seat::of_this_thread(), before);

    let elsewhere = PoolOptions {
        memory_domains: vec![60_000],
        ..PoolOptions::default()
    };
    // SAFETY: the domains are refused before the address is looked at.
    let error = unsafe { Executor::on_pool(64, &elsewhere) }.unwrap_err();
    assert!(
        error.message().contains("no memory domain 60000"),
        "{error}"
    );
}

#[test]
fn threads_are_placed_and_the_caller_is_not() {
    let before = Seat::of_this_thread();
    let executor = Executor::for_ram(&near(&[domain()], Some(3))).unwrap();
    let Description { cores, refused, .. } = executor.describe();
    assert_eq!(Seat::of_this_thread(), before);
    check_seats(&executor, &cores, &refused);
    // The caller is a lane of its immediate calls, as it is.
    executor
        .immediate(&Control::new(), |hold| {
            hold.team
                .run(1, &|_, _| assert_eq!(Seat::of_this_thread(), before));
            meet(hold.team, &Mutex::default());
            Ok(())
        })
        .unwrap();
    executor.drain(Mood::Spinning).unwrap();
    executor.free();
    assert_eq!(Seat::of_this_thread(), before);
}

#[test]
fn threads_that_nobody_placed_are_where_their_maker_is() {
    let maker = Seat::of_this_thread();
    for executor in [
        Executor::for_ram(&near(&[], Some(2))).unwrap(),
        Executor::inline(),
    ] {
        for seat in seats_of(&executor) {
            assert_eq!(
                (seat.affinity, seat.policy),
                (maker.affinity.clone(), maker.policy.clone())
            );
        }
        assert_eq!(executor.describe().refused, Vec::<String>::new());
    }
}

#[test]
fn an_executor_tells_what_it_counted() {
    let executor = Executor::for_ram(&near(&[domain()], None)).unwrap();
    let told = executor.describe();
    assert_eq!(told.kind, ExecutorKind::Ram);
    assert_eq!(told.threads, ((told.cores.len() * 7 + 4) / 8).max(1));
    assert_eq!(told.memory_domains, [domain()]);
    assert_eq!(
        (told.outstanding, told.deferred_limit, told.mood),
        (0, 1024, Mood::Parked)
    );
    assert_eq!(told.remarks, Vec::<String>::new());
    assert_eq!(told.counted, UsableCores::of_this_process().counted());
    let many = Executor::for_ram(&near(&[], Some(64 + told.cores.len() as u64)))
        .unwrap()
        .describe();
    assert_eq!(many.remarks.len(), 1, "{many:?}");
    let inline = Executor::inline().describe();
    assert_eq!((inline.kind, inline.threads), (ExecutorKind::Inline, 1));
    assert!(inline.memory_domains.contains(&domain()));
}

#[test]
fn the_affinity_of_whoever_makes_an_executor_counts() {
    thread::spawn(|| {
        let usable = UsableCores::of_this_process();
        let core = *usable.cores().last().unwrap();
        let mut mask = [0u64; 1024];
        mask[core as usize / 64] = 1 << (core % 64);
        // SAFETY: the call reads the mask, and changes this thread alone.
        let outcome =
            unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
        assert_eq!(outcome, 0);
        let told = Executor::for_ram(&near(&[], None)).unwrap().describe();
        assert_eq!((told.threads, told.cores), (1, vec![core]));
        if usable.online.len() > 1 {
            assert_eq!(told.counted.limit, CoreLimit::Affinity);
            let many = Executor::for_ram(&near(&[], Some(2))).unwrap().describe();
            assert!(
                many.remarks[0].contains("affinity mask leaves 1 of"),
                "{many:?}"
            );
        }
    })
    .join()
    .unwrap();
}

#[test]
fn domains_that_are_not_there_are_refused() {
    for domains in [&[60_000][..], &[u32::MAX], &[domain(), domain()]] {
        let error = Executor::for_ram(&near(domains, None)).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        let executor = Executor::inline();
        let options = ModelOptions {
            memory_domains: domains.to_vec(),
            ..ModelOptions::default()
        };
        let folder = tiny_model();
        let error = Model::load_ram(folder.path(), &options, &executor)
            .err()
            .unwrap();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains("memoryDomains"), "{error}");
    }
}

#[test]
fn a_placed_model_computes_the_same_and_its_loader_is_left_as_it_was() {
    let folder = tiny_model();
    let before = Seat::of_this_thread();
    let vector = |options: ModelOptions, executor: &Executor| {
        let model = Model::load_ram(folder.path(), &options, executor).unwrap();
        assert_eq!(Seat::of_this_thread(), before);
        let mut texts = Texts::default();
        texts.push("a red bicycle");
        let found = model
            .encode_text(executor, &texts, &EncodeOptions::default())
            .unwrap();
        (found.data, model.describe().refused)
    };
    let placed = ModelOptions {
        memory_domains: Topology::here().allowed_domains().collect(),
        precision: None,
        ..ModelOptions::default()
    };
    let executor = Executor::for_ram(&near(&[domain()], Some(2))).unwrap();
    let (plain, nothing) = vector(ModelOptions::default(), &Executor::inline());
    assert!(nothing.is_empty());
    for (found, _) in [
        vector(placed.clone(), &Executor::inline()),
        vector(placed, &executor),
        vector(ModelOptions::default(), &executor),
    ] {
        assert_eq!(found, plain);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_sandbox_that_refuses_is_reported_and_harms_nothing() {
    let calls = [
        (libc::SYS_sched_setaffinity, None),
        (libc::SYS_set_mempolicy, None),
    ];
    let name = "a_sandbox_that_refuses_is_reported_and_harms_nothing";
    common::sandbox::refusing(name, &calls, || {
        let executor = Executor::for_ram(&near(&[domain()], Some(3))).unwrap();
        let told = executor.describe();
        assert_eq!(told.refused.len(), 2, "{told:?}");
        for (sentence, words) in told.refused.iter().zip(["cores", "prefer memory domains"]) {
            assert!(
                sentence.contains(words) && sentence.contains("not permitted"),
                "{sentence}"
            );
        }
        assert_eq!(told.threads, 3);
        assert_eq!(seats_of(&executor).len(), 3);
        let folder = tiny_model();
        let model = Model::load_ram(folder.path(), &ModelOptions::default(), &executor).unwrap();
        let refused = model.describe().refused;
        assert_eq!(refused.len(), 1, "{refused:?}");
        let (pool, executor) = pool_near();
        seats_of(&executor);
        assert_eq!(executor.describe().refused, told.refused);
        executor.free();
        pool.free().unwrap();
    });
}

/// The bits of a text's vector in a precision, and the class that computed it.
fn computed(model: &std::path::Path, precision: Precision) -> (String, &'static str) {
    let executor = Executor::for_ram(&near(&[], Some(2))).unwrap();
    let options = ModelOptions {
        precision: Some(precision),
        ..ModelOptions::default()
    };
    let model = Model::load_ram(model, &options, &executor).unwrap();
    let texts = Texts::from_iter(["a red bicycle", "", "one of the two"]);
    let found = model.encode_text(&executor, &texts, &EncodeOptions::default());
    let bits = found.unwrap().data.into_iter().map(f32::to_bits);
    let word = model.describe().cpu_class.unwrap().word();
    (format!("{:08x?}", Vec::from_iter(bits)), word)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_process_that_is_refused_the_tiles_computes_the_same_without_them() {
    /// From Linux's `asm/prctl.h`.
    const ARCH_REQ_XCOMP_PERM: u32 = 0x1023;
    const PRECISIONS: [Precision; 2] = [Precision::Bf16, Precision::I8];
    let folder = tiny_model();
    let has_tiles = || {
        capabilities::available()
            .split(',')
            .any(|word| word == "amx")
    };
    let calls = [(libc::SYS_arch_prctl, Some(ARCH_REQ_XCOMP_PERM))];
    let name = "a_process_that_is_refused_the_tiles_computes_the_same_without_them";
    let printed = common::sandbox::refusing(name, &calls, || {
        assert!(!has_tiles(), "{}", capabilities::available());
        for precision in PRECISIONS {
            let (bits, class) = computed(folder.path(), precision);
            // On a line of its own, whatever the test runner has begun.
            println!("\n{} by {class}: {bits}", precision.word());
        }
        let options = ModelOptions {
            cpu_class: Some(CpuClass::IntelSapphire),
            ..ModelOptions::default()
        };
        let pinned = Model::load_ram(folder.path(), &options, &Executor::inline());
        let error = pinned.err().unwrap();
        assert!(error.message().contains("AMX"), "{error}");
        assert_eq!(Precision::auto(CpuClass::native()), Precision::F32);
    });
    let Some(printed) = printed.filter(|printed| !printed.contains("SKIPPED")) else {
        return;
    };
    for precision in PRECISIONS {
        let (bits, class) = computed(folder.path(), precision);
        let told = format!("{} by ", precision.word());
        let line = printed
            .lines()
            .find(|line| line.starts_with(&told))
            .unwrap();
        assert!(line.ends_with(&bits), "{line}\n{class}: {bits}");
        assert_eq!(line.contains(class), !has_tiles(), "{line}");
    }
}
