// Package stream is the gateway's side of the websocket protocol: the sessions of clients,
// flow control, and the messages of a connection.
//
//	serve, take   the messages of a connection; Gateway is whom they ask
//	session       a client's side of a run: results with their numbers, acks, resuming
//	flow, credit  what clients may send, and the memory for it
//
// Flow, and what it keeps in each Session, is guarded by the gateway's mutex: it has no
// goroutine and no clock, time comes in as an argument, and what has to be told to clients
// comes back as Grants, which are sent after the mutex. What a Session has to deliver is
// guarded by a mutex of its own, which is taken after the gateway's and never before it.
//
// Serve runs on the goroutine of its connection and calls the Gateway without any mutex.
package stream
