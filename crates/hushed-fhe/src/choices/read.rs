//! Reads and writes choices as bytes, and checks their numbers and that they match a model.

use hushed_model::{Attention, FeedForward, Program, Weigh, without_mark};
use serde::Deserialize;

use super::{
    ActivationChoice, AttentionChoice, Choices, ChoicesError, ClassifierChoice, DecoderChoice, HeadChoice, Interval,
    LayerChoice, MAX_BYTES, MAX_ROWS, NormChoice, ScoresChoice, VERSION,
};
use crate::tape::encoder::begins_with_norm;

/// Maximum degree for which a chain has levels.
const MAX_DEGREE: usize = 63;
/// The same for activations, which may be deep on purpose.
pub const MAX_ACTIVATION: usize = 127;
/// Maximum steps for which a chain has levels.
const MAX_STEPS: usize = 20;

impl Choices {
    /// Reads `calibration-fhe.json`. Checks that every number is finite, no interval is empty, and a chain could have
    /// levels for the degrees and steps. [`Choices::check`] checks the choices against a model.
    ///
    /// # Errors
    /// [`ChoicesError`].
    pub fn from_json(bytes: &[u8]) -> Result<Choices, ChoicesError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if bytes.len() > MAX_BYTES {
            return unusable(format!("the calibration has {} bytes; at most {MAX_BYTES} are read", bytes.len()));
        }
        let bytes = without_mark(bytes);
        // The version is read first: other versions may have other fields.
        let Versioned { version } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            return unusable(format!(
                "the calibration has version {version}, and this program reads version {VERSION}"
            ));
        }
        let choices: Choices = serde_json::from_slice(bytes)?;
        choices.validate()?;
        Ok(choices)
    }

    /// The bytes of `calibration-fhe.json`.
    ///
    /// # Errors
    /// As [`Choices::from_json`]: what that would refuse is not written.
    pub fn to_json(&self) -> Result<Vec<u8>, ChoicesError> {
        self.validate()?;
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Checks that these choices have the dimensions of a model.
    ///
    /// # Errors
    /// [`ChoicesError::Unusable`] with the first difference.
    pub fn check(&self, program: &Program) -> Result<(), ChoicesError> {
        let kind = |decodes: bool| if decodes { "a decoder" } else { "an encoder" };
        let (ours, theirs) = (self.decoder.is_some(), program.vocabulary().is_some());
        if ours != theirs {
            let (ours, theirs) = (kind(ours), kind(theirs));
            return unusable(format!("the calibration is of {ours}, and the model is {theirs}"));
        }
        let layers = program.layers().len();
        let blocks = program.attentions().zip(program.feed_forwards());
        type Blocks<'a> = (&'a Attention, Option<&'a FeedForward>);
        let sizes = |i: usize, heads: usize, columns: usize, (a, f): Blocks<'_>| {
            same(&format!("heads of layer {i}"), heads, a.heads.count)?;
            let hidden = f.map_or(0, |f| f.up.outputs);
            same(&format!("hidden columns of layer {i}"), columns, hidden)
        };
        if let Some(decoder) = &self.decoder {
            same("layers", decoder.layers.len(), layers)?;
            let each = decoder.layers.iter().zip(blocks).enumerate();
            return each.into_iter().try_for_each(|(i, (choice, blocks))| {
                let columns = choice.activation.columns.len();
                let ours = [&choice.attention_sub_norm, &choice.feed_forward_sub_norm];
                let theirs = [blocks.0.sub_norm.is_some(), blocks.1.is_some_and(|f| f.sub_norm.is_some())];
                if ours.map(Option::is_some) != theirs {
                    return unusable(format!(
                        "layer {i}: the norms inside blocks differ between calibration and model"
                    ));
                }
                let softmax = matches!(choice.scores, ScoresChoice::Softmax(_));
                if softmax != (blocks.0.weigh == Weigh::Softmax) {
                    return unusable(format!(
                        "of layer {i} the calibration has another function from scores to weights than the model"
                    ));
                }
                sizes(i, choice.scores.heads(), columns, blocks)
            });
        }
        same("layers", self.layers.len(), layers)?;
        same("norms after the layers", usize::from(self.norm.is_some()), usize::from(begins_with_norm(program)))?;
        for (i, (choice, blocks)) in self.layers.iter().zip(blocks).enumerate() {
            let columns = choice.activation.columns.len();
            sizes(i, choice.attention.heads.len(), columns, blocks)?;
            if let Some(row) = &choice.frozen_row {
                same(&format!("columns of layer {i}"), row.len(), program.width())?;
            }
        }
        let heads = |has: bool| match has {
            true => "a classifier's head",
            false => "no classifier's head",
        };
        let (ours, theirs) = (self.classifier.is_some(), program.classifier().is_some());
        if ours != theirs {
            let (ours, theirs) = (heads(ours), heads(theirs));
            return unusable(format!("the calibration has {ours}, and the model {theirs}"));
        }
        let last = self.layers.last();
        if ours && last.is_some_and(|layer| layer.frozen_row.is_some()) {
            return unusable("the first row, which the classifier reads, is frozen".to_owned());
        }
        Ok(())
    }

    /// Checks that the choices were made for the weights with this SHA-256.
    ///
    /// # Errors
    /// [`ChoicesError::Unusable`].
    pub fn check_model(&self, sha256: &str) -> Result<(), ChoicesError> {
        if self.model_sha256 == sha256 {
            return Ok(());
        }
        unusable(format!("the calibration is for weights with SHA-256 {}, and these have {sha256}", self.model_sha256))
    }

    fn validate(&self) -> Result<(), ChoicesError> {
        within("rows", self.rows, 1, MAX_ROWS)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let named = |error| match error {
                ChoicesError::Unusable { what } => ChoicesError::Unusable { what: format!("layer {i}: {what}") },
                other => other,
            };
            layer.validate().map_err(named)?;
        }
        if let Some(decoder) = &self.decoder {
            decoder.validate()?;
        }
        if let Some(norm) = &self.norm {
            norm.validate("the norm after the layers")?;
        }
        match &self.classifier {
            Some(classifier) => classifier.validate(),
            None => Ok(()),
        }
    }
}

