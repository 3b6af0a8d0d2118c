//! Server and client processes and the messages between them.
