//! What a patch is told of a layer at mount: its operator and the logical shape of its weight.

use std::fmt;

/// What a layer does with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `y = x · Wᵀ + b`, weight `[d_output, d_input]`.
    Linear,
    /// A convolution over one, two or three axes, weight `[d_output, d_input / groups, kernel…]`.
    Conv {
        /// Groups of channels that are convolved apart.
        groups: usize,
    },
    /// A lookup of rows, weight `[num_embeddings, d_model]`.
    Embedding,
    /// A normalization with a scale `[d_model]` and perhaps a shift.
    Norm,
    /// A bare parameter that the model adds or multiplies itself, of any shape.
    Parameter,
}

/// The operator of a layer and the logical shape of its weight, whatever form the weight is stored in.
///
/// A patch sees every weight as a matrix `[d_output, fan_in]`: the first axis, and all others flattened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LayerShape {
    operator: Operator,
    dims: Vec<usize>,
    has_open_input: bool,
}

impl LayerShape {
    /// A linear layer `[d_output, d_input]`.
    #[must_use]
    pub fn linear(d_output: usize, d_input: usize) -> Self {
        Self::new(Operator::Linear, vec![d_output, d_input])
    }

    /// A convolution whose weight is `dims` = `[d_output, d_input / groups, kernel…]`.
    #[must_use]
    pub fn conv(dims: &[usize], groups: usize) -> Self {
        Self::new(Operator::Conv { groups }, dims.to_vec())
    }

    /// An embedding `[num_embeddings, d_model]`.
    #[must_use]
    pub fn embedding(num_embeddings: usize, d_model: usize) -> Self {
        Self::new(Operator::Embedding, vec![num_embeddings, d_model])
    }

    /// A norm over `d_model` features or channels.
    #[must_use]
    pub fn norm(d_model: usize) -> Self {
        Self::new(Operator::Norm, vec![d_model])
    }

    /// A bare parameter of shape `dims`.
    #[must_use]
    pub fn parameter(dims: &[usize]) -> Self {
        Self::new(Operator::Parameter, dims.to_vec())
    }

    /// The same layer, whose input comes from the model's caller and may be given more columns than the base
    /// reads: a control patch reads those.
    #[must_use]
    pub fn with_open_input(mut self) -> Self {
        self.has_open_input = true;
        self
    }

    /// A layer of `d_output` rows of the same kind: a part of this one or a whole that it is part of. Its input
    /// is not open: only a whole layer may be widened.
    #[must_use]
    pub fn with_rows(&self, d_output: usize) -> Self {
        let mut shape = self.clone();
        shape.has_open_input = false;
        if let Some(first) = shape.dims.first_mut() {
            *first = d_output;
        }
        shape
    }

    /// The operator.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// Logical shape of the weight; for a convolution `[d_output, d_input / groups, kernel…]`.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The weight seen as a matrix: `[d_output, fan_in]`.
    #[must_use]
    pub fn matrix(&self) -> [usize; 2] {
        [self.d_output(), self.fan_in()]
    }

    /// Rows of the weight.
    #[must_use]
    pub fn d_output(&self) -> usize {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Columns of the weight seen as a matrix: the product of every axis but the first.
    #[must_use]
    pub fn fan_in(&self) -> usize {
        self.dims.iter().skip(1).product()
    }

    /// Second axis of the weight: input features, or input channels of one group; 1 for a norm.
    #[must_use]
    pub fn d_input(&self) -> usize {
        self.dims.get(1).copied().unwrap_or(1)
    }

    /// Sizes of a convolution's kernel, one an axis; empty for other layers.
    #[must_use]
    pub fn kernel(&self) -> &[usize] {
        match self.operator {
            Operator::Conv { .. } => self.dims.get(2..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Groups of a convolution; 1 for other layers.
    #[must_use]
    pub fn groups(&self) -> usize {
        match self.operator {
            Operator::Conv { groups } => groups,
            _ => 1,
        }
    }

    /// Whether the input may have more columns than the base reads.
    #[must_use]
    pub fn has_open_input(&self) -> bool {
        self.has_open_input
    }

    /// Whether the layer multiplies with its weight matrix, so that a factored residual has a meaning: linear
    /// layers, convolutions and embeddings.
    #[must_use]
    pub fn is_matrix(&self) -> bool {
        !matches!(self.operator, Operator::Norm | Operator::Parameter)
    }

    fn new(operator: Operator, dims: Vec<usize>) -> Self {
        Self {
            operator,
            dims,
            has_open_input: false,
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Linear => "linear layer",
            Self::Conv { .. } => "convolution",
            Self::Embedding => "embedding",
            Self::Norm => "norm",
            Self::Parameter => "parameter",
        })
    }
}

impl fmt::Display for LayerShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:?}", self.operator, self.dims)
    }
}
