//! Processes that join a mesh: each is this test program, started anew, told what to say.

use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uform::executor::Control;
use uform::mesh::rendezvous::{Joined, Meeting, join_watched};
use uform::mesh::{Member, MemberDevice, Prepared, Process};

/// Set in such a process, to its [`Role`].
const MARK: &str = "UFORM_TEST_MEMBER";

/// What a process is to say and do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    pub directory: String,
    pub job: String,
    pub index: u32,
    pub count: u32,
    pub seconds: f64,
    pub version: String,
    pub uuids: Vec<String>,
    pub class: String,
    pub multimem: u32,
    /// Another host's name than this one's.
    pub host: Option<String>,
    /// Waits so long before it joins.
    pub delay: u64,
    /// Stays so long in its run.
    pub stay: u64,
    /// Ends itself at this step of reading and writing.
    pub kill_at: Option<usize>,
    /// Why multicast memory could not be bound.
    pub no_multicast: Option<String>,
}

impl Role {
    /// A process that does nothing wrong.
    pub fn new(directory: &Path, index: u32, count: u32) -> Role {
        Role {
            directory: directory.to_str().unwrap().to_owned(),
            job: "job".to_owned(),
            index,
            count,
            seconds: 30.0,
            version: "1.2.3".to_owned(),
            uuids: (0..2)
                .map(|device| format!("GPU-{index}-{device}"))
                .collect(),
            class: "nvidia-hopper".to_owned(),
            multimem: 2,
            host: None,
            delay: 0,
            stay: 0,
            kill_at: None,
            no_multicast: None,
        }
    }

    pub fn start(&self) -> Started {
        let child = Command::new(env::current_exe().unwrap())
            .args(["a_member", "--exact", "--nocapture", "--test-threads=1"])
            .env(MARK, serde_json::to_string(self).unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Started(child, self.clone())
    }

    /// The facts to join with.
    pub fn member(&self) -> Member {
        let device = |uuid: &String| MemberDevice {
            uuid: Some(uuid.clone()),
            gpu_class: self.class.clone(),
        };
        let mut process = Process::this();
        if let Some(host) = &self.host {
            process.host = host.clone();
        }
        Member {
            index: self.index,
            count: self.count,
            version: self.version.clone(),
            devices: self.uuids.iter().map(device).collect(),
            gpus_per_multimem_domain: self.multimem,
            process,
            no_collectives: None,
        }
    }

    /// What it has for the others.
    pub fn prepared(&self) -> Prepared {
        Prepared {
            no_multicast: self.no_multicast.clone(),
            payload: vec![self.index as u8, 0xab],
            no_collectives: None,
        }
    }
}

/// A process that joins.
pub struct Started(Child, Role);

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// What it has joined.
    Joined(Value),
    /// The status's code and the message.
    Failed(String, String),
    Killed,
}

impl Started {
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Waits for its end, which must come in time.
    pub fn end(self) -> End {
        let output = self.0.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let Some(line) = printed.lines().find_map(|line| line.split_once("MEMBER ")) else {
            assert_eq!(output.status.code(), None, "{printed}{errors}");
            return End::Killed;
        };
        let found: Value = serde_json::from_str(line.1).unwrap();
        // What a slow machine adds is its own; the patient tests run on a quiet one.
        let slack = if env::var_os("UFORM_SOAK").is_some() {
            1.0
        } else {
            15.0
        };
        let took = found["seconds"].as_f64().unwrap();
        assert!(took < self.1.seconds + slack, "{took} s: {found}");
        if let Some(joined) = found.get("joined") {
            if output.status.code().is_none() {
                return End::Killed;
            }
            return End::Joined(joined.clone());
        }
        let text = |key: &str| found[key].as_str().unwrap().to_owned();
        End::Failed(text("status"), text("message"))
    }
}

/// To be all that the test called `a_member` does.
pub fn be_a_member() {
    let Ok(role) = env::var(MARK) else { return };
    let role: Role = serde_json::from_str(&role).unwrap();
    thread::sleep(Duration::from_millis(role.delay));
    let steps = AtomicUsize::new(0);
    let kill_at = role.kill_at;
    let watch = move |_: &'static str| {
        if Some(steps.fetch_add(1, Ordering::Relaxed)) == kill_at {
            // SAFETY: only this process is signalled.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    };
    let meeting = Meeting {
        directory: Path::new(&role.directory),
        job: &role.job,
        timeout: Duration::from_secs_f64(role.seconds),
    };
    let mut prepare = |_: &[Member]| role.prepared();
    let start = Instant::now();
    let ending = join_watched(
        role.member(),
        &meeting,
        &Control::new(),
        &mut prepare,
        Box::leak(Box::new(watch)),
    );
    let seconds = start.elapsed().as_secs_f64();
    let told = match &ending {
        Ok(joined) => json!({
            "seconds": seconds,
            "joined": {
                "indexes": joined.members.iter().map(|member| member.index).collect::<Vec<_>>(),
                "payloads": each(joined, |prepared| json!(prepared.payload)),
                "noMulticast": each(joined, |prepared| json!(prepared.no_multicast)),
                "leftovers": joined.leftovers,
            },
        }),
        Err(error) => json!({
            "seconds": seconds, "status": error.status().code(), "message": error.message(),
        }),
    };
    println!("MEMBER {told}");
    thread::sleep(Duration::from_millis(role.stay));
}

/// Something of what every process has made ready.
fn each(joined: &Joined, part: impl Fn(&Prepared) -> Value) -> Vec<Value> {
    joined.prepared.iter().map(part).collect()
}

/// Starts them all, in this order, and waits for all.
pub fn run(roles: &[Role]) -> Vec<End> {
    let members: Vec<Started> = roles.iter().map(Role::start).collect();
    members.into_iter().map(Started::end).collect()
}
