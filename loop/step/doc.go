// Package step is the book of steps: what clients have declared of each step, which of its
// samples have come, which have their result, what of them was handed out to a trainer, and
// what is kept of it for how long.
//
// The life of a step: open, while samples come and are scored; over, once everything
// that was declared has come and has its result, or at the step's deadline, which ends
// whatever is still in flight; forgotten, when its rows are too old or too many, after
// which a trainer that asks is told so; dropped, when 64 later steps of its run have begun,
// when the run begins anew or when it is no longer used.
//
// Every sample that came over a websocket has a Row; the rows of a prompt group make a unit
// that is handed out whole, once: when the trainer asks for the next chunk and enough groups
// are complete, or when the step is over and there will be no more. A chunk keeps its rows,
// so that a trainer whose connection broke asks for it again.
//
// Nothing here has a goroutine, a clock or I/O. A Book and all that it hands out are guarded
// by the gateway's mutex; its methods return Events, which the gateway has to act on before
// it calls another one.
package step
