//! Sockets: loopback, a Unix socket, or TLS; and the loop that accepts connections on one thread.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use hushed_serve::ServingIdentity;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;

use crate::config::{GatewayConfig, Listen};
use crate::error::GatewayError;
use crate::half_closed::HalfClosed;
use crate::sessions::{Queue, Sessions};

/// Most simultaneous connections; others wait in the system's queue.
const CONNECTIONS: usize = 128;
/// Time limit for a TLS handshake or a request's head. It also ends connections without a request.
const HEAD: Duration = Duration::from_secs(10);
/// Most bytes of a request's head.
const MAX_HEAD: usize = 32 << 10;
/// How often the loop checks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How often answers that have been kept long enough are wiped.
const FORGET: Duration = Duration::from_secs(10);
/// How long connections may take to end after the sessions.
const LAST: Duration = Duration::from_secs(5);
/// How long the sessions may take to end.
const END: Duration = Duration::from_secs(30);
/// Pause after a failed `accept`, for example for lack of file descriptors.
const AGAIN: Duration = Duration::from_millis(100);

/// The part to which the routes hand work.
pub trait Behind: Send + 'static {
    /// Wipes what has been kept long enough.
    fn forget(&self, _: Instant) {}

    /// Ends what is under way and waits for it.
    fn close(self);
}

impl Behind for Sessions {
    fn forget(&self, now: Instant) {
        if let Queue::Embed(texts) = &*self.queue {
            texts.forget(now);
        }
    }

    fn close(self) {
        Sessions::close(self);
    }
}

/// A listening socket.
pub struct Bound {
    socket: Socket,
    tls: Option<TlsAcceptor>,
    /// Where its certificate and key are.
    files: Option<(PathBuf, PathBuf)>,
    /// When the certificate expires, in seconds since 1970; 0 without one.
    expiry: Arc<AtomicU64>,
    /// Raised to have them, and the keys, read again.
    reload: Arc<AtomicBool>,
    /// How long requests under way may take once it is stopped.
    drain: Duration,
}

enum Socket {
    Tcp(TcpListener, SocketAddr),
    /// The name is removed before the listener is closed, so that it never leads nowhere; a clone has none.
    Unix(Option<Removed>, UnixListener),
}

/// A socket's file, removed on drop unless another file has taken its name.
struct Removed {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl Drop for Removed {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // Already gone: nothing to do.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Bound {
    /// Starts listening. Without TLS and keys, only where no other machine can reach it.
    pub fn open(config: &GatewayConfig) -> Result<Self, GatewayError> {
        let expiry = Arc::<AtomicU64>::default();
        let tls = config.tls.as_ref().map(|(chain, key)| acceptor(chain, key, &expiry));
        let tls = tls.transpose()?;
        let failed = |address: String| move |source| GatewayError::Listen { address, source };
        let socket = match &config.listen {
            Listen::Unix(path) => {
                let (name, bound) = unix(path).map_err(failed(path.display().to_string()))?;
                Socket::Unix(Some(name), bound)
            }
            Listen::Tcp(address) => {
                let bound = TcpListener::bind(address).map_err(failed(address.clone()))?;
                let local = bound.local_addr().map_err(failed(address.clone()))?;
                let guarded = tls.is_some() && config.api_keys.is_some();
                if !local.ip().is_loopback() && !guarded {
                    return Err(GatewayError::OpenToStrangers { address: local });
                }
                bound.set_nonblocking(true).map_err(failed(address.clone()))?;
                Socket::Tcp(bound, local)
            }
        };
        let (files, reload) = (config.tls.clone(), Arc::clone(&config.reload));
        Ok(Self { socket, tls, files, expiry, reload, drain: config.drain })
    }

    /// The same socket once more. Requests under way have `drain` when it is stopped.
    ///
    /// # Errors
    /// [`GatewayError::Runtime`].
    pub fn again(&self, drain: Duration) -> Result<Self, GatewayError> {
        let socket = match &self.socket {
            Socket::Tcp(tcp, address) => tcp.try_clone().map(|tcp| Socket::Tcp(tcp, *address)),
            Socket::Unix(_, unix) => unix.try_clone().map(|unix| Socket::Unix(None, unix)),
        };
        Ok(Self {
            socket: socket.map_err(GatewayError::Runtime)?,
            tls: self.tls.clone(),
            files: self.files.clone(),
            expiry: Arc::clone(&self.expiry),
            reload: Arc::clone(&self.reload),
            drain,
        })
    }

    /// Has keys and certificate read again.
    pub fn reload(&self) {
        self.reload.store(true, Ordering::SeqCst);
    }

    /// The address; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(_, address) => Some(*address),
            Socket::Unix(..) => None,
        }
    }

    /// When the certificate expires, in seconds since 1970, as it was read last; 0 without one.
    pub fn expiry(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.expiry)
    }

    /// Whether connections begin with a TLS handshake.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }
}

