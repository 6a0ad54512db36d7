// Package stub is a reward service that costs next to nothing: it answers as slowly as
// each sample asks for, and leaves the cores to what is being measured.
//
// The life of a call: a connection is accepted and gets a goroutine. A request is read
// whole; its clock starts then. It is that of slime's rm_url, which the scorer http
// speaks as protocol slime: {"prompt", "response", "label"}, and the label, which is the
// sample's ground truth, is a [Truth]: how long to wait, and whether to fail. After the
// wait the answer is a JSON number, [Score] of the response. The connection is kept for
// the next request, until its client hangs up or Close.
//
// It speaks just enough HTTP/1.1 for that, by hand: requests with a Content-Length, one
// after the other. BenchmarkStub has what a call costs, beside net/http's server.
package stub
