// Package python runs users' Python reward functions in child processes, which it starts, monitors
// and replaces.
//
// The life of a function:
//
//  1. The path of a profile's component is a file or a module (my_reward.py, pkg://module).
//     [Functions] creates a [Scorer] from it and starts nothing. Inspect, in the Spec of Functions,
//     imports the file in a separate process and returns the parameters of the function, to check a
//     configuration.
//  2. Warm starts the first process: `python3 -` with the text of process.py on standard input, a
//     socket as descriptor 3, and its own process group and limits. The process forks and stays as
//     the keeper of its child, and cleans up after the child. The child imports the module and
//     reports the function: a plain function runs one call at a time, or several in threads; an
//     async function runs many. If the function cannot be imported, Warm fails with the traceback.
//     [Scorer.TryKnown] then calls the function with known samples. If a module is missing for all
//     of them, the module becomes the Dependency of the function.
//  3. Score waits for a place in the process with the fewest calls. If all places are taken, the
//     tenants take turns (package fair), and another process starts: each function has one process
//     of its own, and the functions share the other processes by the weights of the waiting runs.
//     The component's timeout starts when the call gets its place. Then the pictures are decoded,
//     and the sample is sent as one frame (JSON and raw tensors, never pickle). The method
//     post_process_scores of a class is called in the same way, with the scores of a finished group
//     ([Scorer.PostProcess]).
//  4. A place is free again when the process has answered or ended, whether or not the caller still
//     waits. Every call is answered exactly once, even if it is cancelled before it begins.
//  5. A call without an answer at its deadline fails with [rewards.Timeout], and its process is
//     killed. The process of an async function is killed only if the call does not end after
//     cancellation, or if it blocks the event loop; the other calls of that process are sent to
//     another process. If a process crashes or exceeds its memory, its calls run once more in a
//     trial: in halves, each half in a new process, until the call that ends its process is alone.
//     That call fails with [rewards.Crashed].
//  6. A process that ended is replaced, after a pause that doubles while starts fail or calls only
//     end their processes. While no process starts, calls fail with [rewards.Unavailable] and the
//     reason. Every error has its blame.
//  7. Shared processes end when they are idle, and are given to another function that has fewer
//     processes in proportion to the weights of its runs, and waiting calls (share.go). Close kills
//     all processes, and returns when no process and no goroutine is left.
//
// A function with a Signature that is not called with batches is a [GroupFunction]: its calls
// contain a whole prompt group, and are executed like those of a Scorer or a Model. forms.py calls
// the function in the form of its Signature.
//
// A component with a [Placement] is a [Model] instead: package pool makes batches of its samples,
// and a [Runner] for each device runs the batches in processes of package subprocess, which execute
// model.py.
//
// Processes isolate faults: crashes, hangs, leaks, wrong types, and leftover files and processes.
// They do not isolate malicious code, because the code runs with the permissions of the server.
//
// One goroutine owns each process: it starts the process, reads its answers and reaps it. A [conn]
// is the connection to one process; one goroutine writes to it, and one monitors the memory of the
// process. The package needs Linux.
package python
