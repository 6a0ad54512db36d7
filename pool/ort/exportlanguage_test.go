//go:build cgo

package ort

// CacheBytes is what a token of each of so many items takes in the cache.
func CacheBytes(l *Language, batch int) int {
	return int(l.ports.bytes(batch, 1, 0, 0) - l.ports.bytes(batch, 0, 0, 0) - int64(batch*l.ports.width*4))
}

// HeldBytes is the memory that a model keeps for later runs.
func HeldBytes(l *Language) int {
	l.decoder.buffers.mu.Lock()
	defer l.decoder.buffers.mu.Unlock()
	return l.decoder.buffers.held
}

// Fits reports whether the caches and the logits of a batch are tensors that can be made.
func Fits(l *Language, batch, tokens, logits int) bool { return l.ports.fits(batch, tokens, logits) }
