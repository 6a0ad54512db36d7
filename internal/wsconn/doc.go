// Package wsconn is a websocket connection with bounded queues, deadlines and pings. It is the only
// package that imports gorilla/websocket and knows nothing of what the messages mean.
//
// The life of a connection:
//
//  1. A client calls Dial, a server Upgrade. Both insist on the sub-protocol, and
//     neither ever negotiates compression.
//  2. Run is called once. The goroutine that calls it is the reader: it hands
//     every message to the Handler, one at a time, binary ones as a stream straight
//     from the socket, and reads each to its end whatever the handler left. Run
//     starts the one other goroutine, the writer, and returns when both have ended.
//  3. Send queues a text; it never blocks. A peer that lets more than OutboxBytes
//     pile up is cut off with ErrSlowPeer. SendBinary queues a binary message and
//     waits until it is written. The writer sends what is due in this order:
//     pongs and pings, texts, one binary message. Binary messages go out in
//     fragments, and pongs and pings pass between them; RFC 6455 allows no other
//     message there.
//  4. Any byte that arrives is a sign of life and moves the read deadline. A silent
//     peer is pinged, and cut off with ErrSilentPeer when the deadline passes.
//  5. Close, an error of the handler, or the end of Run's context starts the close
//     handshake: texts still queued go out, then the close frame; what arrives
//     meanwhile is read and dropped; after CloseTimeout the socket is closed in any
//     case.
package wsconn
