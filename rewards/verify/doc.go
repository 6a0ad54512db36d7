// Package verify contains the tools that check a sample before it is scored, as RL-Factory's
// verify_tool does: an HTTP service, a SandboxFusion server that runs the response's code, or a
// program on this machine.
//
// The life of a verification: [New] builds a verifier from its options, without connecting or
// starting anything. [Tools.Prepare] runs the verifiers of a reward at the same time on a copy of
// the sample that shares no bytes with it, and returns the sample with the results in extra_info,
// under verified_results. A field of that name in the original sample is dropped first. The result
// of a failed verifier contains the class and the message; the failure of a required verifier fails
// the sample.
//
// A program runs from the start of its process until all its processes have ended. It has its own
// session, folder and limits, and gets the sample only after the limits are set. The program, with
// all processes that it started, is killed when its timeout passes, when its output is too long, or
// when it has answered. This contains the faults of a program, but not malicious code, for which
// sandbox_fusion is intended.
package verify
