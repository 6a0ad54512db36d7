// Package ort runs ONNX models with ONNX Runtime, on CPUs and on CUDA devices.
//
// The life of a model, in the order a reader meets it:
//
//  1. [Find] looks for libonnxruntime and reads its version from the file, [FindCUDA]
//     for one with the CUDA provider, and for the libraries of CUDA that it needs. The
//     main process never loads them. [Probe] has a child process do so, and says
//     what it saw.
//  2. [NewOpener] makes the [pool.Opener] of this runtime. Open("cpu") starts one
//     child process per core, Open("cuda:<n>") one child that sees that device
//     alone; each has loaded the library and run a model of 208 bytes, the canary,
//     before it is used. A child is this same binary: main hands [Kinds] to
//     slot.Main.
//  3. Load has every child of the device load a model, which makes it a
//     [Session], and answers what the model says about itself. On a card at least one
//     node must run there, and the child runs every size of batch once (warm.go), so
//     that no sample waits for cuDNN's choices or a growing arena. A child that comes
//     later loads a model when it is first asked to run it; that time does not
//     count against the deadline of the run.
//  4. Run writes a batch into the memory that is shared with a child. The child's
//     session binds it in place, runs it, reduces the outputs if so asked, and
//     answers with them. At the deadline the session ends the run itself; if it
//     does not, its process is killed.
//     A model with an Embed is a [Language] instead: a batch of prompts runs through
//     its decoder once, or once for every token that is said, in the child alone.
//  5. What goes wrong arrives as one of the sentinels of internal/infer. A process
//     that died, hung, or was spoilt (a CUDA error that stays, NaN among the
//     outputs) is replaced; its batch is run once more elsewhere (after a hang item by
//     item, by the pool), then fails. A card whose children failed 5 times within 10
//     minutes is in quarantine, for 30 s at first and up to 5 min: [Opener.Stats] and
//     every refused batch say why and until when.
//  6. Close ends the children.
//
// Everything that touches ONNX Runtime is in runtime.go, session.go, introspect.go, half.go,
// placement.go and call.go. All sessions of a card are opened, run and closed on the one
// thread of its child. A plain model's batch goes through run.go (and foresee.go, which spares a copy);
// language.go, prompt.go, prefill.go and greedy.go are built on them.
// Built without cgo the package compiles, and opening anything says so.
package ort
