//! A model in host memory.

pub(in crate::model) mod bert;
pub(in crate::model) mod dense;

use self::bert::Bert;
use self::dense::Head;
use crate::hardware::CpuClass;
use crate::kernels::Kernels;

/// An encoder and its heads in host memory.
pub(in crate::model) struct Ram {
    pub(in crate::model) bert: Bert,
    pub(in crate::model) heads: Vec<Head>,
    pub(in crate::model) head_kernels: &'static Kernels,
    pub(in crate::model) class: CpuClass,
}

impl Ram {
    pub(in crate::model) fn hidden(&self) -> usize {
        self.bert.hidden_size()
    }

    /// Length of a full vector.
    pub(in crate::model) fn dimensions(&self) -> usize {
        self.heads.last().map_or(self.hidden(), Head::outputs)
    }

    /// Floats a text takes on its way from pooling through the heads.
    pub(in crate::model) fn widths(&self) -> usize {
        self.hidden() + self.heads.iter().map(Head::outputs).sum::<usize>()
    }

    pub(in crate::model) fn bytes(&self) -> usize {
        self.bert.bytes() + self.heads.iter().map(Head::bytes).sum::<usize>()
    }
}
