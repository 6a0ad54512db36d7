package client

import "time"

// SetAnswerGrace makes the client wait for answers no longer than this beyond their wait.
func (c *Client) SetAnswerGrace(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grace = d
}
