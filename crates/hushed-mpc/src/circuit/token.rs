//! The next token of a text: a pass over its new rows, then the index of the largest logit, which alone is opened.
//!
//! Or one token after each new row, where the client has guessed all rows but the first (*drafts*; Leviathan et al.,
//! ICML 2023). Drafts that equal the token opened for the row before them become tokens of the text, as does the token
//! opened for the last of these; the parties [drop](Cache::keep) the remaining rows.
//!
//! No logit is opened. To draw a token at temperature T, T times Gumbel noise is added to every logit before the
//! argmax, which draws exactly from softmax(logits/T) (Gumbel 1954; Maddison et al. 2014). The server adds it to its
//! own share, so nothing more is sent and the client never learns it: see [`Sampler`](crate::Sampler). The client adds
//! its biases to its own share in the same way: see [`Penalties`](crate::Penalties).

use hushed_model::{Block, Program};
use hushed_net::Party;
use hushed_twopc::share::Ring;

use crate::bias::Penalties;
use crate::circuit::cache::Cache;
use crate::circuit::top::{open_largest_alone, open_top};
use crate::circuit::{Acts, Answering, run_rows};
use crate::formats::{LINEAR, LOGIT};
use crate::sample::Draw;
use crate::shares::{Local, Shares};
use crate::{Input, RunError};

/// What the parties add to their shares of the logits. Each knows only its own part.
#[derive(Clone, Copy, Default)]
pub struct Adds<'a> {
    /// The server's noise; if every row gives a token, the draw is that of the first row.
    pub draw: Option<&'a Draw<'a>>,
    /// The client's biases and penalties, with the answer's tokens up to the last row, including drafts: each row
    /// before it has one token less.
    pub penalties: Option<(&'a Penalties, &'a [u32])>,
}

/// Runs the next rows of a text and opens the token that follows the last of them to the client. `draw` is what the
/// server adds to the logits; without it the likeliest token is taken. Among equal logits any may win.
///
/// # Errors
/// As [`run_next`](crate::run_next); [`RunError::Unsupported`] for a model that gives no logits.
pub fn next_token<S: Shares>(
    on: &mut S,
    program: &Program,
    cache: &mut Cache<S::Share>,
    input: &Input,
    draw: Option<&Draw<'_>>,
) -> Result<Option<u32>, RunError> {
    let penalties = None;
    let tokens = next_tokens(on, program, cache, input, Adds { draw, penalties }, 1)?;
    Ok(tokens.and_then(|tokens| tokens.first().copied()))
}

/// As [`next_token`], with the `top` likeliest tokens, likeliest first; with a draw, as many without repetition, in the
/// order in which they would be drawn (Kool et al. 2019). The order includes what the parties add.
///
/// # Errors
/// As [`next_token`]; [`RunError::Unsupported`] for no token, or more than there are.
pub fn next_tokens<S: Shares>(
    on: &mut S,
    program: &Program,
    cache: &mut Cache<S::Share>,
    input: &Input,
    adds: Adds<'_>,
    top: usize,
) -> Result<Option<Vec<u32>>, RunError> {
    let logits = logits(on, program, (cache, Answering::Usual), input)?;
    let tokens = open_largest(on, &logits, adds, top)?;
    Ok(tokens.and_then(|rows| rows.into_iter().next()))
}

/// As [`next_tokens`], for each of the new rows, none of which may be padding.
///
/// # Errors
/// As [`next_tokens`]; [`RunError::WrongInput`] for padding.
pub fn tokens_of_rows<S: Shares>(
    on: &mut S,
    program: &Program,
    cache: &mut Cache<S::Share>,
    input: &Input,
    adds: Adds<'_>,
    top: usize,
) -> Result<Option<Vec<Vec<u32>>>, RunError> {
    let logits = logits(on, program, (cache, Answering::All), input)?;
    open_largest(on, &logits, adds, top)
}

