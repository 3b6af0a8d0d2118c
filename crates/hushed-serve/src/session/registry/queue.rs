//! Clients that wait for a session, and whose turn it is.
//!
//! Every client's first connection comes before any client's second one. Among equals the client that was served
//! longest ago comes first, then the connection that came first. No client takes more places than it leaves free.

use std::collections::HashMap;

use crate::session::owner::Owner;

/// The connections that wait. A client of a server that authenticates nobody is `None`: all are one.
#[derive(Default)]
pub(crate) struct Queue {
    /// In the order in which they came.
    waiting: Vec<(u64, Option<Owner>)>,
    /// The count at which a client that waits was last served.
    served: HashMap<Owner, u64>,
    count: u64,
}

impl Queue {
    /// Adds a connection of this client, unless there are `places` already or the client has its share.
    pub(crate) fn enter(&mut self, number: u64, client: Option<&Owner>, places: usize) -> bool {
        let Some(free) = places.checked_sub(self.waiting.len() + 1) else {
            return false;
        };
        let is_its = |(_, of): &&(u64, Option<Owner>)| client.is_some() && of.as_ref() == client;
        let own = self.waiting.iter().filter(is_its).count() + 1;
        if client.is_some() && own > free.max(1) {
            return false;
        }
        self.waiting.push((number, client.cloned()));
        true
    }

    /// Removes a connection, which had its turn (`served`) or gave up. Of a client with no other place nothing is kept.
    pub(crate) fn leave(&mut self, number: u64, served: bool) {
        let Some(at) = self.waiting.iter().position(|(n, _)| *n == number) else {
            return;
        };
        let (_, client) = self.waiting.remove(at);
        let Some(client) = client else { return };
        self.count += u64::from(served);
        if !self.waiting.iter().any(|(_, of)| of.as_ref() == Some(&client)) {
            self.served.remove(&client);
        } else if served {
            self.served.insert(client, self.count);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The connections and their clients in the order of their turns.
    pub(crate) fn order(&self) -> Vec<(u64, Option<&Owner>)> {
        let mut ranks: HashMap<&Owner, usize> = HashMap::new();
        let mut order: Vec<_> = self
            .waiting
            .iter()
            .map(|(number, client)| {
                let (mut rank, mut served) = (0, 0);
                if let Some(client) = client {
                    let before = ranks.entry(client).or_default();
                    rank = *before;
                    *before += 1;
                    served = self.served.get(client).copied().unwrap_or(0);
                }
                ((rank, served, *number), client.as_ref())
            })
            .collect();
        order.sort_unstable_by_key(|(key, _)| *key);
        order.into_iter().map(|((.., number), client)| (number, client)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &Queue) -> Vec<u64> {
        queue.order().into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn clients_take_turns_and_one_alone_keeps_its_order() {
        let [ann, bob, cleo] = ["ann", "bob", "cleo"].map(Owner::named);
        let mut queue = Queue::default();
        for (number, client) in [(1, &ann), (2, &ann), (3, &ann), (4, &bob), (5, &bob), (6, &cleo)] {
            assert!(queue.enter(number, Some(client), 100));
        }
        assert_eq!(order(&queue), [1, 4, 6, 2, 5, 3]);
        // Who has had a turn comes after those who have had none.
        queue.leave(1, true);
        assert_eq!(order(&queue), [4, 6, 2, 5, 3]);
        queue.leave(4, true);
        queue.leave(6, false);
        assert_eq!(order(&queue), [2, 5, 3]);
        queue.leave(2, true);
        assert_eq!(order(&queue), [5, 3]);
        for number in [3, 5, 5] {
            queue.leave(number, true);
        }
        assert!(queue.len() == 0 && queue.served.is_empty());
        for number in [9, 7, 8] {
            assert!(queue.enter(number, None, 3));
        }
        assert_eq!(order(&queue), [7, 8, 9]);
    }

    #[test]
    fn the_queue_is_bounded_and_no_client_fills_it() {
        let [ann, bob, cleo, dora, emil] = ["ann", "bob", "cleo", "dora", "emil"].map(Owner::named);
        let mut queue = Queue::default();
        let mut number = 0;
        let mut enter = |queue: &mut Queue, client| {
            number += 1;
            queue.enter(number, client, 8)
        };
        let own = (0..8).filter(|_| enter(&mut queue, Some(&ann))).count();
        assert_eq!(own, 4);
        assert_eq!((0..8).filter(|_| enter(&mut queue, Some(&bob))).count(), 2);
        // One place can always be taken by a client that has none.
        assert!(enter(&mut queue, Some(&cleo)));
        assert!(enter(&mut queue, Some(&dora)));
        assert!(!enter(&mut queue, Some(&emil)));
        assert_eq!(queue.len(), 8);
        assert!(!Queue::default().enter(1, Some(&ann), 0) && !Queue::default().enter(1, None, 0));
    }
}
