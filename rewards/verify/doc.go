// Package verify has the tools that look at a sample before it is scored, as
// RL-Factory's verify_tool does: a service that is asked over HTTP, a SandboxFusion
// server that runs the response's code, a program on this machine.
//
// The life of a verification: [New] builds a verifier from its options, without
// connecting or starting anything. apply runs the verifiers of a reward at once on a
// copy of the sample that shares no byte with it, and returns the sample with what
// they found in extra_info, under verified_results; a field of that name that came
// with the sample is dropped before anybody sees it. A verifier that fails says so
// there, with class and message; the failure of a required one is the sample's.
//
// A program lives from the start of its process until nothing of it is left: it has
// a session, a folder and limits of its own, gets the sample only when the limits
// stand, and is killed, with all that it started, when its time is up, when it says
// too much, or when it has answered. That keeps its faults to itself; it does not
// hold an author who means harm, for whom sandbox_fusion is there.
package verify