impl DecoderChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        for (i, layer) in self.layers.iter().enumerate() {
            let at = |what: &str| format!("layer {i}: {what}");
            layer.attention_norm.validate(&at("norm before attention"))?;
            layer.feed_forward_norm.validate(&at("norm before feed-forward"))?;
            layer.scores.validate(&at("attention"))?;
            for (norm, what) in [
                (&layer.attention_sub_norm, "norm inside attention"),
                (&layer.feed_forward_sub_norm, "norm inside feed-forward"),
            ] {
                if let Some(norm) = norm {
                    norm.validate(&at(what))?;
                }
            }
            layer.activation.validate()?;
            for (what, bound) in
                [("after attention", layer.attention_bound), ("after feed-forward", layer.feed_forward_bound)]
            {
                if !(bound.is_finite() && bound > 0.0) {
                    return unusable(at(&format!("the bound {what} is {bound}")));
                }
            }
        }
        self.norm.validate("the last norm")
    }
}

impl ScoresChoice {
    fn validate(&self, what: &str) -> Result<(), ChoicesError> {
        match self {
            ScoresChoice::Sigmoid(sigmoid) => {
                let degree = format!("{what}: degree of the sigmoid");
                within(&degree, sigmoid.degree, 1, MAX_DEGREE)?;
                let mut heads = sigmoid.heads.iter();
                heads.try_for_each(|head| proper(&format!("{what}: scores"), *head))
            }
            ScoresChoice::Softmax(softmax) => {
                if softmax.heads.contains(&HeadChoice::Previous) {
                    return unusable(format!("{what}: a head of a decoder has a fixed pattern"));
                }
                softmax.validate()
            }
        }
    }
}

