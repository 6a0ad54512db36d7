// Package compat implements the protocols in which clients of other systems request scores:
// flow_grpo's pickles, UniRL's /score, verl-omni's /latent, OpenRLHF's /get_reward, Flow-Factory's
// /compute and slime's /rm. Each protocol is a row of the table in table.go and a file with its
// reader, which has the name of the system.
//
// The package server serves the table and depends on no individual protocol: routes, the form of
// refusals, and the list of protocols come from the rows. A request is handled in these steps:
//
//  1. The server finds the row by the path (Find), and reads the body within the row's limit
//     (Form.Bounds).
//  2. Protocol.Read makes samples of the body: a Batch of Plans.
//  3. The server submits the samples to the gateway and waits for their results.
//  4. Batch.Answer makes the Reply from the results. A Fault from Read or Answer is written in the
//     row's Form.
//
// A protocol does not depend on connections, tokens or the gateway. The status code for a sample
// without a score follows from the class of the failure (statusOf), because clients retry by status
// code.
package compat
