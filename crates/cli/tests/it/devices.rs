//! Devices by name; a missing one is a message, never a panic.

use overglaze_cli::device::{self, DeviceChoice};

#[test]
fn names_are_read() {
    let check = |text: &str, expected| assert_eq!(text.parse(), Ok(expected), "{text}");
    check("auto", DeviceChoice::Auto);
    check("CPU", DeviceChoice::Cpu);
    check("cuda", DeviceChoice::Cuda(0));
    check("cuda:3", DeviceChoice::Cuda(3));
    check("vulkan:1", DeviceChoice::Vulkan(1));
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest() {
    let check = |text: &str, expected: &str| {
        assert_eq!(text.parse::<DeviceChoice>().unwrap_err(), expected);
    };
    let known = "expected auto, cpu, flex, ndarray, cuda[:N], vulkan[:N]";
    check(
        "cudda",
        &format!("no such device (did you mean `cuda`?); {known}"),
    );
    check("gpu0", &format!("no such device; {known}"));
    check(
        "cuda:x",
        "`x` is no card's index; expected a number such as cuda:0",
    );
    check("flex:1", "`flex` has no index");
}

#[test]
fn auto_and_cpu_resolve_to_what_is_compiled_in() {
    let cpu = device::resolve(DeviceChoice::Cpu).unwrap();
    assert_eq!(Some(cpu), device::host());
    assert!(device::resolve(DeviceChoice::Auto).is_ok());
    assert!(!device::compiled().is_empty());
}

#[cfg(not(feature = "vulkan"))]
#[test]
fn a_device_that_is_not_compiled_in_is_a_message() {
    let error = device::resolve(DeviceChoice::Vulkan(0)).unwrap_err();
    let message = error.to_string();
    let compiled = device::compiled().join(", ");
    let expected =
        format!("the device `vulkan` is not compiled in (this binary has: {compiled}); build");
    assert!(message.starts_with(&expected), "{message}");
    assert!(message.ends_with("`cargo build --release -p overglaze-cli --features vulkan`"));
}
