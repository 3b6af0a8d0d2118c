//! What a party computes for a step, for estimates of time and memory.

use hushed_twopc::he::{Layout, RowsCost};

/// Counts of one step.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) automorphisms: u64,
    pub(super) products: u64,
    pub(super) opened: u64,
    pub(super) held: u64,
    pub(super) nanoseconds: u64,
}

impl Work {
    pub(super) fn of(layout: &Layout, opened: usize) -> Work {
        let cost = layout.plan.cost();
        let ciphertexts = layout.plan.inputs() + layout.plan.response_leaves(0).len();
        let words = 2 * layout.product_limbs * layout.plan.degree();
        Work {
            held: (ciphertexts * words * size_of::<u64>()) as u64,
            automorphisms: cost.automorphisms,
            products: cost.products,
            opened: opened as u64,
            nanoseconds: cost.nanoseconds,
        }
    }

    pub(super) fn of_rows(cost: &RowsCost) -> Work {
        Work {
            automorphisms: cost.plan.automorphisms,
            products: cost.plan.products,
            opened: cost.opened,
            nanoseconds: cost.plan.nanoseconds,
            // A few ciphertexts of factors, and one response at a time.
            held: 0,
        }
    }

    pub(super) fn add(&mut self, w: Work) {
        self.automorphisms += w.automorphisms;
        self.products += w.products;
        self.opened += w.opened;
        self.held = self.held.max(w.held);
        self.nanoseconds += w.nanoseconds;
    }
}
