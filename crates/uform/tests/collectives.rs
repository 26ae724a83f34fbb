//! Sums, copies and barriers over devices, of one process and of several, on the stand-ins that
//! `fake-gpu` has for the drivers and for NCCL.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use common::fake::{Case, MARK, alone, check_counts, drivers};
use common::numbers;
use uform::device::{
    Argument, Buffer, Code, Device, MOST_ADDRESSES, Patience, Runtime, Shape, Share, Stream,
    devices, nccl, try_multicast,
};
use uform::mesh::collectives::Collectives;
use uform::mesh::tier::obstacle;
use uform::{Result, Status};

const PTX: &str = include_str!("../src/device/kernels/collectives.ptx");

const H200: &str = "H200:9.0:132:1024";

/// So many devices with multicast memory.
fn h200s(count: usize) -> String {
    [H200].repeat(count).join(",")
}

/// A member's own numbers.
fn values(member: usize, count: usize) -> Vec<f32> {
    numbers::values(member as u64 + 1, count)
}

/// The sums of so many members in their order, each step rounded.
fn sums(members: usize, count: usize) -> Vec<f32> {
    let mut sums = values(0, count);
    for member in 1..members {
        for (sum, value) in sums.iter_mut().zip(values(member, count)) {
            *sum += value;
        }
    }
    sums
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// What lies before and behind the numbers of a member, and stays.
const BESIDE: f32 = -7.0;
const BEHIND: usize = 5;

/// This process's devices, each with a stream and memory for so many numbers.
struct Team {
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
    /// The number among all members of the first.
    first: usize,
    /// How many numbers lie before each member's.
    before: usize,
    count: usize,
}

fn open() -> Result<Vec<Arc<Device>>> {
    let all = Runtime::ALL.into_iter().flat_map(devices);
    all.map(|device| Device::open(device.runtime, device.index))
        .collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

impl Team {
    fn new(devices: &[Arc<Device>], first: usize, count: usize) -> Result<Team> {
        Team::behind(devices, first, count, 0)
    }

    fn behind(devices: &[Arc<Device>], first: usize, count: usize, before: usize) -> Result<Team> {
        let bytes = 4 * (before + count + BEHIND);
        let streams = devices.iter().map(Device::stream);
        let buffers = devices.iter().map(|device| device.allocate(bytes));
        Ok(Team {
            streams: streams.collect::<Result<_>>()?,
            buffers: buffers.collect::<Result<_>>()?,
            first,
            before,
            count,
        })
    }

    /// Gives every member its own numbers.
    fn fill(&mut self) -> Result<()> {
        for (at, buffer) in self.buffers.iter_mut().enumerate() {
            let mut all = vec![BESIDE; self.before];
            all.extend(values(self.first + at, self.count));
            all.extend([BESIDE; BEHIND]);
            self.streams[at].upload(buffer, 0, &bytes_of(&all))?;
        }
        Ok(())
    }

    fn shares(&self) -> Vec<Share<'_>> {
        let pairs = self.streams.iter().zip(&self.buffers);
        let share = |(stream, buffer)| Share {
            stream,
            buffer,
            offset: 4 * self.before,
        };
        pairs.map(share).collect()
    }

    fn sum(&self, collectives: &Collectives, patience: &Patience<'_>) -> Result<()> {
        collectives.all_reduce_sum(&self.shares(), self.count, patience)
    }

    /// Every member's numbers.
    fn read(&self) -> Vec<Vec<f32>> {
        self.read_alone().expect("what lies beside them stayed")
    }

    /// The same; `None`: something was written beside them.
    fn read_alone(&self) -> Option<Vec<Vec<f32>>> {
        let pairs = self.streams.iter().zip(&self.buffers);
        let read = pairs.map(|(stream, buffer)| {
            let mut bytes = vec![0; buffer.bytes()];
            stream.download(&mut bytes, buffer, 0).unwrap();
            let (values, _) = bytes.as_chunks();
            let values = values.iter().map(|value| f32::from_le_bytes(*value));
            let mut all: Vec<f32> = values.collect();
            let behind = all.split_off(self.before + self.count);
            let own = all.split_off(self.before);
            let mut beside = all.iter().chain(&behind);
            beside.all(|&beside| beside == BESIDE).then_some(own)
        });
        read.collect()
    }

    fn barrier(&self, collectives: &Collectives, patience: &Patience<'_>) -> Result<()> {
        let streams: Vec<&Stream> = self.streams.iter().collect();
        collectives.barrier(&streams, patience)
    }
}

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(120);

fn long() -> Instant {
    Instant::now() + LONG
}

const GO_ON: fn() -> bool = || false;

fn patient() -> Patience<'static> {
    Patience::until(long(), &GO_ON)
}

