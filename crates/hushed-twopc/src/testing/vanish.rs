//! A party that is gone before one of its frames: nothing says goodbye, as when its process is killed.

use hushed_net::channel::memory::{self, MemoryChannel};
use hushed_net::channel::{Channel, Limits, Overhead};
use hushed_net::frame::Frame;
use hushed_net::{NetError, Party, Session, Shape};

/// Two sessions connected in memory, (client, server), of which `victim` sends `frames` frames and no more. What it tries from then on fails;
/// its peer notices when the victim's session is dropped.
pub fn vanishing_pair(victim: Party, frames: u64) -> (Session, Session) {
    let (near, far) = memory::pair();
    let session = |party, channel| {
        let left = if party == victim { frames } else { u64::MAX };
        let gone = false;
        Session::new(
            party,
            Box::new(Vanishing {
                channel,
                left,
                gone,
            }),
        )
    };
    (session(Party::Client, near), session(Party::Server, far))
}

struct Vanishing {
    channel: MemoryChannel,
    /// Frames that it still sends.
    left: u64,
    gone: bool,
}

impl Vanishing {
    fn here(&mut self) -> Result<&mut MemoryChannel, NetError> {
        if self.gone {
            return Err(NetError::PeerGone);
        }
        Ok(&mut self.channel)
    }
}

impl Channel for Vanishing {
    fn send(&mut self, frame: Frame) -> Result<(), NetError> {
        self.gone |= self.left == 0;
        self.left = self.left.saturating_sub(1);
        self.here()?.send(frame)
    }

    fn recv(&mut self, max: u64) -> Result<Frame, NetError> {
        self.here()?.recv(max)
    }

    fn flush(&mut self) -> Result<(), NetError> {
        self.here()?.flush()
    }

    fn abort(&mut self, code: u16) -> Result<(), NetError> {
        self.here()?.abort(code)
    }

    fn close(&mut self) -> Result<(), NetError> {
        self.here()?.close()
    }

    fn set_limits(&mut self, limits: Limits) {
        self.channel.set_limits(limits);
    }

    fn shape(&mut self, shape: Option<Shape>) {
        self.channel.shape(shape);
    }

    fn overhead(&self) -> Overhead {
        self.channel.overhead()
    }

    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.channel.exporter(label)
    }
}
