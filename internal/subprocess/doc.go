// Package subprocess runs code that can crash or hang a process (Tesseract, ONNX Runtime) in child
// processes of the same binary, so that a crash becomes an error of one request.
//
// The life of a slot:
//
//  1. The main function of the program calls [Main] first. In the parent, Main returns at once; in a
//     child (argv "child <kind>"), Main serves requests over an inherited socket until the parent
//     closes it, and the main function then exits.
//  2. New makes a [Pool]. Start starts its children, with one goroutine (the owner) for each slot. A
//     child is offered only after it has built its handler and answered a known request, the canary,
//     correctly.
//  3. Take takes an idle child from its owner when it is the tenant's turn (package fair). The holder
//     of the [Lease] prepares the request. Do writes the pixels into the memory that is shared with
//     the child, sends a small frame over the socket and waits for the answer. Then the child goes
//     back to its owner.
//  4. A child that crashes is replaced, and its request is tried once more on another child. If that
//     child crashes too, the request fails. If the child that replaces the last one answers the
//     canary, the request is the cause, and its input is remembered, so that it crashes no third
//     child. If the canary fails, or if a child was killed from outside, the machine is the cause
//     ([ErrHost]). A child without an answer at the deadline is killed and replaced. If the caller
//     cancels, the child finishes the request at the tenant's cost, and the answer is discarded. A
//     handler whose process is unusable returns a [Fatal] error, which counts as a crash.
//  5. An idle child is pinged. After Recycle requests it is replaced, which limits memory leaks.
//  6. If the pool has a [Device], an idle child answers the canary instead of a ping, and so does a
//     child after a suspicious error, before its next request. A device whose children keep failing
//     is in quarantine: no child is started, and requests are refused with the reason and the end of
//     the quarantine; then one child is tried with one canary.
//  7. Stop lets running requests end and then kills the rest. No process and no goroutine of the
//     pool is left when Stop returns.
//
// # Protocol
//
// One frame is a little-endian uint32 length of the header, a uint32 length of the body, the header
// (JSON, at most 64 KiB) and the body (at most 16 MiB to the child, 64 MiB to the parent). Parent
// to child: "init" (body: the configuration of the kind), "do" (body: the request's meta; header:
// the size of the shared memory, the number of bytes used, and the time in milliseconds for which
// the parent waits), "ping". Child to parent: "ok" (body: the answer), "error" (header: the message
// and its class) or "fatal" (the same, and the child ends), with the seq of the request. Pixels are
// not sent over the socket: they are in a memfd that both sides map. The parent writes to it only
// while the child waits for a request. Every child has its own memory, which is freed with the
// child.
//
// File descriptors of a child: 0 empty, 1 and 2 a pipe of which the parent keeps the first and the
// last kilobytes, 3 the socket, 4 the memory.
//
// [Inline] has the methods of a Pool without processes, for debugging and measuring. Processes need
// Linux; on other systems starting a Pool returns an error.
package subprocess