/// All that one process's devices do: sums in their order, on every member and in every run the same
/// bits; copies; barriers.
fn works_within(counts: &[usize], way: &str) {
    let devices = open().unwrap();
    let collectives = Collectives::within(&devices).unwrap();
    assert!(collectives.way().contains(way), "{}", collectives.way());
    assert_eq!(collectives.members() as usize, devices.len());
    // From where four numbers are read at once, and where they cannot be.
    let places = counts
        .iter()
        .flat_map(|&count| [(count, 0), (count, 1), (count, 4)]);
    for (count, before) in places {
        let mut team = Team::behind(&devices, 0, count, before).unwrap();
        let expected = bits(&sums(devices.len(), count));
        for _run in 0..2 {
            team.fill().unwrap();
            team.sum(&collectives, &patient()).unwrap();
            for found in team.read() {
                assert_eq!(bits(&found), expected, "{count} numbers behind {before}");
            }
        }
        team.barrier(&collectives, &patient()).unwrap();
        for from in [0, devices.len() - 1] {
            team.fill().unwrap();
            collectives
                .broadcast(&team.shares(), count, from as u32, &patient())
                .unwrap();
            for found in team.read() {
                assert_eq!(bits(&found), bits(&values(from, count)));
            }
        }
    }
}

#[test]
fn devices_of_one_process_add_up_in_their_order() {
    let [two, eight, most] = [2, 8, MOST_ADDRESSES].map(h200s);
    let case = |cuda, hip, fault| Case { cuda, hip, fault };
    let amds = "MI300X:gfx942:304:1024,MI300X:gfx942:304:1024";
    let cases = [
        case(H200, "", ""),
        case(&two, "", ""),
        case(&eight, "", ""),
        case(&most, "", ""),
        // Without reaching each other: by the host.
        case(&two, "", "missing:cuCtxEnablePeerAccess"),
        case(&eight, "", "missing:cuDeviceCanAccessPeer"),
        case("", amds, ""),
        case(&two, amds, ""),
    ];
    const NAME: &str = "devices_of_one_process_add_up_in_their_order";
    alone(NAME, &cases, |case| match case {
        0..4 => works_within(&[0, 1, 3, 4, 37, 1003, 4100], "kernels"),
        // One chunk and a bit.
        4 => works_within(&[0, (1 << 20) + 5], "host"),
        _ => works_within(&[0, 1, 1003], "host"),
    });
}

