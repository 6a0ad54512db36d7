// Package wsconn implements a websocket connection with bounded queues, deadlines and pings. It is
// the only package that imports gorilla/websocket, and does not depend on the meaning of the
// messages.
//
// The life of a connection:
//
//  1. A client calls Dial, a server Upgrade. Both require the subprotocol, and neither ever
//     negotiates compression.
//  2. Run is called once. The goroutine that calls it is the reader: it passes every message to the
//     Handler, one at a time, binary messages as a stream straight from the socket, and reads each
//     message to its end, even if the handler does not. Run starts the only other goroutine, the
//     writer, and returns when both have ended.
//  3. Send queues a text and never blocks. If more than OutboxBytes wait for a peer, the connection
//     ends. SendBinary queues a binary message and waits until it is written. The writer sends in this
//     order: pongs and pings, texts, one binary message. Binary messages are sent in fragments, and
//     pongs and pings are sent between the fragments; RFC 6455 allows no other message there.
//  4. Every received byte extends the read deadline. A silent peer is pinged, and the connection ends
//     with ErrSilentPeer when the deadline passes.
//  5. Close, an error of the handler, or the end of Run's context starts the close handshake: queued
//     texts are sent, then the close frame; data received meanwhile is discarded; after CloseTimeout
//     the socket is closed in any case.
package wsconn
