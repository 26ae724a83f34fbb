//! How like two models are: the cosines of their vectors of a few texts.

use crate::Result;
use crate::executor::Hold;
use crate::kernels::Precision;
use crate::model::encode::embeddings::Embeddings;
use crate::model::encode::encode_alone;
use crate::model::encode::texts::Texts;
use crate::model::{EncodeOptions, Model, Pooling};

/// Short and long, plain and odd, in some of the languages models are made for.
const TEXTS: [&str; 16] = [
    "a red bicycle",
    "How do I renew a passport that expired while I was abroad?",
    "Water boils at a lower temperature the higher one climbs, because the pressure of the air falls.",
    "The committee met on Tuesday, heard both sides, and put off its decision until the audit is done.",
    "fn main() { println!(\"{}\", (1..=10).sum::<u32>()); }",
    "ERROR 2026-03-14T09:26:53Z worker 7: connection reset by peer, retrying in 250 ms",
    "Shares of the company fell 3.2% after it cut its forecast for the year from $4.10 to $3.85.",
    "Ein rotes Fahrrad lehnt an der Mauer hinter dem Bahnhof.",
    "La bibliothèque est fermée le lundi, sauf pendant les vacances scolaires.",
    "El paciente refiere dolor en la rodilla derecha desde hace dos semanas.",
    "Поезд на Москву отправляется с третьего пути через десять минут.",
    "図書館は駅から歩いて五分のところにあります。",
    "يبدأ الدرس في الساعة التاسعة صباحا كل يوم أحد.",
    "best pizza near me open now",
    "Preheat the oven to 200 degrees. Mix flour, butter and sugar until they crumble, spread them over \
     the sliced apples, and bake for about forty minutes. Serve it warm, with cream or with custard; \
     what is left keeps in the refrigerator for three days and can be warmed up in a hot oven.",
    "!",
];

/// How near the vectors of one model are to those of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Likeness {
    /// What the model computed in.
    pub precision: Precision,
    /// How many texts were compared.
    pub texts: usize,
    /// The least cosine.
    pub least: f64,
    /// Their mean.
    pub mean: f64,
}

/// A model's vectors of the texts.
pub(super) struct Vectors(Embeddings);

impl Vectors {
    /// Has a model embed the texts, on an executor that is held. One that does not say how to pool takes the mean.
    pub(super) fn of(model: &Model, hold: &mut Hold<'_>) -> Result<Vectors> {
        let parts = &model.shared.parts;
        let options = EncodeOptions {
            pooling: Some(parts.settings.pooling.unwrap_or(Pooling::Mean)),
            ..EncodeOptions::default()
        };
        encode_alone(parts, &Texts::from_iter(TEXTS), &options, hold).map(Vectors)
    }

    /// How near the vectors of another model are.
    pub(super) fn likeness(&self, other: &Model, hold: &mut Hold<'_>) -> Result<Likeness> {
        let Vectors(found) = Vectors::of(other, hold)?;
        let rows = self.0.data.chunks_exact(self.0.dimensions);
        let pairs = rows.zip(found.data.chunks_exact(found.dimensions));
        let cosines: Vec<f64> = pairs.map(|(one, other)| cosine(one, other)).collect();
        Ok(Likeness {
            precision: other.precision(),
            texts: cosines.len(),
            least: cosines.iter().copied().fold(f64::INFINITY, f64::min),
            mean: cosines.iter().sum::<f64>() / cosines.len() as f64,
        })
    }
}

fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |one: &[f32], other: &[f32]| -> f64 {
        let pairs = one.iter().zip(other);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}