impl ClassifierChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        within("degree of the classifier's tanh", self.degree, 3, MAX_DEGREE)?;
        let sound = self.reach.is_finite() && self.reach > 0.0;
        if self.degree.is_multiple_of(2) || !sound {
            let (degree, reach) = (self.degree, self.reach);
            return unusable(format!("the classifier's tanh: degree {degree}, which must be odd, up to {reach}"));
        }
        Ok(())
    }
}

impl LayerChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        self.attention.validate()?;
        self.attention_norm.validate("norm after attention")?;
        self.feed_forward_norm.validate("norm after feed-forward")?;
        self.activation.validate()?;
        let frozen = self.frozen_row.iter().flatten();
        if frozen.clone().any(|v| !v.is_finite()) {
            return unusable("a number of the frozen row is not finite".to_owned());
        }
        Ok(())
    }
}

impl ActivationChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        within("degree of the activation", self.degree, 1, MAX_ACTIVATION)?;
        for (j, column) in self.columns.iter().enumerate() {
            let what = format!("arguments of hidden column {j}");
            proper(&what, column.interval())?;
            let sound = column.deviation.is_finite() && column.deviation > 0.0;
            if !(column.mean.is_finite() && sound) {
                let (mean, deviation) = (column.mean, column.deviation);
                return unusable(format!("{what}: mean {mean}, deviation {deviation}"));
            }
        }
        Ok(())
    }
}

impl AttentionChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        within("degree of the exponential", self.degree, 1, MAX_DEGREE)?;
        within("steps of the first inverse", self.first_steps, 1, MAX_STEPS)?;
        within("steps of the second inverse", self.second_steps, 1, MAX_STEPS)?;
        for (j, head) in self.heads.iter().enumerate() {
            let HeadChoice::Softmax { scores, least_maximum, first, second } = *head else {
                continue;
            };
            proper(&format!("scores of head {j}"), scores)?;
            positive(&format!("first sums of head {j}"), first)?;
            positive(&format!("second sums of head {j}"), second)?;
            if !(scores.low..=scores.high).contains(&least_maximum) {
                return unusable(format!("head {j}: the least row maximum {least_maximum} is not a score"));
            }
        }
        Ok(())
    }
}

impl NormChoice {
    fn validate(&self, what: &str) -> Result<(), ChoicesError> {
        let sound = |x: f64| x.is_finite() && x > 0.0;
        if !(sound(self.scale) && sound(self.bound) && sound(self.low) && self.low < 1.0) {
            return unusable(format!(
                "{what}: scale {}, least variance {} and bound {} are not all positive, the second below 1",
                self.scale, self.low, self.bound
            ));
        }
        // The inverse root accepts these degrees for its first polynomial.
        within(&format!("{what}: first degree"), self.seed, 1, 15)?;
        within(&format!("{what}: steps"), self.steps, 0, MAX_STEPS)
    }
}

fn unusable<T>(what: String) -> Result<T, ChoicesError> {
    Err(ChoicesError::Unusable { what })
}

fn same(what: &str, found: usize, expected: usize) -> Result<(), ChoicesError> {
    if found == expected {
        return Ok(());
    }
    unusable(format!("the calibration has {found} {what}, and the model {expected}"))
}

fn within(what: &str, value: usize, least: usize, most: usize) -> Result<(), ChoicesError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    unusable(format!("{what}: {value}, and {least} to {most} are possible"))
}

fn proper(what: &str, x: Interval) -> Result<(), ChoicesError> {
    // Not `>=`: this also refuses NaN.
    if x.low.is_finite() && x.high.is_finite() && x.low < x.high {
        return Ok(());
    }
    unusable(format!("{what}: {} to {} is not an interval", x.low, x.high))
}

fn positive(what: &str, x: Interval) -> Result<(), ChoicesError> {
    proper(what, x)?;
    if x.low > 0.0 {
        return Ok(());
    }
    unusable(format!("{what}: {} is not positive", x.low))
}
