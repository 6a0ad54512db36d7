// Package payload brings payloads from a gateway to workers in other processes and their
// results back, over websockets with the sub-protocol rewardloop.claim.v1. Server is the
// gateway's side; Client is a workers.Gateway on the worker's. docs/claim.md is the
// specification.
//
// The life of a claim:
//
//  1. The gateway's tickets carry an address and a token, made by Key.Sign for one attempt
//     and for a while. A worker that has taken a ticket calls Client.Claim with it.
//  2. The client keeps up to two connections, its connections, to a gateway: one for payloads up to
//     1 MiB and for results, one for larger payloads. A connection is dialled when it is first
//     needed, with the token of the claim that needs it, and again when it breaks while
//     there is something to do for it. One goroutine owns a connection: it dials, and reads.
//  3. The server checks the token once more, asks the loop for the frames and announces
//     them: their lengths and checksums. A goroutine of each connection, the pusher, sends
//     what is due in turns of 256 KiB, straight from the frames' buffers, so that a picture
//     never waits for a video.
//  4. The client's reader fills one buffer of exact size from the socket. Claim checks
//     length and CRC-32C and says got; until then the server keeps the frames, so that a
//     claim whose connection breaks is asked again without costing the sample an attempt.
//  5. The claim is open until its result was taken or the worker has released the frames.
//     Client.Finish hands the result over with the ticket's token, and again over the next
//     connection, until the gateway has said ok.
//  6. A worker process whose last connection has ended and that does not come back within
//     Config.LostAfter is lost: the server drops its claims and tells who had some.
package payload
