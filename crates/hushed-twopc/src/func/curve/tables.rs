//! The curves: minimax quadratics on equal segments, each extended by 1/32 of a segment at both ends, as `curve.rs`
//! evaluates them.
//!
//! A row holds γ, β and α of γ + β·t + α·t², with t measured from the middle of the segment and everything in units of
//! the limit. γ has 12 bits more than the curve's fraction, β 12 fraction bits and α 8. A test refits them and measures
//! their errors.

use super::{BELOW, BEND_FRAC, Curve, Kind, MARGIN, NARROWEST, SLOPE_FRAC, WIDEST};

/// GELU(x) = x·Φ(x), sixteen segments: off by at most 10^−4.
pub const GELU: Curve = Curve {
    name: "gelu",
    kind: Kind::Rectified,
    limit: 4.1,
    frac: 13,
    integer: WIDEST,
    small: 10,
    tail: 0,
    error: 1.0e-4,
    segments: &GELU_SEGMENTS,
};

/// GELU with eight segments: a fifth fewer bytes, off by at most 5.1·10^−4.
pub const GELU_EIGHT: Curve = Curve {
    name: "gelu8",
    kind: Kind::Rectified,
    limit: 3.7,
    frac: 13,
    integer: WIDEST,
    small: 10,
    tail: 0,
    error: 5.1e-4,
    segments: &GELU_EIGHT_SEGMENTS,
};

/// The tanh form of GELU, x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2, which is GELU to within 4.8·10^−4, sixteen
/// segments: off by at most 8.3·10^−5.
pub const GELU_TANH: Curve =
    Curve { name: "gelu_tanh", limit: 4.0, error: 8.3e-5, segments: &GELU_TANH_SEGMENTS, ..GELU };

/// The same with eight segments: off by at most 4.5·10^−4.
pub const GELU_TANH_EIGHT: Curve =
    Curve { name: "gelu_tanh8", limit: 3.6, error: 4.5e-4, segments: &GELU_TANH_EIGHT_SEGMENTS, ..GELU_EIGHT };

/// SiLU(x) = x/(1 + e^−x): off by at most 5·10^−4.
pub const SILU: Curve = Curve {
    name: "silu",
    kind: Kind::Rectified,
    limit: 10.0,
    frac: 14,
    integer: WIDEST,
    small: 10,
    tail: 0,
    error: 5.0e-4,
    segments: &SILU_SEGMENTS,
};

/// tanh: off by at most 2.7·10^−4.
pub const TANH: Curve = Curve {
    name: "tanh",
    kind: Kind::Odd,
    limit: 4.5,
    frac: 13,
    integer: WIDEST,
    small: 13,
    tail: 1820,
    error: 2.7e-4,
    segments: &TANH_SEGMENTS,
};

/// ELU(x) with α = 1, x for x ≥ 0 and e^x − 1 below: off by at most 6.5·10^−4.
pub const ELU: Curve = Curve {
    name: "elu",
    kind: Kind::Negative,
    limit: 8.0,
    frac: 14,
    integer: WIDEST,
    small: 13,
    tail: -2048,
    error: 6.5e-4,
    segments: &ELU_SEGMENTS,
};

/// L·(σ(x) − 1/2) with σ(x) = 1/(1 + e^−x), so that κ times it is σ(x) − 1/2: off by at most 2.3·10^−4 of σ where σ is
/// steep, and by 1.7·10^−5 from L on, where σ counts as 0 or 1.
pub(crate) const SIGMOID: Curve = Curve {
    name: "sigmoid",
    kind: Kind::Centred,
    limit: 11.0,
    frac: 15,
    integer: 4,
    small: 17,
    tail: 16384,
    error: 2.5e-3,
    segments: &SIGMOID_SEGMENTS,
};

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    let curves = [GELU, GELU_EIGHT, GELU_TANH, GELU_TANH_EIGHT, SILU, TANH, ELU, SIGMOID];
    let curves = curves.map(|c| c.describe());
    format!("{} {NARROWEST} {WIDEST} {BELOW} {SLOPE_FRAC} {BEND_FRAC} {MARGIN}", curves.join(" "))
}

