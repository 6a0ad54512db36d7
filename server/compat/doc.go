// Package compat implements the protocols in which clients of other systems request scores:
// flow_grpo's pickles, UniRL's /score, verl-omni's /latent, OpenRLHF's /get_reward, Flow-Factory's
// /compute and slime's /rm. Each is a row of the table in table.go, and a file with its reader,
// named after the system.
//
// The package server serves the table and knows no protocol by name: routes, the form of
// refusals, and the list of what there is come from the rows. A request goes this way:
//
//  1. server finds the row by the path (Find), and reads the body within the row's
//     bounds (Protocol.Bounds).
//  2. Protocol.Read makes samples of the body: a Batch of Plans.
//  3. server submits them to the gateway and waits for their results.
//  4. Batch.Answer makes the Reply of the results. A Fault from Read or Answer is
//     written in the row's Form.
//
// A protocol knows nothing of connections, tokens and the gateway. What a client is told
// when a sample has no score follows from the class of the failure (StatusOf), because
// clients retry by status code.
package compat
