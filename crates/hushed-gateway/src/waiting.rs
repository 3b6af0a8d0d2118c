//! A gateway that has not seen its server yet: it listens, says why it is not ready, and tries again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hushed_mpc::RunError;
use hushed_serve::ServeError;

use crate::config::GatewayConfig;
use crate::error::GatewayError;
use crate::http::{self, Edge};
use crate::listen::{self, Behind, Bound};
use crate::sessions::failure::Failure;

/// The pause between two attempts.
const AGAIN: Duration = Duration::from_secs(2);
/// How often a pause looks whether the gateway is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How long answers under way may take when the server has been seen: they are a line each.
const DRAIN: Duration = Duration::from_secs(1);

/// What `attempt` gives, which is repeated where that may help. Meanwhile requests are told why there is no answer.
///
/// # Errors
/// Those of `attempt` that another one does not mend; one named `stopped`.
pub fn until_seen<T>(
    config: &GatewayConfig,
    bound: &Bound,
    edge: &Arc<Edge>,
    mut attempt: impl FnMut() -> Result<T, GatewayError>,
) -> Result<T, GatewayError> {
    let mut answering: Option<Answering> = None;
    loop {
        match attempt() {
            Err(GatewayError::Serve(error)) if error.may_pass() => {
                let failure = Failure::from(&error);
                match &answering {
                    Some(answering) => answering.tell(failure),
                    None => answering = Some(Answering::start(bound, edge, failure)?),
                }
            }
            done => {
                if answering.is_some_and(Answering::end) {
                    bound.reload();
                }
                return done;
            }
        }
        let until = Instant::now() + AGAIN;
        while Instant::now() < until {
            if config.client.stop.as_ref().is_some_and(|stop| stop.load(Ordering::SeqCst)) {
                return Err(ServeError::from(RunError::Stopped).into());
            }
            thread::sleep(LOOK);
        }
    }
}

/// A thread that answers requests meanwhile. It ends when this is dropped.
struct Answering {
    why: Arc<Mutex<Failure>>,
    stop: Arc<AtomicBool>,
    /// Whether keys and certificate were read again.
    reloaded: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), GatewayError>>>,
}

impl Answering {
    fn start(bound: &Bound, edge: &Arc<Edge>, failure: Failure) -> Result<Self, GatewayError> {
        log(&failure);
        let (address, why) = (bound.address(), Arc::new(Mutex::new(failure)));
        tracing::info!(?address, "listening; /ready says why there is no answer yet");
        let (stop, reloaded) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (bound, router) = (bound.again(DRAIN)?, http::waiting(Arc::clone(edge), Arc::clone(&why)));
        let (raised, noted, edge) = (Arc::clone(&stop), Arc::clone(&reloaded), Arc::clone(edge));
        let run = move || {
            listen::run(bound, router, &raised, Nothing, || {
                noted.store(true, Ordering::SeqCst);
                edge.door.reload();
            })
        };
        let thread = thread::Builder::new().name("hushed waiting".to_owned());
        let thread = Some(thread.spawn(run).map_err(ServeError::Thread)?);
        Ok(Self { why, stop, reloaded, thread })
    }

    /// The reason now.
    fn tell(&self, failure: Failure) {
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if *why != failure {
            log(&failure);
            *why = failure;
        }
    }

    /// Stops answering; returns whether keys and certificate were read again meanwhile.
    fn end(mut self) -> bool {
        self.join();
        self.reloaded.load(Ordering::SeqCst)
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // What it could not answer, the gateway now does.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.join();
    }
}

fn log(failure: &Failure) {
    tracing::warn!(name = failure.name, "the server cannot be used yet, trying again: {}", failure.message);
}

/// Nothing is behind these answers.
struct Nothing;

impl Behind for Nothing {
    fn close(self) {}
}