/// What does not fit is refused before anything is submitted.
#[test]
fn shares_that_do_not_fit_are_refused() {
    let counts = [2, MOST_ADDRESSES + 1].map(h200s);
    let cases = counts.each_ref().map(|cuda| Case {
        cuda,
        ..Case::default()
    });
    alone("shares_that_do_not_fit_are_refused", &cases, |case| {
        let devices = open().unwrap();
        if case == 1 {
            let error = Collectives::within(&devices).err().unwrap();
            assert_eq!(error.status(), Status::Unsupported);
            assert!(
                error
                    .message()
                    .contains("17 devices in one process: at most 16"),
                "{error}"
            );
            return;
        }
        let collectives = Collectives::within(&devices).unwrap();
        let team = Team::new(&devices, 0, 4).unwrap();
        let refused = |outcome: Result<()>, words: &str| {
            let error = outcome.unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(error.message().contains(words), "{error}");
        };
        let mut shares = team.shares();
        let sum =
            |shares: &[Share<'_>], count| collectives.all_reduce_sum(shares, count, &patient());
        refused(sum(&shares[..1], 4), "1 members of a collective that has 2");
        refused(
            sum(&shares, 10),
            "member 0's buffer has 36 bytes: there are no 10 numbers at 0",
        );
        refused(sum(&shares, usize::MAX), "36 bytes");
        shares[1].offset = 2;
        refused(sum(&shares, 4), "no 4 numbers at 2");
        shares[1].offset = usize::MAX - 3;
        refused(sum(&shares, 4), "member 1's buffer has 36 bytes");
        shares[1].offset = 0;
        refused(
            collectives.broadcast(&shares, 4, 2, &patient()),
            "no member 2 to copy from: expected 0 to 1",
        );
        shares.reverse();
        refused(sum(&shares, 4), "stream 0 is not one of member 0's device");
        drop(shares);
        let streams = [&team.streams[0], &team.streams[0]];
        refused(collectives.barrier(&streams, &patient()), "stream 1");

        let mut crossed = team.shares();
        crossed[0].buffer = &team.buffers[1];
        refused(sum(&crossed, 4), "member 0's buffer is another device's");

        let twice = [devices[0].clone(), devices[0].clone()];
        let error = Collectives::within(&twice).err().unwrap();
        assert!(
            error.message().contains("CUDA device 0 takes part twice"),
            "{error}"
        );
        assert!(Collectives::within(&[]).is_err());

        // Who gave up before has nothing done.
        let give_up = || true;
        let error = team.sum(&collectives, &Patience::until(long(), &give_up));
        assert_eq!(error.unwrap_err().status(), Status::Aborted);
    });
}

/// Every call fails once, by an unknown code, a launch by a fault, an allocation by a lack of
/// memory: an error, and nothing is left.
#[test]
fn a_failure_anywhere_is_an_error() {
    let two = h200s(2);
    let mut faults: Vec<String> = (20..140)
        .step_by(5)
        .map(|call| format!("code917@{call}"))
        .collect();
    faults.extend((1..=4).map(|launch| format!("fault@{launch}")));
    let staged = "missing:cuCtxEnablePeerAccess";
    faults.extend((3..=4).map(|allocation| format!("oom@{allocation},{staged}")));
    let cases: Vec<Case<'_>> = faults
        .iter()
        .map(|fault| Case {
            cuda: &two,
            hip: "",
            fault,
        })
        .collect();
    alone("a_failure_anywhere_is_an_error", &cases, |case| {
        let sum = || {
            let devices = open()?;
            let collectives = Collectives::within(&devices)?;
            let mut team = Team::new(&devices, 0, 40)?;
            team.fill()?;
            team.sum(&collectives, &patient())?;
            Ok(team.read().concat())
        };
        let outcome: Result<Vec<f32>> = sum();
        let expected = match case {
            0..24 => match outcome {
                Ok(found) => return assert_eq!(found, sums(2, 40).repeat(2)),
                // Nobody can tell what a code means that nobody knows, nor that of no device.
                Err(_) => return,
            },
            24..28 => Status::DeviceFault,
            _ => Status::OutOfMemory,
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.status(), expected, "{error}");
    });
}

/// Sums by the kernel alone, of three members that one device has.
fn by_kernel(index: u32, ptx: &str) -> Result<bool> {
    let device = Device::open(Runtime::Cuda, index)?;
    let kernel = device.load(Code::Image(ptx.as_bytes()))?.kernel("reduce")?;
    let same = vec![device.clone(); 3];
    let mut is_right = true;
    let parts = [(0, 8, 8), (4, 19, 24), (0, 3, 3), (8, 2060, 2080)];
    let parts = parts.into_iter().flat_map(|part| [(part, 0), (part, 1)]);
    for ((first, end, count), is_wide) in parts {
        // Where it reads one number at a time, nothing is where four could be read.
        let mut team = Team::behind(&same, 0, count, 1 - is_wide as usize)?;
        team.fill()?;
        let mut members = [0; MOST_ADDRESSES];
        for (member, share) in members.iter_mut().zip(team.shares()) {
            *member = share.buffer.address() + share.offset as u64;
        }
        let shape = Shape {
            grid: [1, 1, 1],
            block: [256, 1, 1],
            shared_bytes: 0,
        };
        let arguments = [
            Argument::Addresses(members),
            Argument::U64(first as u64),
            Argument::U64(end as u64),
            Argument::Address(members[1]),
            Argument::U32(is_wide),
        ];
        // SAFETY: the kernel's own, and waited for below.
        unsafe { team.streams[0].launch(&kernel, shape, &arguments) }?;
        team.streams[0].wait()?;
        let mut expected = values(1, count);
        expected[first..end].copy_from_slice(&sums(3, count)[first..end]);
        let found = team.read_alone();
        is_right &= found.is_some_and(|found| bits(&found[1]) == bits(&expected));
    }
    Ok(is_right)
}

#[test]
fn planted_mistakes_are_seen() {
    let entry = PTX.find(".entry reduce(").unwrap();
    let end = PTX.find(".entry take(").unwrap();
    // Each in the first places where it is: a wrong bound, a member less or twice, a sum that is
    // none, the wrong step.
    let mistakes = [
        ("setp.ge.u64", "setp.lt.u64", 1),
        ("setp.lt.u64", "setp.gt.u64", 1),
        ("setp.lt.u32", "setp.le.u32", 1),
        ("setp.eq.s32", "setp.ne.s32", 2),
        ("reduce_param_0+16]", "reduce_param_0+24]", 1),
        ("reduce_param_0+8]", "reduce_param_0+16]", 1),
        ("add.f32", "sub.f32", 8),
        ("setp.eq.s64", "setp.ne.s64", 3),
        ("shl.b64", "shr.u64", 2),
    ];
    let mut mutants = vec![PTX.to_owned()];
    for (right, wrong, places) in mistakes {
        let found: Vec<usize> = PTX[entry..end]
            .match_indices(right)
            .map(|(at, _)| entry + at)
            .take(places)
            .collect();
        assert_eq!(found.len(), places, "{right}");
        for at in found {
            mutants.push(format!("{}{wrong}{}", &PTX[..at], &PTX[at + right.len()..]));
        }
    }
    let cuda = h200s(mutants.len());
    let cases = [Case {
        cuda: &cuda,
        ..Case::default()
    }];
    alone("planted_mistakes_are_seen", &cases, |_| {
        for (index, ptx) in mutants.iter().enumerate() {
            let found = by_kernel(index as u32, ptx);
            let is_right = found.as_ref().is_ok_and(|&is_right| is_right);
            assert_eq!(is_right, index == 0, "mutant {index}: {found:?}");
        }
    });
}

// ---- Several processes ----

/// Where the processes of a test leave things for each other.
const MEETING: &str = "UFORM_TEST_MEETING";

/// One process of several.
#[derive(Default)]
struct Process<'a> {
    /// How many devices it has, NVIDIA's or AMD's.
    devices: usize,
    amds: usize,
    /// What goes wrong with the driver, and with NCCL.
    fault: &'a str,
    nccl_fault: &'a str,
    /// Another variable.
    variable: Option<(&'a str, &'a str)>,
    /// Whether it is killed before its end.
    is_killed: bool,
}

