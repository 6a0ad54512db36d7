// Package node assembles one process from the configuration, the scorers, the queue, the workers,
// the gateway and the HTTP server; no other package knows all of them.
//
// The life of a node. New builds the rewards of every profile and refuses what
// cannot work on this machine. Start brings up, in this order: the scorers' child
// processes, the queue, the gateway, the workers, and last the listener, so that
// nothing is accepted before it can be scored. Drain refuses new samples and lets
// what is in flight finish. Stop takes everything down in the opposite order; the
// scorers are closed last, when no worker can call them any more.
package node
