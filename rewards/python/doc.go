// Package python runs reward functions that users write in Python, in child
// processes that it starts, watches and replaces.
//
// The life of it, in the order a reader meets it:
//
//  1. A profile's path names a file or a module (my_reward.py, pkg://module);
//     [Functions] makes a [Scorer] from it. Nothing runs yet.
//  2. Warm starts the first host: `python3 -` with the text of host.py on standard
//     input, a socket as descriptor 3, a process group and resource limits of its
//     own. The host imports the module and answers what it found: a plain function
//     takes one call at a time in each host, an async one many calls in one. Then
//     the other hosts start. A function that cannot be imported fails Warm with
//     the traceback.
//  3. Score sends the sample as one frame (JSON and raw tensors, never pickle) to
//     the host with the fewest calls and waits for the answer.
//     The post_process_scores of a class is called in the same way with the scores of
//     a finished group ([Scorer.PostProcess]).
//  4. A call that is silent at its deadline fails with [rewards.Timeout] and its
//     host's process group is killed; of an async host only if it does not answer
//     to being cancelled either, or if it blocks the event loop; the other calls of
//     that host are sent to another. A host that dies fails the call it held alone
//     with [rewards.Crashed]; of several calls none is known to be guilty, so each
//     is tried once more with a host to itself.
//  5. A dead host is replaced, after a pause that doubles while starts fail. While
//     none starts, calls fail with [rewards.Unavailable] and the reason.
//  6. Close kills the hosts and returns when no process and no goroutine is left.
//
// This isolates faults: crashes, hangs, leaks, wrong types. It does not isolate
// hostile authors: the code runs with the rights and the environment of the
// server, and a process it starts in a session of its own survives it.
//
// One goroutine owns each host: it starts the process, reads its answers and reaps
// it. A [conn] is one life of a host. Processes need Linux.
package python
