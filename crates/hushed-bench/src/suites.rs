//! The measurements, by name.

use crate::suite::{Kind, Suite};
use crate::{cases, ckks, fhe, generate, local, model, products, search};

pub const SUITES: &[Suite] = &[
    Suite { name: "ntt", about: "negacyclic transform of one polynomial", kind: Kind::Local(local::ntt) },
    #[cfg(feature = "cuda")]
    Suite {
        name: "gpu",
        about: "kernels and key switches on the first card, compared with the processor first",
        kind: Kind::Local(ckks::gpu::card),
    },
    Suite { name: "cot", about: "random correlated OTs", kind: Kind::Pair(cases::cot) },
    Suite { name: "ole", about: "element-wise products of shares", kind: Kind::Pair(products::products) },
    Suite {
        name: "olt",
        about: "shared matrix times the server's weights, and shared times shared",
        kind: Kind::Pair(products::linear),
    },
    Suite {
        name: "packing",
        about: "how the products of a matrix are packed into responses (InterLeave, KRDY, PackLWEs)",
        kind: Kind::Pair(products::packing),
    },
    Suite { name: "compare", about: "sign of shared values", kind: Kind::Pair(cases::compare) },
    Suite { name: "truncate", about: "truncation of shared values", kind: Kind::Pair(cases::truncate) },
    Suite { name: "gelu", about: "GELU of shared values", kind: Kind::Pair(cases::gelu) },
    Suite { name: "softmax", about: "softmax of shared rows", kind: Kind::Pair(cases::softmax) },
    Suite { name: "norm", about: "LayerNorm of shared rows", kind: Kind::Pair(cases::norm) },
    Suite {
        name: "layer",
        about: "one layer with random weights; of LLaMA-7B with --only llama-7b",
        kind: Kind::Model(model::layers),
    },
    Suite {
        name: "model",
        about: "whole encoders with random weights, and their time and bytes by operation; BERT-large with --only bert-large",
        kind: Kind::Model(model::models),
    },
    Suite {
        name: "generate",
        about: "GPT-2 with random weights: the first token after a prompt, and a later one; LLaMA-7B, whose weights are read from disk (13.5 GB in TMPDIR, or in HUSHED_BENCH_WEIGHTS), with --only llama-7b",
        kind: Kind::Model(generate::cases),
    },
    Suite {
        name: "search",
        about: "a private search among random vectors, after the embedding of its query",
        kind: Kind::Model(search::cases),
    },
    Suite { name: "ckks", about: "CKKS operations one by one, at several levels", kind: Kind::Local(ckks::operations) },
    Suite {
        name: "lintrans",
        about: "CKKS: a matrix of 768 × 768 times the slots, by four methods",
        kind: Kind::Local(ckks::transforms),
    },
    Suite {
        name: "lintrans-rows",
        about: "CKKS: maps of the columns of one text, 384 to 1,152 and 768 to 3,072, in packed rows",
        kind: Kind::Local(ckks::maps),
    },
    Suite {
        name: "matvec",
        about: "CKKS: the first feed-forward maps of GPT-2, Phi-3 mini and Llama 3 times one vector, by baby and giant steps and by packed rows",
        kind: Kind::Local(ckks::vectors),
    },
    Suite {
        name: "matmul",
        about: "CKKS: products of two encrypted matrices by outer products, up to 128 × 128, at levels 2 and 13; at each from 2 to 17, minutes, with --only level; of one size with --only '\"dimension\":64,\"level'",
        kind: Kind::Local(ckks::products),
    },
    Suite {
        name: "gemm",
        about: "CKKS: 768 × 768 weights times 768 ciphertexts, 64 of the outputs; all of them, minutes, with --only whole",
        kind: Kind::Local(ckks::gemm),
    },
    Suite {
        name: "bootstrap",
        about: "CKKS: whole bootstraps of three sets, one and four in a call, in two passes, and of few slots",
        kind: Kind::Local(ckks::bootstrap),
    },
    Suite {
        name: "flooding",
        about: "CKKS: bits that noise for 1,024 published openings takes away, by circuit",
        kind: Kind::Local(ckks::flooding),
    },
    Suite {
        name: "fhe-softmax", about: "CKKS: softmax of 128 × 128 for 256 texts", kind: Kind::Local(fhe::softmaxes)
    },
    Suite { name: "fhe-norm", about: "CKKS: RMSNorm of texts of 2048 and 4096 rows", kind: Kind::Local(fhe::norms) },
    Suite {
        name: "fhe-pcmm",
        about: "CKKS: the product of 2048 × 768 with a ternary matrix of 768 × 64, for 16 texts",
        kind: Kind::Local(fhe::ternary_products),
    },
    Suite { name: "fhe-sigmoid", about: "CKKS: the sigmoid of 32,768 numbers", kind: Kind::Local(fhe::sigmoids) },
    Suite {
        name: "fhe-rope",
        about: "CKKS: rotary positions of 2048 rows and 16 heads of 96, for 16 texts",
        kind: Kind::Local(fhe::turned),
    },
    Suite {
        name: "fhe-ccmm",
        about: "CKKS: the scores of a head, 128 × 128, for 256 texts, and the key switches of other algorithms",
        kind: Kind::Local(fhe::ccmm),
    },
    Suite {
        name: "fhe-heads",
        about: "CKKS: scores and values of all heads of one text of 128 rows, in packed rows",
        kind: Kind::Local(fhe::heads),
    },
    Suite {
        name: "ffn",
        about: "CKKS: the feed-forward block of GPT-2 for one vector and for several, with GELU, without, and merged",
        kind: Kind::Local(fhe::blocks),
    },
    Suite {
        name: "fhe-layer",
        about: "CKKS: an encoder layer with random weights for 256 texts of 128 tokens; most of an hour on two cores, and gigabytes in TMPDIR; --only llama-ternary-small: of a ternary decoder; llama-softmax-small: with a softmax; llama-ternary-640, -1536: of wider ones, twenty minutes and most of an hour; -head: of one head for 2,048 tokens, ten minutes",
        kind: Kind::Local(fhe::layers),
    },
    Suite {
        name: "fhe-model",
        about: "CKKS: a whole encoder with random weights for 256 texts of 128 tokens; two hours and more on two cores, and gigabytes in TMPDIR",
        kind: Kind::Local(fhe::models),
    },
    Suite {
        name: "fhe-text",
        about: "CKKS: an encoder layer with random weights for one text of 128 tokens, in packed rows; a minute or two on two cores",
        kind: Kind::Local(fhe::texts),
    },
    Suite {
        name: "fhe-network",
        about: "CKKS: one image through the trained networks of data/networks, which is read from the current folder",
        kind: Kind::Local(fhe::networks),
    },
    Suite {
        name: "roofline",
        about: "CKKS: modular products a byte and a second of each primitive, beside the machine's peaks",
        kind: Kind::Local(ckks::roofline),
    },
];

/// Measurements that `all` leaves out because they take too long, or need a card or files.
pub const LONG: &[&str] = &["fhe-layer", "fhe-model", "fhe-text", "fhe-network", "gpu"];

pub fn suite(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}
