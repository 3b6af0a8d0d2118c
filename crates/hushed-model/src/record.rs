//! Watching a forward pass: golden tensors, calibration and comparisons read what goes through each site.

use crate::backend::{
    Activation, Attention, Backend, Classifier, Embedding, FeedForward, Heads, Linear, Mask, Norm,
    Pool, Weigh,
};
use crate::backend::{attention_by_steps, classify_by_steps, feed_forward_by_steps};
use crate::site::Site;

/// Something that passes through a site.
pub enum Value<'a, B: Backend> {
    /// Rows × width a text.
    Acts(&'a B::Acts),
    /// Per text and head, rows × rows.
    Scores(&'a B::Scores),
}

/// Whether a value goes into a step or comes out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Its operand; only told for steps of one operand (linear, norm, weigh, activation, pool).
    Input,
    /// Its result.
    Output,
}

/// A backend that runs another one and shows every value to an observer.
///
/// Attention and feed-forward run step by step (the trait's default bodies) so that their inner sites are seen; with
/// [`Recorded::blocks`] they run as the inner backend runs them, and only their results are seen.
pub struct Recorded<'b, B, F> {
    inner: &'b mut B,
    observe: F,
    steps: bool,
}

impl<'b, B, F> Recorded<'b, B, F>
where
    B: Backend,
    F: FnMut(&Site, Moment, Value<'_, B>),
{
    /// Shows every step.
    pub fn steps(inner: &'b mut B, observe: F) -> Self {
        Recorded {
            inner,
            observe,
            steps: true,
        }
    }

    /// Shows blocks: embedding, attention, feed-forward, sums, norms, pooling.
    pub fn blocks(inner: &'b mut B, observe: F) -> Self {
        Recorded {
            inner,
            observe,
            steps: false,
        }
    }

    fn input(&mut self, at: &Site, x: &B::Acts) {
        (self.observe)(at, Moment::Input, Value::Acts(x));
    }

    fn output(&mut self, at: &Site, x: Result<B::Acts, B::Error>) -> Result<B::Acts, B::Error> {
        if let Ok(x) = &x {
            (self.observe)(at, Moment::Output, Value::Acts(x));
        }
        x
    }

    fn scored(&mut self, at: &Site, s: Result<B::Scores, B::Error>) -> Result<B::Scores, B::Error> {
        if let Ok(s) = &s {
            (self.observe)(at, Moment::Output, Value::Scores(s));
        }
        s
    }
}

impl<B, F> Backend for Recorded<'_, B, F>
where
    B: Backend,
    F: FnMut(&Site, Moment, Value<'_, B>),
{
    type Input = B::Input;
    type Acts = B::Acts;
    type Scores = B::Scores;
    type Error = B::Error;

    fn embed(&mut self, at: Site, x: B::Input, e: &Embedding) -> Result<B::Acts, B::Error> {
        let y = self.inner.embed(at.clone(), x, e);
        self.output(&at, y)
    }

    fn attention(&mut self, at: Site, x: &B::Acts, a: &Attention) -> Result<B::Acts, B::Error> {
        if self.steps {
            return attention_by_steps(self, at, x, a);
        }
        let y = self.inner.attention(at.clone(), x, a);
        self.output(&at, y)
    }

    fn feed_forward(
        &mut self,
        at: Site,
        x: &B::Acts,
        f: &FeedForward,
    ) -> Result<B::Acts, B::Error> {
        if self.steps {
            return feed_forward_by_steps(self, at, x, f);
        }
        let y = self.inner.feed_forward(at.clone(), x, f);
        self.output(&at, y)
    }

    fn norm(&mut self, at: Site, x: B::Acts, n: &Norm) -> Result<B::Acts, B::Error> {
        self.input(&at, &x);
        let y = self.inner.norm(at.clone(), x, n);
        self.output(&at, y)
    }

    fn add(&mut self, at: Site, a: &B::Acts, b: &B::Acts) -> Result<B::Acts, B::Error> {
        let y = self.inner.add(at.clone(), a, b);
        self.output(&at, y)
    }

    fn pool(&mut self, at: Site, x: B::Acts, p: &Pool) -> Result<B::Acts, B::Error> {
        self.input(&at, &x);
        let y = self.inner.pool(at.clone(), x, p);
        self.output(&at, y)
    }

    fn classify(&mut self, at: Site, x: B::Acts, c: &Classifier) -> Result<B::Acts, B::Error> {
        if self.steps {
            return classify_by_steps(self, at, x, c);
        }
        self.input(&at, &x);
        let y = self.inner.classify(at.clone(), x, c);
        self.output(&at, y)
    }

    fn linear(&mut self, at: Site, x: &B::Acts, w: &Linear) -> Result<B::Acts, B::Error> {
        self.input(&at, x);
        let y = self.inner.linear(at.clone(), x, w);
        self.output(&at, y)
    }

    fn scores(
        &mut self,
        at: Site,
        q: &B::Acts,
        k: &B::Acts,
        h: &Heads,
    ) -> Result<B::Scores, B::Error> {
        let s = self.inner.scores(at.clone(), q, k, h);
        self.scored(&at, s)
    }

    fn weigh(
        &mut self,
        at: Site,
        s: B::Scores,
        w: Weigh,
        mask: &Mask,
    ) -> Result<B::Scores, B::Error> {
        (self.observe)(&at, Moment::Input, Value::Scores(&s));
        let p = self.inner.weigh(at.clone(), s, w, mask);
        self.scored(&at, p)
    }

    fn attend(
        &mut self,
        at: Site,
        p: &B::Scores,
        v: &B::Acts,
        h: &Heads,
    ) -> Result<B::Acts, B::Error> {
        let y = self.inner.attend(at.clone(), p, v, h);
        self.output(&at, y)
    }

    fn activation(&mut self, at: Site, x: B::Acts, f: Activation) -> Result<B::Acts, B::Error> {
        self.input(&at, &x);
        let y = self.inner.activation(at.clone(), x, f);
        self.output(&at, y)
    }
}
