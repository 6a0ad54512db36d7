package client

import "time"

// SetAnswerGrace makes the client wait for answers no longer than this beyond their wait.
func (c *Client) SetAnswerGrace(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grace = d
}

// Queued is how many samples wait to be sent.
func (c *Client) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}
