// Package stream implements the gateway's side of the websocket protocol: the sessions of clients,
// flow control, and the messages of a connection.
//
//	serve, fetch         the messages of a connection, handled by a Gateway
//	session              a client's side of a run: numbered results, acks, resuming
//	flow, credit, share  the credit of clients, and the memory for their samples
//
// Flow, and the credit that it keeps in each Session, is guarded by the gateway's mutex. Flow has
// no goroutine and no clock: time is an argument, and messages for clients are returned as Grants,
// which are sent after the mutex is unlocked. The undelivered results of a Session are guarded by a
// mutex of the Session, which is locked after the gateway's mutex and never before it.
//
// Serve runs on the goroutine of its connection and calls the Gateway without holding any mutex.
package stream
