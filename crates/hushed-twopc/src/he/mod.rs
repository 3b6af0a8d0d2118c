//! Products over RLWE: oblivious linear transformation and its parts.
//!
//! | step | file |
//! |---|---|
//! | windows and counts from shapes, with their cost | `window`, `price`, `wire` |
//! | matrices as polynomials and back | `encode` |
//! | moduli, noise, formats | `layout` |
//! | which leaves share a response | `layout/answer` |
//! | all of it that was made before | `layout/known` |
//! | session keys, and the proof that they are well formed | `context`, `proof` |
//! | sums of products, by blocks or by values | `product` |
//! | interleaving, the messages | `interleave`, `engine` |
//! | matrix × matrix, share × weights, share × share | `olt`, `linear`, `matmul` |
//! | share × weights, mostly before the share is known | `linear/ahead` |
//! | share × a share that grows, of which ciphertexts are kept | `matmul/past` |
//! | squares and scales of rows, over RLWE or OT by price | `rows` |
//! | products that one party computes alone | `hushed_math::product`, `product_small` |

pub mod context;
pub mod encode;
mod engine;
mod error;
pub mod interleave;
pub mod layout;
pub mod linear;
pub mod matmul;
pub mod olt;
pub mod price;
pub mod product;
mod proof;
pub mod rows;
pub mod window;
pub mod wire;

pub use context::HeContext;
pub use error::HeError;
pub use layout::answer::{Answer, Term};
pub use layout::known::Layouts;
pub use layout::{Layout, OltSpec};
pub use linear::ahead::{
    Ahead, ahead_client, ahead_server, linear_ahead_client, linear_ahead_cost, linear_ahead_server,
};
pub use linear::{LinearShape, PreparedWeights, largest, linear_client, linear_server, linear_server_alone};
pub use matmul::past::{Grows, Kept, PastShape, matmul_past};
pub use matmul::{MatmulShape, matmul_shared};
pub use olt::{olt_encrypted, olt_multiplying};
pub use rows::{RowsCost, row_squares, row_squares_cost, scale_rows, scale_rows_cost};
pub use window::{Encrypted, OltShape, OltTiling, Packing, Window};
pub use wire::OltCost;

#[cfg(test)]
mod tests;
