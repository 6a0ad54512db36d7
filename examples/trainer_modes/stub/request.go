package stub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Bounds of a request. Those of the trainer have about 500 bytes.
const (
	maxHeader = 8 << 10
	maxBody   = 64 << 10
)

// refusal is a request that is answered with a status and ends its connection, because
// where the next one begins is not known.
type refusal struct {
	status int
	why    string
}

func (r *refusal) Error() string { return r.why }

// request finds the first request in data: its body, and how long it is as a whole. An
// n of 0 without an error says that more must be read.
func request(data []byte) (body []byte, n int, err error) {
	end := bytes.Index(data, []byte("\r\n\r\n"))
	if end < 0 {
		if len(data) > maxHeader {
			return nil, 0, &refusal{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("a header of more than %d bytes", maxHeader)}
		}
		return nil, 0, nil
	}
	length, err := bodyLength(data[:end])
	if err != nil {
		return nil, 0, err
	}
	n = end + len("\r\n\r\n") + length
	if len(data) < n {
		return nil, 0, nil
	}
	return data[n-length : n], n, nil
}

// bodyLength reads the lines of a header.
func bodyLength(header []byte) (int, error) {
	first, rest, _ := bytes.Cut(header, []byte("\r\n"))
	if !bytes.HasPrefix(first, []byte("POST ")) || !bytes.HasSuffix(first, []byte(" HTTP/1.1")) {
		return 0, &refusal{http.StatusMethodNotAllowed, "want POST and HTTP/1.1"}
	}
	length := -1
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		// Only two names matter, and their lengths tell them from all others.
		switch {
		case len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")):
			v, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil || v < 0 || length >= 0 {
				return 0, &refusal{http.StatusBadRequest, "Content-Length is not a length, or is given twice"}
			}
			length = v
		case len(name) == len("Transfer-Encoding") && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return 0, &refusal{http.StatusLengthRequired, "want a Content-Length instead of a Transfer-Encoding"}
		}
	}
	switch {
	case length < 0:
		return 0, &refusal{http.StatusLengthRequired, "want a Content-Length"}
	case length > maxBody:
		return 0, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("a body of more than %d bytes", maxBody)}
	}
	return length, nil
}

// call is what a body asks.
type call struct {
	Response string `json:"response"`
	Label    Truth  `json:"label"`
}

func parseCall(body []byte) (call, error) {
	if c, ok := plainCall(body); ok {
		return c, c.Label.Validate()
	}
	var c call
	if err := json.Unmarshal(body, &c); err != nil {
		return c, errors.New("the body is not a JSON object with a response and a label such as {\"wait_ms\": 100}: " + err.Error())
	}
	return c, c.Label.Validate()
}

// plainCall reads the one form that nearly all calls have. Any other is left to
// encoding/json, which takes 5 µs for it, a seventh of a call.
func plainCall(body []byte) (call, bool) {
	rest, ok1 := bytes.CutPrefix(body, []byte(`{"prompt":"`))
	prompt, rest, ok2 := bytes.Cut(rest, []byte(`","response":"`))
	response, rest, ok3 := bytes.Cut(rest, []byte(`","label":{"wait_ms":`))
	wait, ok4 := bytes.CutSuffix(rest, []byte(`}}`))
	if !ok1 || !ok2 || !ok3 || !ok4 || bytes.ContainsAny(prompt, `"\`) || bytes.ContainsAny(response, `"\`) {
		return call{}, false
	}
	ms, err := strconv.ParseFloat(string(wait), 64)
	return call{Response: string(response), Label: Truth{WaitMS: ms}}, err == nil
}

// answer writes the whole answer to c into b[:0].
func (c *call) answer(b []byte) []byte {
	if c.Label.Status != 0 {
		return failure(b, c.Label.Status, "the label asked for it")
	}
	v, err := Score(c.Response)
	if err != nil {
		return failure(b, http.StatusBadRequest, err.Error())
	}
	var number [32]byte
	return reply(b, http.StatusOK, strconv.AppendFloat(number[:0], v, 'g', -1, 64))
}

func failure(b []byte, status int, why string) []byte {
	return reply(b, status, []byte(`{"error": `+strconv.QuoteToASCII(why)+"}"))
}

func reply(b []byte, status int, body []byte) []byte {
	if status == http.StatusOK {
		b = append(b[:0], "HTTP/1.1 200 OK"...)
	} else {
		b = fmt.Appendf(b[:0], "HTTP/1.1 %d %s", status, http.StatusText(status))
	}
	b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}
