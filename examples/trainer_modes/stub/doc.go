// Package stub is a reward service with very low cost: it answers after the time that each sample
// requests, and leaves the CPUs to the code that is measured.
//
// Each connection has a goroutine. A request is read completely; its wait starts then. The request
// is that of slime's rm_url, which the scorer http sends with protocol slime: {"prompt",
// "response", "label"}. The label is the sample's ground truth, a [Truth]: the time to wait, and
// whether to fail. After the wait the answer is a JSON number, the [Score] of the response. The
// connection is kept for further requests, until the client closes it or Close is called.
//
// The package implements by hand only the necessary part of HTTP/1.1: requests with a
// Content-Length, one after another. BenchmarkStub measures the cost of a call, in comparison with
// the server of net/http.
package stub
