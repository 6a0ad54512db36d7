// Package ort runs ONNX models with ONNX Runtime, on CPUs and on CUDA devices.
//
// The life of a model:
//
//  1. [Find] finds libonnxruntime and reads its version from the file. [FindCUDA] finds a library
//     with the CUDA provider, and the CUDA libraries that the provider needs. The main process
//     never loads them. [Probe] loads them in a child process and returns a report.
//  2. [NewOpener] returns the [pool.Opener] of this runtime. Open("cpu") starts one child process
//     for each slot, by default one for each CPU. Open("cuda:<n>") starts one child process that
//     sees only that device. Before it is used, each child process loads the library and runs a
//     model of 208 bytes, the canary. A child process is the same binary: main passes [Kinds] to
//     subprocess.Main.
//  3. Load makes every child process of the device load a model, which becomes a [Session], and
//     returns the description of the model. On a card at least one node must run there, and the
//     child process runs every size of batch once (warm.go), so that no sample waits for cuDNN's
//     choices or for a growing arena. A child process that starts later loads a model when it first
//     runs the model; the time of this load does not count towards the deadline of the run.
//  4. Run writes a batch into the memory that is shared with a child process. The session of the
//     child process binds the batch in place, runs it, reduces the outputs if requested, and
//     returns them. At the deadline the session ends the run; if the run does not end, the process
//     is killed. A model with an Embed is a [Language] instead: a batch of prompts runs through its
//     decoder once, or once for every generated token, only in the child process.
//  5. Errors wrap the sentinels of internal/infer. A process that died, hung, or is damaged (a
//     permanent CUDA error, NaN in the outputs) is replaced. Its batch is run once more in another
//     process (after a hang, the pool runs its items one by one), and then fails. A card whose
//     child processes failed 5 times within 10 minutes is put into quarantine, for 30 s at first
//     and up to 5 min. [Opener.Stats] and the errors of refused batches contain the reason and the
//     end of the quarantine.
//  6. Close ends the child processes.
//
// Only runtime.go, session.go, introspect.go, half.go, placement.go and call.go use ONNX Runtime.
// All sessions of a card are opened, run and closed on one thread of its child process. A batch of
// a plain model goes through run.go (and foresee.go, which avoids a copy); language.go, prompt.go,
// prefill.go and greedy.go are built on them. The package also compiles without cgo; opening
// anything then returns an error.
package ort
