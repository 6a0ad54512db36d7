// Package node assembles one process from the configuration, the scorers, the queue, the workers,
// the gateway and the HTTP server. No other package depends on all of these parts.
//
// New builds the rewards of every profile and refuses a configuration that cannot work on this
// machine. Start starts the scorers' child processes, the queue, the gateway and the workers, and
// creates the HTTP routes, in this order. Listen opens the listener last, so that no sample is
// accepted before it can be scored. Drain refuses new samples and waits for those in flight. Stop
// stops everything, the HTTP server first; the scorers are closed when no worker can call them any
// more.
package node
