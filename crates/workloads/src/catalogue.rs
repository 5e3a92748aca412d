//! The workloads that come with Lowtide, each with a small configuration.

use lowtide_settings::RunSettings;
use lowtide_train::{Bundle, Catalogue, Recipe, Workload};

use crate::deblur::Deblur;
use crate::gpt::Gpt;
use crate::qca::Qca;
use crate::scoring::{self, Scoring};

/// All of them.
pub const CATALOGUE: Catalogue = Catalogue(&[
    Recipe {
        has_lpips: true,
        ..Recipe::new("deblur", include_str!("../../../configs/deblur-tiny.yaml"), |loaded, facts| {
            Deblur::build(loaded, facts.device).map(bundle)
        })
    },
    Recipe::new("gpt", include_str!("../../../configs/gpt-tiny.yaml"), |loaded, facts| {
        Gpt::build(loaded, facts.device).map(bundle)
    }),
    Recipe::new("qca", include_str!("../../../configs/qca-tiny.yaml"), |loaded, facts| {
        Qca::build(loaded, facts.device).map(bundle)
    }),
    Recipe {
        has_epochs: true,
        series: Some(|loaded| Ok(scoring::series(loaded)?)),
        ..Recipe::new("scoring", include_str!("../../../configs/scoring.yaml"), |loaded, facts| {
            let (scoring, settings, notes) = Scoring::build(loaded, facts)?;
            Ok(Bundle { notes, ..Bundle::new(scoring, settings) })
        })
    },
]);

fn bundle((workload, settings): (impl Workload + 'static, RunSettings)) -> Bundle {
    Bundle::new(workload, settings)
}
