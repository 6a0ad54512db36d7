// Package engines starts and supervises servers of models (vLLM, SGLang, transformers serve), which are not part of this
// project.
//
// The life of a server, in the order a reader meets it:
//
//  1. Command makes the command line of a [Kind]: model, name, port, cards.
//  2. [New] takes the configuration of one engine, which is a number of equal servers, and [Engine.Start] gives each of them one
//     goroutine, its owner (own). Each has an address of its own on the loopback interface, which stays the same as long as
//     nobody else takes its port; [Engine.URLs] has them all from the start, and whoever asks them finds out by itself which of
//     them answer.
//  3. The owner starts the command under a keeper (subprocess.KeepCommand), so that nothing that it has started outlives this
//     process, and copies what it says into a log of two files. Until the server answers the health route and the canary it is
//     starting; where that takes longer than StartTimeout, or the command ends, it is started again after a pause that doubles.
//  4. A server that is ready is asked for its health again and again; one that is silent three times in a row, or that somebody
//     calls suspect ([Engine.Suspect]) and that does not answer the canary then, is ended and started again.
//  5. A canary that says that the engine cannot do what it is asked for ([ErrUnable]) ends the attempts: starting it again
//     would change nothing.
//  6. [Engine.Stop] ends all: SIGTERM, and SIGKILL after StopTimeout. No process and no goroutine is left when it returns.
//
// States change through one table ([next]); who waits for a change of state has it from [Engine.Changed].
package engines
