// Package engines starts and supervises model servers (vLLM, SGLang, transformers serve), which are
// not part of this project.
//
// The life of a server:
//
//  1. Command builds the command line of a [Kind]: model, name, port and cards.
//  2. [New] takes the configuration of one engine, which is a number of equal servers.
//     [Engine.Start] starts one goroutine for each server, its owner (own). Each server has its own
//     address on the loopback interface, which does not change unless another program takes its
//     port. [Engine.URLs] returns all addresses from the start; callers must find out themselves
//     which servers answer.
//  3. The owner starts the command under a keeper (subprocess.KeepCommand), so that none of its
//     processes outlives this process, and copies its output into a log of two files. The server is
//     starting until it answers the health route and the canary. If this takes longer than
//     StartTimeout, or if the command ends, the server is restarted after a pause that doubles.
//  4. The health of a ready server is checked periodically. A server is ended and restarted if it
//     misses three checks in a row, or if a caller reports it ([Engine.Suspect]) and the server
//     then does not answer the canary.
//  5. If the canary reports that the engine cannot provide the required features ([ErrUnable]), the
//     server is not restarted, because a restart would not help.
//  6. [Engine.Stop] ends all servers: SIGTERM, and SIGKILL after StopTimeout. When it returns, no
//     process and no goroutine is left.
//
// All changes of state follow one table ([next]). [Engine.Changed] reports changes of state.
package engines
