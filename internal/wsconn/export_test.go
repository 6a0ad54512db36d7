package wsconn

// Subprotocol returns the sub-protocol both sides agreed on.
func (c *Conn) Subprotocol() string { return c.ws.Subprotocol() }

// Waiting returns how many binary messages the writer has not begun.
func (c *Conn) Waiting() int {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return len(c.out.binaries)
}

// Begun reports whether the writer is at work on a binary message.
func (c *Conn) Begun() bool { return c.writing.Load() }

// Started reports whether Run was called.
func (c *Conn) Started() bool { return c.running.Load() }

// OnPing calls f after every ping that was handled. It must be set before Run.
func (c *Conn) OnPing(f func()) {
	handle := c.ws.PingHandler()
	c.ws.SetPingHandler(func(data string) error {
		defer f()
		return handle(data)
	})
}

// For the tests of the package alone.
const (
	CloseInternal = closeInternal
	CloseNotUTF8  = closeNotUTF8
	CloseProtocol = closeProtocol
	CloseTooBig   = closeTooBig
)

var (
	ErrBusy        = errBusy
	ErrClosed      = errClosed
	ErrHandshake   = errHandshake
	ErrLost        = errLost
	ErrNotUTF8     = errNotUTF8
	ErrSlowMessage = errSlowMessage
	ErrSlowPeer    = errSlowPeer
	ErrTooBig      = errTooBig
)
