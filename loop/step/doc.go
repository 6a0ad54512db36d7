// Package step implements the book of steps: what clients have declared of each step, which samples
// have arrived, which samples have a result, and which results were handed out to a trainer. The
// book also limits how long these are kept.
//
// The life of a step: a step is open while samples arrive and are scored. It is over when all
// declared samples have arrived and have a result, or at the step's deadline, which ends all
// samples in flight. It is forgotten when its rows are too old or too many; a trainer that then
// fetches it gets an error. It is dropped when 64 later steps of its run have begun, when the run
// starts again, or when the run is no longer used.
//
// Every sample that arrives over a websocket has a Row. The rows of a prompt group are handed out
// together, once: when the trainer fetches the next chunk and enough groups are complete, or when
// the step is over. A chunk keeps its rows, so that a trainer can fetch it again after a lost
// connection.
//
// The package has no goroutines, clocks or I/O. A Book and all its results are guarded by the
// gateway's mutex. The methods of a Book return Events, which the gateway must handle before it
// calls another method.
package step
