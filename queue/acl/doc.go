// Package acl creates and reads the NATS credentials of gateways and workers.
//
// The life of an access: Create makes a key for each of the two roles and writes it to
// a file of its own, and beside them a fragment of a nats-server's configuration that
// names the keys' public halves and what each may do (or, as JWTs, a resolver's). The
// fragment goes to the server, each key to the machines of its role. A server that
// this process embeds reads the fragment with Load; one of the user's own includes it.
// A process connects with NKey or Creds, which refuse a file that others can read.
// At the connection the server sends a nonce and the process signs it: the secret
// half, the seed, leaves its file for a moment and never the machine.
//
// A bus that only this machine reaches has keys of its own, one pair for each user, which Own
// makes when they are first needed.
//
// The table in permissions.go says what each role may do, subject by subject; everything
// else here and docs/queue-security.md follow from it. Whoever holds a worker's key gets
// no pixels with it: those are claimed at a gateway.
package acl
