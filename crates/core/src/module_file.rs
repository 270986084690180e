//! Loading a user's own Burn module from a file without initializing it: parameters are assigned.
//!
//! Burn's layers are lazy, so a parameter that is replaced before anyone looks at it is never allocated.
//! On Flex the new one is a view of the mapped file.

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{DType, Device, Tensor},
};
use overglaze_stream::WeightSource;

use crate::{Error, adapter_file::tensor_data, dense, source_tensor};

/// What [`load_module`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleFileReport {
    /// Parameters that were assigned, by path.
    pub assigned: Vec<String>,
    /// Tensors of the file no parameter asked for.
    pub unused: Vec<String>,
}

/// Assigns every float parameter of `module` from the tensor of its path in `source`.
///
/// A linear layer's weight is `[d_output, d_input]` in the file and Burn's `[d_input, d_output]` in the
/// module; norm scale and shift may be called `weight` and `bias` in the file, as `PyTorch` does.
/// Enum variant names in a path are skipped.
///
/// A linear layer is a struct called `Linear` or `PatchedLinear` with a matrix `weight`: Burn's visitors
/// tell no more of a type than its name. A struct of one's own called so has to store its `weight` as Burn
/// does, or take another name.
///
/// ```
/// use burn::{nn::{Linear, LinearConfig}, module::Module, tensor::{Device, Tensor}};
/// use overglaze_stream::MemorySource;
///
/// #[derive(Module, Debug)]
/// struct Head { proj: Linear }
///
/// let mut file = MemorySource::new("head");
/// let values: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
/// file.insert("proj.weight", "F32", vec![2, 3], values.into())?;
///
/// let device = Device::flex();
/// let head = Head { proj: LinearConfig::new(3, 2).with_bias(false).init(&device) };
/// let (head, report) = overglaze_core::load_module(head, &file, &device)?;
/// assert_eq!(report.assigned, ["proj.weight"]);
/// let y = head.proj.forward(Tensor::<2>::from_floats([[1.0, 0.0, 1.0]], &device));
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [4.0, 10.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::MissingTensor`], [`Error::WrongShape`] or [`Error::WrongDtype`] for the first parameter that has
/// no fitting tensor.
pub fn load_module<M: Module>(
    module: M,
    source: &dyn WeightSource,
    device: &Device,
) -> Result<(M, ModuleFileReport), Error> {
    let mut mapper = FileMapper {
        source,
        device,
        path: Vec::new(),
        report: ModuleFileReport::default(),
        failure: None,
    };
    let module = module.map(&mut mapper);
    if let Some(error) = mapper.failure {
        return Err(error);
    }
    let mut report = mapper.report;
    let is_unused = |name: &&String| !report.assigned.contains(*name);
    report.unused = source.entries().keys().filter(is_unused).cloned().collect();
    Ok((module, report))
}

struct FileMapper<'a> {
    source: &'a dyn WeightSource,
    device: &'a Device,
    /// Field names with their container types.
    path: Vec<(String, String)>,
    report: ModuleFileReport,
    failure: Option<Error>,
}

impl ModuleMapper for FileMapper<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.into(), container_type.into()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.failure.is_some() {
            return param;
        }
        match self.assigned(&param) {
            Ok(tensor) => Param::initialized(param.id, tensor),
            Err(error) => {
                self.failure = Some(error);
                param
            }
        }
    }
}

impl FileMapper<'_> {
    fn assigned<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> Result<Tensor<D>, Error> {
        let name = self.tensor_name()?;
        let is_transposed = D == 2 && self.is_linear_weight();
        let mut stored = param.lazy_shape().to_vec();
        if is_transposed {
            stored.reverse();
        }
        let entry = source_tensor::entry(self.source, &name)?;
        if entry.shape != stored {
            let expected = format!("{stored:?}");
            return Err(source_tensor::wrong_shape(
                self.source,
                &name,
                &entry.shape,
                expected,
            ));
        }
        let tensor = self.read::<D>(&name)?;
        self.report.assigned.push(name);
        if is_transposed {
            return Ok(dense::swapped(tensor));
        }
        Ok(tensor)
    }

    fn read<const D: usize>(&self, name: &str) -> Result<Tensor<D>, Error> {
        let tag = &source_tensor::entry(self.source, name)?.tag;
        let dtype = float_dtype(tag).ok_or_else(|| Error::WrongDtype {
            file: self.source.label(),
            tensor: name.into(),
            found: tag.clone(),
            expected: "F32, F16 or BF16",
        })?;
        let data = tensor_data(self.source, name)?;
        let dtype = if self.device.supports_dtype(dtype) {
            dtype
        } else {
            DType::F32
        };
        Ok(Tensor::from_data(data, (self.device, dtype)))
    }

    /// The name in the file of the parameter at the current path.
    fn tensor_name(&self) -> Result<String, Error> {
        let is_field = |(name, container): &'_ (String, String)| {
            (!container.starts_with("Enum:")).then(|| name.clone())
        };
        let names: Vec<String> = self.path.iter().filter_map(is_field).collect();
        let own = names.join(".");
        let spellings = [own.clone(), torch_spelling(&names)];
        let known = self.source.entries();
        spellings
            .into_iter()
            .find(|name| known.contains_key(name))
            .ok_or_else(|| source_tensor::missing(self.source, &own))
    }

    /// Whether the parameter at the current path is the weight of a linear layer, Burn's or its drop-in.
    fn is_linear_weight(&self) -> bool {
        self.path.last().is_some_and(|(name, container)| {
            name == "weight" && LINEAR_LAYERS.contains(&container.as_str())
        })
    }
}

/// `gamma` and `beta` of Burn's norms are `weight` and `bias` in `PyTorch` files.
fn torch_spelling(names: &[String]) -> String {
    let Some((last, parents)) = names.split_last() else {
        return String::new();
    };
    let last = match last.as_str() {
        "gamma" => "weight",
        "beta" => "bias",
        other => other,
    };
    parents
        .iter()
        .map(String::as_str)
        .chain([last])
        .collect::<Vec<_>>()
        .join(".")
}

const LINEAR_LAYERS: [&str; 2] = ["Struct:Linear", "Struct:PatchedLinear"];

fn float_dtype(tag: &str) -> Option<DType> {
    [
        ("F32", DType::F32),
        ("F16", DType::F16),
        ("BF16", DType::BF16),
    ]
    .into_iter()
    .find_map(|(known, dtype)| (known == tag).then_some(dtype))
}
