//! A client's classifier.

use std::sync::{Arc, Mutex};

use hushed_model::ProblemType;
use hushed_mpc::Answers;
use hushed_serve::{Class, Kept, Task};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::encoder::How;
use crate::{errors, kept, plan};

/// A classifier; its lock lets one call run at a time.
#[pyclass(frozen, module = "hushed._native")]
pub struct Classifier {
    kept: Arc<Mutex<Kept>>,
    labels: Vec<String>,
    problem: ProblemType,
    /// What is returned for each text.
    answers: Answers,
    max_tokens: usize,
    bundle: String,
}

/// The answer to a text: its label, several labels, or all logits in the order of the labels.
#[derive(IntoPyObject)]
enum Answer {
    Label(String),
    Several(Vec<String>),
    Logits(Vec<f64>),
}

#[pymethods]
impl Classifier {
    #[new]
    fn new(py: Python<'_>, connection: Connection, answers: &str) -> PyResult<Self> {
        let kept = kept::open(py, connection, Task::Classify)?;
        let answers = plan::enough(py, answers, kept.answers())?;
        let labels = kept.public().labels().unwrap_or_default().to_vec();
        if let Answers::Top(_) | Answers::Above(_) = answers {
            let wrong = |needs| errors::usage(py, "usage", &format!("answers=\"{answers}\": {needs}"));
            answers.suits(kept.public(), labels.len()).map_err(wrong)?;
        }
        Ok(Self {
            answers,
            labels,
            problem: kept.public().config.problem,
            max_tokens: kept.max_tokens(),
            bundle: kept.bundle().to_string(),
            kept: Arc::new(Mutex::new(kept)),
        })
    }

    /// The classes, in the model's order.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    /// Most tokens in a text.
    #[getter]
    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Hash of the bundle, in hexadecimal.
    #[getter]
    fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The answer to each text.
    fn classify(&self, py: Python<'_>, texts: Vec<String>, how: How) -> PyResult<Vec<Answer>> {
        let classes = kept::run(py, &self.kept, move |kept, stop| kept.classify(&texts, &how.options(), stop))?;
        let answers = classes.into_iter().map(|class| self.answer(class));
        // Can happen in a later session, after the server was restarted.
        answers
            .collect::<Option<_>>()
            .ok_or_else(|| errors::usage(py, "usage", "the server opens less than it did before"))
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        kept::close(py, &self.kept)
    }
}

impl Classifier {
    /// The requested answer; `None` if the server opened less.
    fn answer(&self, class: Class) -> Option<Answer> {
        match (self.answers, class.logits) {
            (Answers::Logits, logits) => logits.map(Answer::Logits),
            (Answers::Above(_), Some(logits)) => {
                let above = self.problem.answer(&logits, self.answers.threshold()).into_iter();
                Some(Answer::Several(above.filter_map(|place| self.labels.get(place).cloned()).collect()))
            }
            (Answers::Above(_), None) => Some(Answer::Several(class.top)),
            (Answers::Label, _) if self.problem == ProblemType::MultiLabel => Some(Answer::Several(class.top)),
            (Answers::Label, _) => class.top.into_iter().next().map(Answer::Label),
            (Answers::Top(_) | Answers::Bits(_), _) => {
                let (mut top, wanted) = (class.top, self.answers.top()?);
                top.truncate(wanted);
                (top.len() == wanted).then_some(Answer::Several(top))
            }
        }
    }
}