/// A socket that only this user can open. It is bound in a fresh folder owned by this user, next to its destination,
/// and gets its name once its permissions are set.
fn unix(path: &Path) -> io::Result<(Removed, UnixListener)> {
    let mut salt = [0; 4];
    getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
    // Kept short: the system accepts about a hundred bytes.
    let folder = path.with_file_name(format!(".{:08x}", u32::from_ne_bytes(salt)));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let fresh = folder.join("s");
    let bound = bind_named(&fresh, path);
    // If the socket has its name by now, this is its other one.
    let _ = fs::remove_file(&fresh);
    let _ = fs::remove_dir(&folder);
    bound
}

fn bind_named(fresh: &Path, path: &Path) -> io::Result<(Removed, UnixListener)> {
    let bound = UnixListener::bind(fresh)?;
    bound.set_nonblocking(true)?;
    fs::set_permissions(fresh, Permissions::from_mode(0o600))?;
    let file = identity(fresh)?;
    // A socket left by a killed gateway is replaced; anything else, or a socket in use, stays.
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    fs::hard_link(fresh, path).or_else(|error| match is_socket(path) {
        true => fs::rename(fresh, path),
        false => Err(error),
    })?;
    let name = Removed { path: path.to_owned(), file };
    Ok((name, bound))
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

/// Reads certificate and key, and says how long the certificate is valid; `expiry` is set to when it ends, in seconds
/// since 1970.
fn acceptor(chain: &Path, key: &Path, expiry: &AtomicU64) -> Result<TlsAcceptor, GatewayError> {
    let serving = ServingIdentity::from_files(chain, key)?;
    serving.tell();
    let until = serving.validity.until;
    let (certificates, key) = serving.identity.into_parts();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_no_client_auth())
        .and_then(|builder| builder.with_single_cert(certificates, key));
    let mut config = config.map_err(|error| GatewayError::Tls { path: chain.to_owned(), reason: error.to_string() })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    expiry.store(until, Ordering::Relaxed);
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until `stop` is raised, lets requests under way finish, and then ends the work behind.
/// `again` is called when the keys are to be read again.
pub fn run(
    bound: Bound,
    router: Router,
    stop: &AtomicBool,
    behind: impl Behind,
    again: impl Fn(),
) -> Result<(), GatewayError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .map_err(GatewayError::Runtime)?;
    let done = runtime.block_on(accept(bound, router, stop, behind, again));
    runtime.shutdown_timeout(LAST);
    done.map_err(GatewayError::Runtime)
}

async fn accept(
    bound: Bound,
    router: Router,
    stop: &AtomicBool,
    behind: impl Behind,
    again: impl Fn(),
) -> io::Result<()> {
    let Bound { socket, mut tls, files, expiry, reload, drain } = bound;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut wiped = Instant::now();
    let (socket, name) = match socket {
        Socket::Tcp(tcp, _) => (Accepting::Tcp(tokio::net::TcpListener::from_std(tcp)?), None),
        Socket::Unix(name, unix) => {
            let unix = tokio::net::UnixListener::from_std(unix)?;
            (Accepting::Unix(unix), name)
        }
    };
    while !stop.load(Ordering::SeqCst) {
        if wiped.elapsed() >= FORGET {
            wiped = Instant::now();
            behind.forget(wiped);
        }
        if reload.swap(false, Ordering::SeqCst) {
            again();
            match files.as_ref().map(|(chain, key)| acceptor(chain, key, &expiry)).transpose() {
                Ok(fresh) => tls = fresh,
                Err(error) => tracing::error!(name = error.name(), %error, "the certificate stays as it was"),
            }
        }
        let place = timeout(LOOK, Arc::clone(&places).acquire_owned()).await;
        let Ok(Ok(place)) = place else { continue };
        let stream = match timeout(LOOK, socket.accept()).await {
            Err(_) => continue,
            Ok(Err(error)) => {
                tracing::warn!(%error, "no connection can be accepted");
                sleep(AGAIN).await;
                continue;
            }
            Ok(Ok(stream)) => stream,
        };
        let (router, tls, watcher) = (router.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _place = place;
            let stream: Box<dyn Stream> = match tls {
                None => stream,
                Some(tls) => match timeout(HEAD, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Box::new(stream),
                    // The peer does not speak our TLS, or does not speak.
                    _ => return,
                },
            };
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(MAX_HEAD)
                .serve_connection(TokioIo::new(HalfClosed::new(stream)), TowerToHyperService::new(router));
            // If a client goes away or sends something that is not HTTP, that is its own business.
            let _ = watcher.watch(connection).await;
        });
    }
    drop(name);
    drop(socket);
    let mut connections = pin!(graceful.shutdown());
    let drained = timeout(drain, &mut connections).await;
    // What is left ends at its next step; its clients are told, and then their connections end.
    let ended = tokio::task::spawn_blocking(move || behind.close());
    if drained.is_err() {
        tracing::warn!("some requests did not end in time");
        let _ = timeout(LAST, &mut connections).await;
    }
    // A step of a large model takes seconds, but a server that does not answer must not hold the process.
    if timeout(END, ended).await.is_err() {
        tracing::warn!("a session did not end in time");
    }
    Ok(())
}

enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
