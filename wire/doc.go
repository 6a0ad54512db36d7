// Package wire defines the messages between clients, gateway and workers: the binary frame of a
// sample, and the control messages.
//
// A frame is sent and received as follows:
//
//  1. A client calls Encode. The pixels are not copied: the Message contains a small
//     head (length, JSON header) and the sample's own slices.
//  2. The message crosses a websocket as one binary message.
//  3. The receiver calls ReadHeader on the stream. ReadHeader reads the JSON header, at
//     most 1 MiB, and checks everything that does not depend on the data: names, types,
//     shapes, offsets and the total size. Memory for the data has not been allocated yet,
//     so a refused frame costs only its header.
//  4. Header.ReadBody takes one buffer of the frame's exact size from Buffers, fills it
//     with header and data, and computes the checksum while reading.
//  5. The Frame is reference-counted. Code that needs it beyond the present call calls
//     Retain. Sample returns views whose media alias the buffer. The last Release returns
//     the buffer.
//
// In one process the submitter calls NewFrame instead of steps 2 to 4. A worker on another machine
// fills a Draft instead of steps 3 and 4, because it has the checksum before the bytes arrive.
//
// All other messages are JSON: those of a client (control.go, rewards.go, result.go), those with
// which a worker claims payloads (claim.go), and the ticket that represents a sample in the queue.
// A new message needs a type with its check, a row in controlKinds or claimKinds, and an entry in
// messages.json, with which tests also compare the Python client and the tables of docs/wire.md.
//
// Everything that a peer sends is refused unless it is exactly right. The header is read by a
// scanner of this package, because encoding/json accepts names in the wrong case, repeated names,
// and invalid UTF-8. A refusal is a *FrameError with the class that is sent to the peer, the
// sample's id if it could be read, and a sentinel error (ErrOffsets, ErrShape, …) for the cause.
package wire