const GELU_SEGMENTS: [[i32; 3]; 16] = [
    [-470793, -1633, 410],
    [-1102074, -857, 359],
    [-1367767, -223, 271],
    [-1357127, 216, 168],
    [-1174286, 454, 73],
    [-915415, 524, 2],
    [-652890, 482, -40],
    [-429575, 383, -55],
    [-262017, 272, -53],
    [-148602, 176, -42],
    [-78520, 104, -29],
    [-38706, 57, -18],
    [-17816, 29, -10],
    [-7663, 13, -5],
    [-3081, 6, -3],
    [-1158, 2, -1],
];

const GELU_EIGHT_SEGMENTS: [[i32; 3]; 8] = [
    [-856343, -1316, 354],
    [-1534515, -131, 225],
    [-1298273, 442, 66],
    [-774654, 490, -29],
    [-353158, 314, -50],
    [-126495, 144, -33],
    [-36021, 50, -15],
    [-8203, 14, -5],
];

const GELU_TANH_SEGMENTS: [[i32; 3]; 16] = [
    [-472093, -1643, 401],
    [-1113073, -883, 353],
    [-1394836, -257, 270],
    [-1401300, 185, 172],
    [-1231258, 436, 81],
    [-977392, 523, 10],
    [-711417, 496, -33],
    [-478174, 406, -52],
    [-297639, 298, -54],
    [-171595, 198, -45],
    [-91468, 120, -33],
    [-44938, 67, -21],
    [-20263, 34, -12],
    [-8345, 16, -6],
    [-3121, 6, -3],
    [-1054, 2, -1],
];

const GELU_TANH_EIGHT_SEGMENTS: [[i32; 3]; 8] = [
    [-861478, -1335, 345],
    [-1572203, -168, 225],
    [-1368258, 423, 74],
    [-848052, 502, -22],
    [-403497, 342, -49],
    [-149677, 166, -36],
    [-42851, 60, -17],
    [-9250, 16, -6],
];

const SILU_SEGMENTS: [[i32; 3]; 16] = [
    [-885703, -1427, 603],
    [-1770403, -393, 411],
    [-1817213, 193, 182],
    [-1481056, 392, 32],
    [-1069362, 381, -32],
    [-718465, 297, -47],
    [-461157, 208, -41],
    [-287065, 137, -30],
    [-174881, 87, -20],
    [-104857, 53, -13],
    [-62110, 32, -8],
    [-36435, 19, -5],
    [-21205, 11, -3],
    [-12261, 7, -2],
    [-7049, 4, -1],
    [-4034, 2, -1],
];

const TANH_SEGMENTS: [[i32; 3]; 16] = [
    [1041637, 3995, -155],
    [2971342, 3435, -381],
    [4521164, 2591, -438],
    [5629312, 1768, -373],
    [6357515, 1126, -269],
    [6809846, 685, -175],
    [7081067, 406, -108],
    [7240262, 237, -64],
    [7332536, 137, -38],
    [7385631, 78, -22],
    [7416055, 45, -13],
    [7433446, 26, -7],
    [7443373, 15, -4],
    [7449035, 8, -2],
    [7452263, 5, -1],
    [7454103, 3, -1],
];

const ELU_SEGMENTS: [[i32; 3]; 16] = [
    [-1855894, -3218, 803],
    [-4426316, -1952, 487],
    [-5985357, -1184, 296],
    [-6930962, -718, 179],
    [-7504501, -436, 109],
    [-7852370, -264, 66],
    [-8063363, -160, 40],
    [-8191337, -97, 24],
    [-8268957, -59, 15],
    [-8316036, -36, 9],
    [-8344591, -22, 5],
    [-8361910, -13, 3],
    [-8372415, -8, 2],
    [-8378786, -5, 1],
    [-8382651, -3, 1],
    [-8384995, -2, 0],
];

const SIGMOID_SEGMENTS: [[i32; 3]; 16] = [
    [11420173, 10855, -623],
    [31827902, 8706, -1398],
    [46702235, 5830, -1379],
    [56009542, 3449, -982],
    [61288873, 1893, -591],
    [64118045, 996, -326],
    [65588178, 513, -172],
    [66339895, 261, -88],
    [66721100, 132, -45],
    [66913604, 67, -23],
    [67010610, 34, -11],
    [67059441, 17, -6],
    [67084008, 8, -3],
    [67096364, 4, -1],
    [67102579, 2, -1],
    [67105703, 1, 0],
];
