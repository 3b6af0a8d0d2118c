//! One function that chooses by secret bits, with its secrets.

use hushed_math::bits::Block;
use hushed_math::taint;
use std::hint::black_box;

/// The value of a case's secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// All bits zero.
    Zeros,
    /// All bits one.
    Ones,
    /// Marked for valgrind.
    Marked,
}

impl Secret {
    /// Overwrites `words`.
    pub fn fill(self, words: &mut [u64]) {
        words.fill(if self == Secret::Ones { u64::MAX } else { 0 });
        self.mark(words);
    }

    /// Overwrites `blocks`.
    pub fn fill_blocks(self, blocks: &mut [Block]) {
        blocks.fill(match self {
            Secret::Ones => Block::ONES,
            _ => Block::ZERO,
        });
        self.mark(blocks);
    }

    /// Overwrites numbers of up to `most`, whose bits are all ones.
    pub fn fill_bytes(self, bytes: &mut [u8], most: u8) {
        bytes.fill(if self == Secret::Ones { most } else { 0 });
        self.mark(bytes);
    }

    fn mark<T>(self, values: &mut [T]) {
        if self == Secret::Marked {
            taint::secret(values);
        }
    }
}

/// One function over buffers that stay where they are, whatever the secrets.
pub struct Case {
    /// Its name in reports.
    pub name: &'static str,
    /// Whether it branches on its secret on purpose: a check that does not report it is blind.
    pub planted: bool,
    set: Box<dyn FnMut(Secret)>,
    run: Box<dyn FnMut()>,
}

impl Case {
    /// `set` writes the secrets into the state; `run` is the function to watch.
    pub fn new<S: 'static>(
        name: &'static str,
        state: S,
        set: impl Fn(&mut S, Secret) + 'static,
        run: impl Fn(&mut S) + 'static,
    ) -> Case {
        let state = std::rc::Rc::new(std::cell::RefCell::new(state));
        let same = state.clone();
        Case {
            name,
            planted: false,
            set: Box::new(move |secret| set(&mut state.borrow_mut(), secret)),
            run: Box::new(move || run(black_box(&mut same.borrow_mut()))),
        }
    }

    /// Writes the secrets.
    pub fn set(&mut self, secret: Secret) {
        (self.set)(secret);
    }

    /// Runs the function.
    pub fn run(&mut self) {
        (self.run)();
    }
}