fn logits<S: Shares>(
    on: &mut S,
    program: &Program,
    cache: (&mut Cache<S::Share>, Answering),
    input: &Input,
) -> Result<Acts<S::Share>, RunError> {
    if !predicts_tokens(program) {
        return Err(RunError::Unsupported {
            site: "the last step".to_owned(),
            what: "generation: the model has no head over its vocabulary",
        });
    }
    run_rows(on, program, cache, input, |_, _| ())
}

/// Whether a program ends in one number per token of its vocabulary.
pub(crate) fn predicts_tokens(program: &Program) -> bool {
    let last = program.steps().last().map(|step| &step.block);
    matches!(last, Some(Block::Vocabulary(_)))
}

/// Opens the indices of the `top` largest logits of each row to the client.
pub(crate) fn open_largest<S: Shares>(
    on: &mut S,
    logits: &Acts<S::Share>,
    adds: Adds<'_>,
    top: usize,
) -> Result<Option<Vec<Vec<u32>>>, RunError> {
    let (rows, columns) = (logits.rows().total(), logits.width());
    if !(1..=columns).contains(&top) {
        return Err(RunError::Unsupported {
            site: "the answer".to_owned(),
            what: "none of the largest logits, or more than there are",
        });
    }
    let x = compared(on, logits);
    let x = match adds.draw {
        Some(draw) => {
            let noise = on.known(Party::Server, rows * columns, || draw.noise_of_rows(rows, columns));
            on.add_known(&x, &noise)
        }
        None => x,
    };
    let added = adds.penalties.and_then(|(penalties, answer)| penalties.words_of_rows(answer, rows, columns));
    let x = match added {
        Some(words) => {
            let words = on.known(Party::Client, rows * columns, || words);
            on.add_known(&x, &words)
        }
        None => x,
    };
    // Column indices are compared along with the logits, in the same ring.
    if top == 1 && columns as u64 <= LOGIT.ring.mask() {
        let places = open_largest_alone(on, &x, (rows, columns), "largest")?;
        return Ok(places.map(|places| places.into_iter().map(|place| vec![place]).collect()));
    }
    let found = open_top(on, &x, (rows, columns), top, "largest")?;
    found.fault.map_or(Ok(found.places), Err)
}

/// Opens the columns of each row of logits that are above a threshold to the client: one bit per logit, whether it or
/// the threshold is the larger.
pub(crate) fn open_above<S: Shares>(
    on: &mut S,
    logits: &Acts<S::Share>,
    threshold: f64,
) -> Result<Option<Vec<Vec<u32>>>, RunError> {
    let (rows, columns) = (logits.rows().total(), logits.width());
    let (x, all) = (compared(on, logits), rows * columns);
    // A threshold before each logit.
    let both = S::Share::concat(x.ring(), &[x.times(0), x]);
    let both = both.gather(2 * all, || (0..all).flat_map(|i| [i, all + i]).collect());
    let words = || (0..all).flat_map(|_| [LOGIT.signed(threshold), 0]).collect();
    let thresholds = on.known(Party::Server, 2 * all, words);
    let both = on.add_known(&both, &thresholds);
    let larger = open_largest_alone(on, &both, (all, 2), "above")?;
    let above = |row: &[u32]| (0..).zip(row).filter(|(_, larger)| **larger == 1).map(|(column, _)| column).collect();
    Ok(larger.map(|larger| larger.chunks_exact(columns.max(1)).map(above).collect()))
}

/// Logits in the format in which they are compared.
fn compared<S: Shares>(on: &S, logits: &Acts<S::Share>) -> S::Share {
    let (x, format) = logits.share();
    debug_assert_eq!(format, LINEAR);
    let shift = LINEAR.frac - LOGIT.frac;
    on.narrow(x, shift, Ring::new(LINEAR.ring.bits() - shift)).reduce_to(LOGIT.ring)
}
