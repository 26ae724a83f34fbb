//! A deferred `encode_text` call, which is computed together with its neighbours in the
//! queue where they ask the same of the same model.

use std::sync::Arc;

use super::encode;
use super::request::prompt_text;
use super::texts::{Lender, Texts};
use super::tokenized::Asked;
use crate::Result;
#[cfg(feature = "native")]
use crate::executor::Devices;
use crate::executor::{Arena, Control, Share, Work, pause};
use crate::kernels::{ForkJoin, Precision};
#[cfg(feature = "native")]
use crate::model::vram::{self, DeviceEmbeddings};
use crate::model::{Embeddings, EncodeOptions, InFlight};

/// Bytes of text a lane gets of calls that run together; a longer call runs alone. Enough to
/// keep a lane busy, and no more, since the first of the calls is answered when the last is
/// computed. Measured with MiniLM and texts of 30 bytes, one a call: in f32, 256 bytes reach 84 % of the
/// speed of one large call, 512 reach 91 %, 1024 reach 95 to 98 %, and so do 4096. Matrix units
/// compute as much in a fifth of the time: there 1024 reach 68 to 77 %, 4096 85 to 89 %.
fn bytes_a_lane(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 1024,
        Precision::Bf16 | Precision::I8 => 4096,
    }
}

/// The same for a device. Some sixteen thousand tokens fill one.
#[cfg(feature = "native")]
const BYTES_A_DEVICE: usize = 1 << 16;

/// What a text counts beyond its own bytes: its special tokens, some four bytes each.
const BYTES_A_TEXT: usize = 8;

/// See the module.
pub(in crate::model) struct Call {
    model: InFlight,
    texts: Texts,
    /// Who has more of them.
    lender: Option<Box<dyn Lender>>,
    options: EncodeOptions,
    /// Bytes the calls admitted so far have together, this one included.
    bytes: usize,
    /// The most they may have.
    most: usize,
}

impl Call {
    /// A call for an executor of so many lanes.
    pub(in crate::model) fn new(
        model: InFlight,
        texts: Texts,
        options: EncodeOptions,
        lanes: usize,
    ) -> Self {
        let most = bytes_a_lane(model.0.parts.precision) * lanes;
        Call::of(model, texts, options, most)
    }

    /// A call for an executor of so many devices.
    #[cfg(feature = "native")]
    pub(in crate::model) fn on_devices(
        model: InFlight,
        texts: Texts,
        options: EncodeOptions,
        devices: usize,
    ) -> Self {
        Call::of(model, texts, options, BYTES_A_DEVICE * devices)
    }

    fn of(model: InFlight, texts: Texts, options: EncodeOptions, most: usize) -> Self {
        // A prompt the model does not have is refused when the call runs.
        let prompt = prompt_text(&options, &model.0.parts).map_or(0, str::len);
        let bytes = texts.bytes() + texts.len() * (BYTES_A_TEXT + prompt);
        Call {
            model,
            texts,
            lender: None,
            options,
            bytes,
            most,
        }
    }

    /// A call of many texts, or long ones, which are copied when its turn comes. It runs alone.
    pub(in crate::model) fn lent(
        model: InFlight,
        lender: Box<dyn Lender>,
        options: EncodeOptions,
    ) -> Self {
        Call {
            lender: Some(lender),
            ..Call::of(model, Texts::default(), options, 0)
        }
    }
}

impl Call {
    /// Whether the next call is computed with this one.
    fn admits_next(&mut self, next: &Self) -> bool {
        let together = self.bytes + next.bytes;
        let admits = together <= self.most
            && next.lender.is_none()
            && Arc::ptr_eq(&self.model.0, &next.model.0)
            && self.options == next.options;
        if admits {
            self.bytes = together;
        }
        admits
    }

    /// Copies what is lent.
    async fn bring(&mut self, control: &Control) -> Result<()> {
        while let Some(lender) = &mut self.lender {
            control.check()?;
            if !lender.next(&mut self.texts)? {
                self.lender = None;
            }
            pause().await;
        }
        Ok(())
    }

    fn asked<'a>(&'a self, control: &'a Control) -> Asked<'a> {
        let texts = &self.texts;
        Asked { texts, control }
    }
}

impl Work for Call {
    type Output = Embeddings;

    fn admits(&mut self, next: &Self) -> bool {
        self.admits_next(next)
    }

    async fn run(
        calls: &mut [Share<'_, Self>],
        team: &dyn ForkJoin,
        arenas: &mut [Arena],
    ) -> Result<Vec<Result<Embeddings>>> {
        for Share { work, control } in &mut *calls {
            work.bring(control).await?;
        }
        let Some(Share { work: first, .. }) = calls.first() else {
            return Ok(Vec::new());
        };
        let asked = calls
            .iter()
            .map(|Share { work, control }| work.asked(control));
        let asked: Vec<_> = asked.collect();
        encode(&first.model.0.parts, &asked, &first.options, team, arenas).await
    }
}

/// A call of a model on GPUs, on an executor that drives them.
#[cfg(feature = "native")]
pub(in crate::model) struct DeviceCall {
    call: Call,
    devices: Arc<Devices>,
}

#[cfg(feature = "native")]
impl DeviceCall {
    pub(in crate::model) fn new(call: Call, devices: Arc<Devices>) -> Self {
        DeviceCall { call, devices }
    }
}

#[cfg(feature = "native")]
impl Work for DeviceCall {
    type Output = DeviceEmbeddings;

    fn admits(&mut self, next: &Self) -> bool {
        self.call.admits_next(&next.call)
    }

    async fn run(
        calls: &mut [Share<'_, Self>],
        team: &dyn ForkJoin,
        _arenas: &mut [Arena],
    ) -> Result<Vec<Result<DeviceEmbeddings>>> {
        let Some(Share { work: first, .. }) = calls.first() else {
            return Ok(Vec::new());
        };
        let asked = calls
            .iter()
            .map(|Share { work, control }| work.call.asked(control));
        let asked: Vec<_> = asked.collect();
        let Call { model, options, .. } = &first.call;
        vram::encode(&model.0.parts, &asked, options, team, &first.devices)
    }
}