/// Runs the test called `name` in so many processes at once; `body` is told which it is, and where they
/// meet. Afterwards nothing of a device or a communicator may be left, but by who was killed.
fn at_once(name: &str, processes: &[Process<'_>], body: impl Fn(usize, &Path)) {
    if let Ok(index) = env::var(MARK) {
        let meeting = PathBuf::from(env::var_os(MEETING).unwrap());
        return body(index.parse().unwrap(), &meeting);
    }
    let folder = drivers();
    for library in ["libnccl.so.2", "librccl.so.1"] {
        let library = folder.path().join(library);
        fs::copy(folder.path().join("libcuda.so.1"), library).unwrap();
    }
    let meeting = tempfile::tempdir().unwrap();
    let counts = |index| meeting.path().join(format!("counts-{index}"));
    let spawn = |(index, process): (usize, &Process<'_>)| -> Child {
        Command::new(env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(MARK, index.to_string())
            .env(MEETING, meeting.path())
            .env("LD_LIBRARY_PATH", folder.path())
            .env("FAKE_CUDA_DEVICES", h200s(process.devices))
            .env(
                "FAKE_HIP_DEVICES",
                ["MI300X:gfx942:304:1024"].repeat(process.amds).join(","),
            )
            .env("FAKE_CUDA_FAULT", process.fault)
            .env("FAKE_NCCL_FAULT", process.nccl_fault)
            .env("FAKE_GPU_COUNTS", counts(index))
            .envs(process.variable)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = processes.iter().enumerate().map(spawn).collect();
    // All of them have ended before anything is asserted.
    let outputs: Vec<_> = children
        .into_iter()
        .map(|child| child.wait_with_output().unwrap())
        .collect();
    for (index, (output, process)) in outputs.iter().zip(processes).enumerate() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        if process.is_killed {
            assert_eq!(output.status.code(), None, "process {index}: {printed}");
            continue;
        }
        assert!(
            output.status.success(),
            "process {index}: {errors}{printed}"
        );
        assert_eq!(errors, "", "process {index}");
        assert!(printed.contains("1 passed"), "process {index}: {printed}");
        check_counts(&counts(index), index);
    }
}

/// The id that the first process draws.
fn met(index: usize, meeting: &Path) -> nccl::UniqueId {
    let place = meeting.join("id");
    if index == 0 {
        let runtime = open().unwrap()[0].properties().runtime;
        let id = nccl::unique_id(runtime).unwrap();
        let unfinished = meeting.join("id.tmp");
        fs::write(&unfinished, id.bytes()).unwrap();
        fs::rename(unfinished, place).unwrap();
        return id;
    }
    let start = Instant::now();
    while !place.exists() {
        assert!(start.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
    nccl::UniqueId::from_bytes(&fs::read(place).unwrap()).unwrap()
}

/// Waits until both processes have come here, whatever becomes of their group.
fn all_came(index: usize, meeting: &Path) {
    let place = |index| meeting.join(format!("came-{index}"));
    fs::write(place(index), "").unwrap();
    let start = Instant::now();
    while !place(1 - index).exists() {
        assert!(start.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn eight_devices_of_two_processes_add_up() {
    let process = || Process {
        devices: 4,
        variable: Some(("NCCL_ALGO", "NVLS,NVLSTree")),
        ..Process::default()
    };
    const NAME: &str = "eight_devices_of_two_processes_add_up";
    at_once(NAME, &[process(), process()], |index, meeting| {
        let devices = open().unwrap();
        assert_eq!(obstacle(&devices, 2), None);
        let first = 4 * index;
        let id = met(index, meeting);
        let collectives = Collectives::across(&devices, &id, first as u32, 8, &patient()).unwrap();
        assert_eq!(
            (collectives.first(), collectives.members()),
            (first as u32, 8)
        );
        for count in [0, 1, 1003] {
            let mut team = Team::new(&devices, first, count).unwrap();
            let expected = sums(8, count);
            let mut before = None;
            for _run in 0..2 {
                team.fill().unwrap();
                team.sum(&collectives, &patient()).unwrap();
                let found = team.read();
                for found in &found {
                    let off = found.iter().zip(&expected);
                    let off = off.map(|(found, expected)| (found - expected).abs());
                    // Seven roundings of what is less than 8.
                    assert!(off.clone().all(|off| off <= 7.0 * 4.0 * f32::EPSILON));
                    assert_eq!(bits(found), bits(before.get_or_insert(found.clone())));
                }
            }
            // The other process's are the same bits, too.
            let place = |index| meeting.join(format!("sums-{count}-{index}"));
            let own: Vec<u8> = before
                .unwrap()
                .iter()
                .flat_map(|sum| sum.to_le_bytes())
                .collect();
            fs::write(place(index), &own).unwrap();
            team.barrier(&collectives, &patient()).unwrap();
            assert_eq!(fs::read(place(1 - index)).unwrap(), own);

            for from in [0, 5] {
                team.fill().unwrap();
                collectives
                    .broadcast(&team.shares(), count, from as u32, &patient())
                    .unwrap();
                for found in team.read() {
                    assert_eq!(bits(&found), bits(&values(from, count)));
                }
            }
            let error = collectives.broadcast(&team.shares(), count, 8, &patient());
            assert_eq!(error.unwrap_err().status(), Status::InvalidArgument);
        }
    });
}

/// AMD's library has the same functions.
#[test]
fn amds_devices_of_two_processes_add_up() {
    let process = || Process {
        amds: 2,
        ..Process::default()
    };
    const NAME: &str = "amds_devices_of_two_processes_add_up";
    at_once(NAME, &[process(), process()], |index, meeting| {
        let devices = open().unwrap();
        let why = obstacle(&devices, 2).unwrap();
        assert!(
            why.contains("AMD's runtime has no multicast memory"),
            "{why}"
        );
        let id = met(index, meeting);
        let first = 2 * index;
        let collectives = Collectives::across(&devices, &id, first as u32, 4, &patient()).unwrap();
        let mut team = Team::new(&devices, first, 1003).unwrap();
        team.fill().unwrap();
        team.sum(&collectives, &patient()).unwrap();
        // The stand-in adds up in the order of the ranks.
        let expected = bits(&sums(4, 1003));
        for found in team.read() {
            assert_eq!(bits(&found), expected);
        }
    });
}

/// One process ends in the midst of a sum, the one by which they met or the other.
#[test]
fn a_peer_that_is_killed_is_an_error_for_the_others() {
    const NAME: &str = "a_peer_that_is_killed_is_an_error_for_the_others";
    for killed in [0, 1] {
        let process = |index: usize| Process {
            devices: 2,
            nccl_fault: if index == killed { "killed@2" } else { "" },
            variable: Some(("UFORM_TEST_KILLED", if killed == 0 { "0" } else { "1" })),
            is_killed: index == killed,
            ..Process::default()
        };
        at_once(NAME, &[process(0), process(1)], |index, meeting| {
            let devices = open().unwrap();
            let id = met(index, meeting);
            let collectives =
                Collectives::across(&devices, &id, 2 * index as u32, 4, &patient()).unwrap();
            let mut team = Team::new(&devices, 2 * index, 100).unwrap();
            team.fill().unwrap();
            team.sum(&collectives, &patient()).unwrap();
            all_came(index, meeting);
            let start = Instant::now();
            let error = team.sum(&collectives, &patient()).unwrap_err();
            assert_eq!(error.status(), Status::Io, "{error}");
            for words in [
                "remote process exited",
                "a peer ended",
                "free it and join again",
            ] {
                assert!(error.message().contains(words), "{error}");
            }
            assert!(start.elapsed() < Duration::from_secs(60));
            // The group has ended, and says why.
            let later = team.barrier(&collectives, &patient()).unwrap_err();
            assert_eq!(later.message(), error.message());
            assert_eq!(later.status(), Status::Io);
            // Its devices have not.
            team.fill().unwrap();
            let alone = Collectives::within(&devices).unwrap();
            team.sum(&alone, &patient()).unwrap();
        });
        if env::var_os(MARK).is_some() {
            return;
        }
    }
}

#[test]
fn an_error_of_the_library_ends_the_group() {
    let process = |nccl_fault| Process {
        devices: 2,
        nccl_fault,
        ..Process::default()
    };
    let processes = [process("async-error@2"), process("")];
    at_once(
        "an_error_of_the_library_ends_the_group",
        &processes,
        |index, meeting| {
            let devices = open().unwrap();
            let id = met(index, meeting);
            let collectives =
                Collectives::across(&devices, &id, 2 * index as u32, 4, &patient()).unwrap();
            let mut team = Team::new(&devices, 2 * index, 100).unwrap();
            team.fill().unwrap();
            team.sum(&collectives, &patient()).unwrap();
            all_came(index, meeting);
            let error = team.sum(&collectives, &patient()).unwrap_err();
            assert_eq!(error.status(), Status::Io, "{error}");
            let words = [
                "failed with 2, unhandled system error",
                "failed with 6, remote process",
            ];
            assert!(error.message().contains(words[index]), "{error}");
            let later = team.sum(&collectives, &patient()).unwrap_err();
            assert_eq!(later.message(), error.message());
        },
    );
}

/// A communicator that is never ready, and a sum that a peer never comes to: the deadline ends both, and
/// so does giving up.
#[test]
fn a_wait_ends_by_its_deadline_or_by_being_given_up() {
    const NAME: &str = "a_wait_ends_by_its_deadline_or_by_being_given_up";
    let hanging = Process {
        devices: 2,
        nccl_fault: "init-hang",
        ..Process::default()
    };
    let ready = Process {
        devices: 2,
        variable: Some(("UFORM_TEST_READY", "1")),
        ..Process::default()
    };
    for process in [hanging, ready] {
        at_once(NAME, &[process], |_, _| {
            let devices = open().unwrap();
            let allowed = Duration::from_millis(200);
            let join = |ranks, patience: &Patience<'_>| {
                let id = nccl::unique_id(Runtime::Cuda).unwrap();
                Collectives::across(&devices, &id, 0, ranks, patience)
            };
            // The machine may be busy: the best of several is what the library takes.
            let late = (0..4).map(|_| {
                let start = Instant::now();
                let error = join(4, &Patience::until(start + allowed, &GO_ON))
                    .err()
                    .unwrap();
                assert_eq!(error.status(), Status::TimedOut, "{error}");
                for words in [
                    "joining of NCCL over 4 members was not done within 0.",
                    " seconds: see whether the processes of all members run",
                ] {
                    assert!(error.message().contains(words), "{error}");
                }
                assert!(error.message().ends_with("; join again"), "{error}");
                start
                    .elapsed()
                    .checked_sub(allowed)
                    .expect("it waited to the end")
            });
            assert!(late.min().unwrap() < Duration::from_secs(1));

            let is_given_up = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(20));
                    is_given_up.store(true, Ordering::Relaxed);
                });
                let given_up = || is_given_up.load(Ordering::Relaxed);
                let error = join(4, &Patience::until(long(), &given_up)).err().unwrap();
                assert_eq!(error.status(), Status::Aborted, "{error}");
            });

            // All are here, but one of them comes to no sum: so long as one thread drives two
            // groups, the second is such a peer.
            if env::var_os("UFORM_TEST_READY").is_some() {
                let id = nccl::unique_id(Runtime::Cuda).unwrap();
                let (one, other) = thread::scope(|scope| {
                    let join = |at: usize| {
                        Collectives::across(&devices[at..=at], &id, at as u32, 2, &patient())
                            .unwrap()
                    };
                    let other = scope.spawn(move || join(1));
                    (join(0), other.join().unwrap())
                });
                let mut team = Team::new(&devices[..1], 0, 10).unwrap();
                team.fill().unwrap();
                let soon = Patience::until(Instant::now() + allowed, &GO_ON);
                let error = team.sum(&one, &soon).unwrap_err();
                assert_eq!(error.status(), Status::TimedOut, "{error}");
                assert!(
                    error
                        .message()
                        .contains("a sum of NCCL over 2 members was not done within")
                        && error
                            .message()
                            .contains("raise `timeoutSeconds`; the mesh is of no use"),
                    "{error}"
                );
                drop(other);
            }
        });
        if env::var_os(MARK).is_some() {
            return;
        }
    }
}

/// Every call of the driver fails once, among members that come to the same sum by the library: an error
/// at once, and neither a communicator nor anything of a device is left.
#[test]
fn a_failure_anywhere_ends_the_group() {
    let faults: Vec<String> = (20..110)
        .step_by(3)
        .map(|call| format!("code917@{call}"))
        .collect();
    let process = |fault| Process {
        devices: 2,
        fault,
        ..Process::default()
    };
    let processes: Vec<Process<'_>> = faults.iter().map(|fault| process(fault)).collect();
    at_once("a_failure_anywhere_ends_the_group", &processes, |_, _| {
        let sum = || {
            let devices = open()?;
            let id = nccl::unique_id(Runtime::Cuda)?;
            let collectives = Collectives::across(&devices, &id, 0, 2, &patient())?;
            let mut team = Team::new(&devices, 0, 40)?;
            team.fill()?;
            team.sum(&collectives, &patient())?;
            Ok(team)
        };
        let start = Instant::now();
        let outcome: Result<Team> = sum();
        if let Err(error) = outcome {
            let status = error.status();
            assert!(
                matches!(status, Status::DeviceFault | Status::Unsupported),
                "{error}"
            );
        }
        assert!(start.elapsed() < LONG);
    });
}

#[test]
fn without_the_library_several_processes_are_not_supported() {
    let two = h200s(2);
    let case = |cuda, hip| Case {
        cuda,
        hip,
        fault: "",
    };
    let amd = "MI300X:gfx942:304:1024";
    let cases = [case(&two, ""), case("", amd), case(H200, amd)];
    const NAME: &str = "without_the_library_several_processes_are_not_supported";
    alone(NAME, &cases, |case| {
        let devices = open().unwrap();
        let id = nccl::UniqueId::from_bytes(&[1; nccl::ID_BYTES]).unwrap();
        let error = Collectives::across(&devices, &id, 0, 4, &patient())
            .err()
            .unwrap();
        assert_eq!(error.status(), Status::Unsupported, "{error}");
        let words: &[&str] = match case {
            0 => &["NCCL", "libnccl.so.2", "libnccl2", "from one process"],
            1 => &["RCCL", "librccl.so.1", "from one process"],
            _ => &["NVIDIA's or AMD's, not of both"],
        };
        for words in words {
            assert!(error.message().contains(words), "{error}");
        }
        let runtime = devices[0].properties().runtime;
        let drawn = nccl::unique_id(runtime).unwrap_err();
        assert_eq!(drawn.status(), Status::Unsupported);
        // More devices than the run has.
        let error = Collectives::across(&devices[..1], &id, 4, 4, &patient())
            .err()
            .unwrap();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    });
}

/// Multicast memory is tried: what keeps a run from it is told, and nothing is left of the trial.
#[test]
fn what_keeps_the_switch_from_adding_up_is_told() {
    let process = |devices, fault, variable| Process {
        devices,
        fault,
        variable: Some(variable),
        ..Process::default()
    };
    let nvls = ("NCCL_ALGO", "NVLS");
    let processes = [
        process(4, "", nvls),
        process(4, "multicast-bind", nvls),
        process(4, "missing:cuMulticastCreate", nvls),
        process(2, "", nvls),
        process(4, "", ("NCCL_ALGO", "Ring")),
    ];
    const NAME: &str = "what_keeps_the_switch_from_adding_up_is_told";
    at_once(NAME, &processes, |index, _| {
        let devices = open().unwrap();
        let tried = try_multicast(&devices);
        let found = obstacle(&devices, 2);
        let words = match index {
            0 => return assert_eq!((tried, found), (Ok(()), None)),
            1 => "no multicast memory can be bound: cuMulticastBindMem failed with 802",
            2 => "no cuMulticastCreate",
            3 => "3 GPUs of a process or more, and this one has 2",
            _ => "NCCL_ALGO is \"Ring\"",
        };
        assert_eq!(tried.is_err(), (1..3).contains(&index), "{tried:?}");
        assert!(found.as_ref().unwrap().contains(words), "{found:?}");
        // One process alone has kernels of its own.
        assert!(obstacle(&devices, 1).unwrap().contains("read their peers"));
        assert_eq!(devices[0].fault(), None);
    });
}
