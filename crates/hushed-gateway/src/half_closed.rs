//! Connections whose client closes its sending side after a request and waits for the answer (`nc -N`, `socat`): that
//! is no sign of lost interest (RFC 9112, §9.6), but a client that has gone for good looks the same at first.
//!
//! The end of what the client sends is kept from the HTTP layer, which would drop the request. A second later, and then
//! again, an interim response (`100 Continue`, which clients skip) is sent, unless the answer has begun: the system of
//! a client that has gone refuses it, and the next write fails. HTTP/1.0 knows no interim responses; such a client has
//! ten seconds.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// When interim responses are sent, after the one before; the last interval repeats.
const INTERVALS: [Duration; 3] = [Duration::from_secs(1), Duration::from_millis(500), Duration::from_secs(10)];
/// How long a client of HTTP/1.0 is waited for.
const OLD: Duration = Duration::from_secs(10);

/// A connection.
pub struct HalfClosed<S> {
    stream: S,
    /// Whether anything was read, and whether that was a request of HTTP/1.0.
    asked: Option<bool>,
    /// Whether anything was sent for it.
    answered: bool,
    ended: Option<Pin<Box<Sleep>>>,
    sent: usize,
}

impl<S> HalfClosed<S> {
    /// A connection that was just opened.
    pub fn new(stream: S) -> Self {
        Self { stream, asked: None, answered: false, ended: None, sent: 0 }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for HalfClosed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ended.is_none() {
            let before = buf.filled().len();
            match Pin::new(&mut this.stream).poll_read(cx, buf) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
            let read = buf.filled().get(before..).unwrap_or_default();
            if !read.is_empty() {
                if this.asked.is_none() {
                    let line = read.split(|b| *b == b'\n').next().unwrap_or_default();
                    this.asked = Some(line.trim_ascii_end().ends_with(b"HTTP/1.0"));
                }
                return Poll::Ready(Ok(()));
            }
            // Only for a connection's first request: later ones come from clients that keep connections.
            let first = match (this.asked, this.answered) {
                (Some(true), false) => OLD,
                (Some(false), false) => INTERVALS[0],
                _ => return Poll::Ready(Ok(())),
            };
            this.ended = Some(Box::pin(sleep(first)));
        }
        while let Some(timer) = &mut this.ended {
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // The answer itself will find out.
            if this.answered {
                timer.as_mut().reset(Instant::now() + OLD);
                continue;
            }
            if this.asked == Some(true) {
                return Poll::Ready(Ok(()));
            }
            // So few bytes go as a whole, or not at all.
            if let Poll::Ready(Err(error)) = Pin::new(&mut this.stream).poll_write(cx, INTERIM) {
                return Poll::Ready(Err(error));
            }
            let _ = Pin::new(&mut this.stream).poll_flush(cx);
            this.sent += 1;
            let next = INTERVALS.get(this.sent).or(INTERVALS.last()).copied().unwrap_or(OLD);
            timer.as_mut().reset(Instant::now() + next);
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HalfClosed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answered = true;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.answered = true;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
