//! A process from which the system refuses some calls.

use std::env;
use std::io;
use std::process::Command;

/// A system call's number, and its first argument where only that one is refused.
pub type Refused = (libc::c_long, Option<u32>);

/// Runs `body` in a process of its own, from which the system refuses `calls` with `EPERM`. To be
/// all that the test called `name` does, in both processes: this is `None` in the sandbox, and what
/// was printed there outside of it. A machine without sandboxes prints SKIPPED.
pub fn refusing(name: &str, calls: &[Refused], body: impl FnOnce()) -> Option<String> {
    const MARK: &str = "UFORM_TEST_SANDBOX";
    if env::var_os(MARK).is_some() {
        match refuse(calls) {
            Ok(()) => body(),
            Err(error) => println!("SKIPPED: no sandbox to be had: {error}"),
        }
        return None;
    }
    // The sandbox is for ever, so it gets a process of its own.
    let output = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(line) = printed.lines().find(|line| line.contains("SKIPPED")) {
        println!("{line}");
    }
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    Some(printed)
}

/// Has the system refuse calls to this process from now on.
fn refuse(calls: &[Refused]) -> io::Result<()> {
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    // Where `seccomp_data` has the number, and the lower half of the first argument.
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0);
    let unless = |k, skipped| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, skipped);
    let answer = |k| step(libc::BPF_RET | libc::BPF_K, k, 0);
    let mut steps = Vec::new();
    for (number, argument) in calls {
        steps.extend([load(0), unless(*number as u32, argument.map_or(1, |_| 3))]);
        if let Some(argument) = argument {
            steps.extend([load(16), unless(*argument, 1)]);
        }
        steps.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    steps.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program and its steps are alive during the call, which copies them.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
