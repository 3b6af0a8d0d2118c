//! The first step of a pass: token vectors by a private lookup, or patches of images.

use hushed_model::{Embedding, Patches, Pixels, Step, here};
use hushed_net::Party;

use super::{Acts, Pass};
use crate::circuit::product::Product;
use crate::formats::{ACTIVATION, EMBEDDING, LINEAR, MAX_TOKENS};
use crate::lookup::Table;
use crate::shares::{Local, Shares};
use crate::{Input, RunError};

impl<S: Shares> Pass<'_, S> {
    /// Token vectors plus positions and token types for the client's ids.
    pub(super) fn embed(&mut self, step: &Step, input: &Input, e: &Embedding) -> Result<Acts<S::Share>, RunError> {
        let (rows, lengths) = (input.rows(), input.lengths());
        let (held, public) = match &self.cache {
            Some(cache) => (cache.rows(), cache.public()),
            None => (0, 0),
        };
        let before = public + held;
        let longest = self.cache.as_ref().map_or(MAX_TOKENS, |cache| cache.longest()).min(e.positions);
        let longest = longest.saturating_sub(before);
        if lengths.iter().any(|&m| m == 0 || m > longest) {
            return Err(RunError::Unsupported { site: step.id.to_string(), what: "texts of this length" });
        }
        let tokens = match self.terms.public_table {
            true => Table::PublicTokens,
            false => Table::Tokens,
        };
        // After padding, the server does not know a token's position.
        let hidden = e.placed && self.terms.padded && held > 0;
        let next = public + self.cache.as_ref().map_or(0, |cache| cache.tokens());
        let padding = self.padding;
        self.on.step(step.id, |on| {
            let total = rows.total();
            let ids = on.known(Party::Client, total, || input.ids(padding));
            let second = e.typed.then(|| on.known(Party::Client, total, || input.second()));
            let mut x = on.lookup(&ids, second.as_ref(), e, tokens)?;
            if !e.placed {
                return Ok(Acts::new(x, EMBEDDING, rows, e.width));
            }
            if hidden {
                let places = || (next..next + total).map(|i| i as i64).collect();
                let places = on.known(Party::Client, total, places);
                x.add_assign(&on.lookup(&places, None, e, Table::Positions)?);
                return Ok(Acts::new(x, EMBEDDING, rows, e.width));
            }
            // The position vectors are added to the server's share.
            let offsets = match on.knows(Party::Server) {
                true => Some(here(step.id, &e.offsets)?),
                false => None,
            };
            let positions = on.known(Party::Server, total * e.width, || {
                let row = |i: usize| offsets.into_iter().flat_map(move |o| o.row(before + i));
                let text = |m: usize| (0..m).flat_map(row);
                let all = lengths.iter().flat_map(|&m| text(m));
                all.map(|&p| EMBEDDING.signed(f64::from(p))).collect()
            });
            let x = on.add_known(&x, &positions);
            Ok(Acts::new(x, EMBEDDING, rows, e.width))
        })
    }

    /// The linear map of the client's patches. The server adds the class token and positions to its share.
    pub(super) fn patches(&mut self, step: &Step, input: &Input, p: &Patches) -> Result<Acts<S::Share>, RunError> {
        let (rows, images, d) = (input.rows(), input.lengths().len(), p.linear.outputs);
        let length = p.count + 1;
        if length > MAX_TOKENS || input.lengths().iter().any(|&m| m != length) {
            return Err(RunError::Unsupported { site: step.id.to_string(), what: "images of this number of patches" });
        }
        let numbers = images * p.count * p.linear.inputs;
        let given = || embedded_patches(input.images());
        let product = Product::alone(&p.linear);
        self.on.step(step.id, |on| {
            let given = on.known(Party::Client, numbers, given);
            let x = on.shared(&given, ACTIVATION.ring);
            let x = on.product(step.id, &x, images * p.count, &product)?;
            // The class token is added to a row of zeros.
            let none = on.shared(&on.known(Party::Server, d, || vec![0; d]), LINEAR.ring);
            let x = S::Share::concat(LINEAR.ring, &[none, x]);
            let x = x.gather(images * length * d, || {
                let patches = |image: usize| (1 + image * p.count) * d..(1 + (image + 1) * p.count) * d;
                (0..images).flat_map(|i| (0..d).chain(patches(i))).collect()
            });
            let own = match on.knows(Party::Server) {
                true => Some((here(step.id, &p.class)?, here(step.id, &p.offsets)?)),
                false => None,
            };
            let added = on.known(Party::Server, images * length * d, || {
                let Some((class, offsets)) = own else {
                    return Vec::new();
                };
                let mut added: Vec<f64> = offsets.data().iter().map(|&o| f64::from(o)).collect();
                let first = added.iter_mut().zip(class.iter());
                first.for_each(|(a, &c)| *a += f64::from(c));
                let one: Vec<i64> = added.into_iter().map(|a| LINEAR.signed(a)).collect();
                one.repeat(images)
            });
            Ok(Acts::new(on.add_known(&x, &added), LINEAR, rows, d))
        })
    }
}

/// The values of the patches, in [`ACTIVATION`].
fn embedded_patches(images: &[Pixels]) -> Vec<i64> {
    let all = images.iter().flat_map(|image| image.patches().data());
    all.map(|&v| ACTIVATION.signed(f64::from(v))).collect()
}
