// Package wire defines the messages between clients, gateway and workers: the binary frame of a
// sample, and the control messages.
//
// The life of a frame:
//
//  1. A client calls Encode. The pixels are not copied: the Message holds a small
//     head (length, JSON header) and the sample's own slices.
//  2. The message crosses a websocket as one binary message.
//  3. The receiver calls ReadHeader on the stream. It reads the JSON header, at
//     most 1 MiB, and checks everything that can be checked without the data:
//     names, types, shapes, offsets, the whole size. Nothing big has been
//     allocated yet, so a frame that is refused costs nothing but its header.
//  4. Header.ReadBody takes one buffer of the frame's exact size from Buffers,
//     fills it with header and data and computes the checksum on the way.
//  5. The Frame is reference-counted. Whoever needs it beyond the present call
//     Retains it; Sample gives views whose media alias the buffer; the last
//     Release hands the buffer back.
//
// In one process the submitter calls NewFrame instead of 2 to 4. A worker on another
// machine fills a Draft instead of 3 and 4: it knows the checksum before the bytes come.
//
// Around the frames go messages of JSON: those of a client (control.go, rewards.go,
// result.go), those with which a worker claims payloads (claim.go), and the ticket that
// the queue carries in place of a sample. A new message is a type with its check beside
// it, a row in controlKinds or claimKinds, and its entry in messages.json, which the Python
// client and the tables of docs/wire.md are held to as well.
//
// Everything that a peer sends is refused unless it is exactly right: the header
// is read by a scanner of our own because encoding/json accepts names in the
// wrong case, repeated names, and invalid UTF-8. A refusal is a *FrameError with
// the class that goes on the wire, the sample's id where it could be read, and a
// sentinel (ErrOffsets, ErrShape, …) that says what was wrong.
package wire
