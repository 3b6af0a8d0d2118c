//! A slower network than the real one: a bandwidth and a one-way latency imposed by the sender.
//!
//! A frame of `n` bytes sent at time `t` starts to leave at `s = max(t, when the link is free)`, occupies the link for
//! `n / bandwidth`, and its byte `i` arrives at `s + i / bandwidth + latency`. For a symmetric link both ends must be
//! shaped. Heartbeats and TLS records (about 0.14 % of long frames) are not counted. The system's timer adds about 0.1
//! ms to each wait, so figures over a shaped link err on the slow side.

use std::time::{Duration, Instant};

/// A bandwidth and a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bits per second in each direction; 0 means no limit.
    pub bits_per_second: u64,
    /// The time from one end to the other: half of what `ping` shows.
    pub one_way: Duration,
}

impl Shape {
    /// The local network of the BumbleBee paper (§VI): 1 Gbit/s, ping 0.5 ms.
    pub const LAN: Self = Self { bits_per_second: 1_000_000_000, one_way: Duration::from_micros(250) };
    /// The wide network of the BumbleBee paper (§VI): 400 Mbit/s, ping 4 ms.
    pub const WAN: Self = Self { bits_per_second: 400_000_000, one_way: Duration::from_millis(2) };

    /// How long `bytes` occupy the link.
    #[must_use]
    pub fn transmission(&self, bytes: u64) -> Duration {
        if self.bits_per_second == 0 {
            return Duration::ZERO;
        }
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.bits_per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The sender's end of a shaped link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    shape: Option<Shape>,
    free_at: Option<Instant>,
}

/// When the bytes of one frame arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    shape: Shape,
    leaves_at: Instant,
}

impl Link {
    pub(crate) fn set(&mut self, shape: Option<Shape>) {
        *self = Self { shape, free_at: None };
    }

    /// Reserves the link for a frame of `bytes` handed over now.
    pub(crate) fn schedule(&mut self, bytes: u64) -> Option<Schedule> {
        let shape = self.shape?;
        let now = Instant::now();
        let leaves_at = self.free_at.map_or(now, |free| free.max(now));
        self.free_at = leaves_at.checked_add(shape.transmission(bytes));
        Some(Schedule { shape, leaves_at })
    }
}

impl Schedule {
    /// When the first `bytes` of the frame have arrived.
    pub(crate) fn arrival(&self, bytes: u64) -> Instant {
        let after = self.shape.transmission(bytes).saturating_add(self.shape.one_way);
        self.leaves_at.checked_add(after).unwrap_or(self.leaves_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmission_is_bits_over_bandwidth() {
        let at = |bits_per_second| Shape { bits_per_second, ..Shape::LAN };
        assert_eq!(Shape::LAN.transmission(125_000_000), Duration::from_secs(1));
        assert_eq!(Shape::WAN.transmission(50), Duration::from_micros(1));
        assert_eq!(Shape::LAN.transmission(0), Duration::ZERO);
        assert_eq!(at(1).transmission(u64::MAX).as_nanos(), u64::MAX.into());
        assert_eq!(at(0).transmission(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn frames_queue_up_on_the_link_but_not_on_the_latency() {
        let mut link = Link::default();
        assert!(link.schedule(1).is_none());
        link.set(Some(Shape::WAN));
        // A gigabyte occupies the link for 20 s, far longer than this test runs.
        let (first, second) = (link.schedule(1 << 30).unwrap(), link.schedule(50).unwrap());
        assert_eq!(second.arrival(0), first.arrival(1 << 30));
        assert_eq!(second.arrival(50) - second.arrival(0), Duration::from_micros(1));
        assert_eq!(first.arrival(0) - first.leaves_at, Shape::WAN.one_way);
    }
}
