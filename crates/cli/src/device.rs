//! Which device runs the model, resolved explicitly.
//!
//! Burn's default device is a CUDA card wherever that backend is compiled in, driver or not, and its first use
//! panics; so nothing here is left to a default, and cards are listed before one is used.

use std::str::FromStr;

use burn::tensor::Device;
use overglaze_models::did_you_mean;

use crate::CliError;

/// A device as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A CUDA card where there is one, else the CPU.
    Auto,
    /// The CPU, on Flex where it is compiled in, else on ndarray.
    Cpu,
    /// The CPU on Burn's Flex.
    Flex,
    /// The CPU on Burn's ndarray.
    NdArray,
    /// A CUDA card.
    Cuda(usize),
    /// A Vulkan card.
    Vulkan(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let name = name.to_ascii_lowercase();
        match (name.as_str(), index) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("flex", None) => Ok(Self::Flex),
            ("ndarray", None) => Ok(Self::NdArray),
            ("cuda", index) => card(index).map(Self::Cuda),
            ("vulkan", index) => card(index).map(Self::Vulkan),
            ("auto" | "cpu" | "flex" | "ndarray", Some(_)) => Err(format!("`{name}` has no index")),
            _ => Err(format!(
                "no such device{}; expected {NAMES}",
                nearest(&name)
            )),
        }
    }
}

/// The device for a choice.
///
/// # Errors
/// [`CliError::DeviceNotCompiled`], [`CliError::DeviceMissing`] or [`CliError::NoDevice`].
pub fn resolve(choice: DeviceChoice) -> Result<Device, CliError> {
    match choice {
        DeviceChoice::Auto => match cuda_devices().and_then(|devices| devices.into_iter().next()) {
            Some(device) => Ok(device),
            None => cpu(),
        },
        DeviceChoice::Cpu => cpu(),
        DeviceChoice::Flex => flex().ok_or_else(|| not_compiled("flex", "flex")),
        DeviceChoice::NdArray => ndarray().ok_or_else(|| not_compiled("ndarray", "ndarray")),
        DeviceChoice::Cuda(index) => {
            let devices = cuda_devices().ok_or_else(|| not_compiled("cuda", "cuda"))?;
            pick(devices, index, "CUDA")
        }
        DeviceChoice::Vulkan(index) => {
            let devices = vulkan_devices().ok_or_else(|| not_compiled("vulkan", "vulkan"))?;
            pick(devices, index, "Vulkan")
        }
    }
}

/// A device in host memory where one is compiled in, for reading files onto.
#[must_use]
pub fn host() -> Option<Device> {
    flex().or_else(ndarray)
}

/// Devices compiled into this binary.
#[must_use]
pub fn compiled() -> Vec<&'static str> {
    let all = [
        ("flex", cfg!(feature = "flex")),
        ("ndarray", cfg!(feature = "ndarray")),
        ("cuda", cfg!(feature = "cuda")),
        ("vulkan", cfg!(feature = "vulkan")),
    ];
    all.into_iter()
        .filter_map(|(name, is_in)| is_in.then_some(name))
        .collect()
}

fn cpu() -> Result<Device, CliError> {
    host().ok_or_else(|| match compiled().is_empty() {
        true => CliError::NoDevice,
        false => not_compiled("cpu", "flex"),
    })
}

fn pick(devices: Vec<Device>, index: usize, runtime: &'static str) -> Result<Device, CliError> {
    let found = devices.len();
    let remedy = match found {
        0 => "install the card's driver, or use --device cpu",
        _ => "give the index of one that is there, or use --device cpu",
    };
    devices
        .into_iter()
        .nth(index)
        .ok_or(CliError::DeviceMissing {
            runtime,
            index,
            found,
            remedy,
        })
}

fn not_compiled(device: &str, feature: &'static str) -> CliError {
    CliError::DeviceNotCompiled {
        device: device.into(),
        compiled: compiled().join(", "),
        feature,
    }
}

fn card(index: Option<&str>) -> Result<usize, String> {
    index.map_or(Ok(0), |index| {
        index
            .parse()
            .map_err(|_| format!("`{index}` is no card's index; expected a number such as cuda:0"))
    })
}

fn nearest(name: &str) -> String {
    did_you_mean(
        name,
        NAMES
            .split(", ")
            .map(|known| known.trim_end_matches("[:N]")),
    )
}

#[cfg(feature = "flex")]
fn flex() -> Option<Device> {
    Some(Device::flex())
}

#[cfg(not(feature = "flex"))]
fn flex() -> Option<Device> {
    None
}

#[cfg(feature = "ndarray")]
#[expect(deprecated, reason = "Burn prefers Flex; both are supported here")]
fn ndarray() -> Option<Device> {
    Some(Device::ndarray())
}

#[cfg(not(feature = "ndarray"))]
fn ndarray() -> Option<Device> {
    None
}

/// CUDA cards; an empty list where there is no driver, `None` where the backend is not compiled in.
#[cfg(feature = "cuda")]
fn cuda_devices() -> Option<Vec<Device>> {
    Some(
        Device::enumerate(burn::tensor::DeviceType::Cuda)
            .into_iter()
            .collect(),
    )
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Option<Vec<Device>> {
    None
}

/// Vulkan cards, as above: wgpu's, whose backend is Vulkan wherever there is a driver for it, but on Apple's systems.
#[cfg(feature = "vulkan")]
fn vulkan_devices() -> Option<Vec<Device>> {
    Some(
        Device::enumerate(burn::tensor::DeviceType::Wgpu)
            .into_iter()
            .collect(),
    )
}

#[cfg(not(feature = "vulkan"))]
fn vulkan_devices() -> Option<Vec<Device>> {
    None
}

const NAMES: &str = "auto, cpu, flex, ndarray, cuda[:N], vulkan[:N]";
