// Package acl creates and reads the NATS credentials of gateways and workers.
//
// Create makes a key for each of the two roles and writes it to its own file. Create also writes a
// fragment of a nats-server configuration with the public keys and the permissions of each (or,
// with JWTs, the configuration of a resolver). The fragment belongs on the server, and each key on
// the machines of its role. An embedded server reads the fragment with Load; a separate nats-server
// includes it. A process connects with NKey or Creds, which refuse a file that other users can
// read. At the connection the server sends a nonce and the process signs it: the secret seed is in
// memory only for this moment and never leaves the machine.
//
// A bus that only this machine can reach has its own pair of keys for each user. Own makes these
// keys when they are first needed.
//
// The table in permissions.go defines the permissions of each role for each subject; the other code
// and docs/queue-security.md are derived from it. A worker's key does not give access to pixels,
// because payloads are claimed at a gateway.
package acl
