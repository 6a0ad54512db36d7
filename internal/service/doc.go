// Package service is what the parts that ask an HTTP service of the user's have in
// common, the scorers of rewards/remote and the tools of rewards/verify: how the options
// name its addresses, how options are read so that every wrong one is named, how a
// request's texts are cut at their placeholders (Cut), how these name what stands in a
// sample (Source), and how what it answers is quoted.
//
// A scorer's options embed Addresses. Decode fills them, Validate puts what is wrong into
// the Faults of the whole, and Upstream asks for the endpoints, which connects to nobody.
package service
