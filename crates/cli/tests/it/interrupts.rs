//! Ctrl-C leaves nothing half done.

#![cfg(target_os = "linux")]

use std::{fs, process::Command, process::Stdio, thread};

use crate::overglaze::{command, files};

#[test]
fn ctrl_c_ends_with_130_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sheet.png"), "from before").unwrap();
    let mut sweep = command(folder.path(), &["sweep", "--steps", "1000"]);
    let mut child = sweep
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    while !catches_interrupts(&fs::read_to_string(&status).unwrap()) {
        assert_eq!(child.try_wait().unwrap(), None, "it runs for minutes");
        thread::yield_now();
    }
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(files(folder.path()), ["sheet.png"]);
    assert_eq!(
        fs::read_to_string(folder.path().join("sheet.png")).unwrap(),
        "from before"
    );
}

/// Whether a process has a handler for signal 2.
fn catches_interrupts(status: &str) -> bool {
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).expect("it is a mask") & 0b10 != 0
}
