// Package subprocess runs code that can crash or hang a process (Tesseract, ONNX
// Runtime) in child processes of the same binary, and turns what such code does
// to a process into an error of one request.
//
// The life of a slot, in the order a reader meets it:
//
//  1. The program's main calls [Main] before anything else. In the parent it
//     returns at once; in a child (argv "child <kind>") it serves requests over an
//     inherited socket until the parent closes it, and never returns to main.
//  2. New makes a [Pool]; Start starts its children, one goroutine (the owner)
//     per slot. A child is handed out only after it has built its handler and
//     read a known request, the canary, correctly.
//  3. Take takes an idle child from its owner, when it is the tenant's turn (package fair).
//     Whoever has this [Lease] makes ready what the child is to do; Do writes the pixels
//     into the memory it shares with that child, sends a small frame over the socket
//     and waits for the answer. Then the child goes back to its owner.
//  4. A child that crashes is replaced and its request is tried once more on
//     another child; a second death fails the request by name. If the child that
//     replaces the last one answers the canary, the request is to blame and its
//     input is remembered, so that it kills no third; if not, or if a child was
//     killed from outside, this machine is ([ErrHost]). A child that is silent at the
//     deadline is killed and replaced. A caller that leaves early leaves the
//     child to finish, at its tenant's cost, and the answer is thrown away. A handler that knows its
//     process to be spoilt says so ([Fatal]); that counts as a crash.
//  5. An idle child is pinged, and after Recycle requests it is replaced, which
//     bounds what a leaking library can leak.
//  6. Where the pool has a [Device], which may be at fault where no child is, an idle child
//     answers the canary in place of a ping, and so does one that answered with a suspicious
//     error, before its next request. A device whose children keep failing is in quarantine:
//     no child is started, requests are refused with why and until when, and then one child
//     is tried with one canary.
//  7. Stop lets running requests end, then kills; no process and no goroutine
//     of the pool is left when it returns.
//
// # Protocol
//
// One frame is a little-endian uint32 length of the header, a uint32 length of
// the body, the header (JSON, at most 64 KiB) and the body (at most 16 MiB to the
// child, 64 MiB to the parent). Parent to child: "init" (body: the configuration
// of the kind), "do" (body: the request's meta; header: size of the shared memory,
// how much of it counts, and how many milliseconds the parent will wait), "ping".
// Child to parent: "ok" (body: the answer), "error" (header: the message and its
// class) or "fatal" (the same, and the child ends), with the seq of the request.
// Pixels never cross the socket: they lie in a memfd that both sides map. The
// parent writes it only while the child waits for a request; every child has a
// memory of its own, thrown away with it.
//
// File descriptors of a child: 0 empty, 1 and 2 a pipe of which the parent keeps
// the first and the last kilobytes, 3 the socket, 4 the memory.
//
// [Inline] has the methods of a Pool without processes, for debugging and
// measuring. Processes need Linux; elsewhere a Pool does not start and says so.
package subprocess
