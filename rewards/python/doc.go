// Package python runs users' Python reward functions in child processes that it starts, watches and
// replaces.
//
// The life of it, in the order a reader meets it:
//
//  1. A profile's path names a file or a module (my_reward.py, pkg://module);
//     [Functions] makes a [Scorer] from it. Nothing runs yet.
//     Inspect, of its Spec, imports the file in a process of its own and says what the
//     function takes, for whoever checks a configuration.
//  2. Warm starts the first process: `python3 -` with the text of process.py on standard
//     input, a socket as descriptor 3, a process group and limits of its own. It forks
//     the process and stays behind as its keeper, which ends what the process leaves behind.
//     The process imports the module and answers what it found: a plain function takes one
//     call at a time, or several in threads, an async one many. A function that cannot
//     be imported fails Warm with the traceback.
//     [Scorer.TryKnown] then calls the function with known samples; one that lacks a module
//     for all of them says so as its Dependency.
//  3. Score waits for a place in the process with the fewest calls. Where all are taken
//     the tenants take turns (package fair), and another process starts: each function has
//     one of its own, and they share the others by the weights of the runs that wait. The
//     component's time begins with the place. Then the pictures are decoded, and the sample is
//     sent as one frame (JSON and raw tensors, never pickle). The post_process_scores of a
//     class is called in the same way with the scores of a finished group
//     ([Scorer.PostProcess]).
//  4. A place goes back when the process has answered or has died, whoever still waits;
//     every call is answered once, also one that is cancelled before it began.
//  5. A call that is silent at its deadline fails with [rewards.Timeout] and its process
//     is killed; of an async function only if the call does not answer to being cancelled
//     either, or if it blocks the event loop; the other calls of that process are sent to
//     another. The calls that a process held when it died by itself, or used too much
//     memory, are put on trial: they run once more, in halves, each in a fresh process,
//     until the one that ends its process is alone. It fails with [rewards.Crashed].
//  6. A dead process is replaced, after a pause that doubles while starts fail or calls do
//     nothing but end their processes. While none starts, calls fail with
//     [rewards.Unavailable] and the reason. Every error has its blame.
//  7. Spare processes end when they are idle, and go to another function when that has fewer for
//     its runs' weights and calls that wait (share.go). Close kills all, and returns when no process
//     and no goroutine is left.
//
// A function with a Signature that is not called with batches is a [GroupFunction]: its calls hold a whole
// prompt group, and go the way of a Scorer's or of a Model's. What calls it in its form is forms.py.
//
// An entry with a [Placement] is a [Model] instead: package pool makes batches of its samples, and a
// [Runner] for each of its devices runs them in processes of package subprocess, whose text is model.py.
//
// This isolates faults: crashes, hangs, leaks, wrong types, what is left behind. It does
// not isolate hostile authors: the code runs with the rights of the server.
//
// One goroutine owns each process: it starts it, reads its answers and reaps it. A [conn]
// is one life of a process; one goroutine writes for it, one watches its memory. Processes
// need Linux.
package python
