package ppocr

import "sync"

// scratch keeps buffers between frames: at 736x736 a detector's input has 6.5 MB,
// which would otherwise be cleared and collected each time. Contents are whatever
// they were. A buffer whose Infer failed is not put back: whoever runs the model
// may still be reading it.
type scratch struct {
	floatPool sync.Pool // *[]float32
	bytePool  sync.Pool // *[]byte
}

func (s *scratch) floats(n int) []float32 {
	if p, ok := s.floatPool.Get().(*[]float32); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]float32, n)
}

func (s *scratch) putFloats(b []float32) { s.floatPool.Put(&b) }

func (s *scratch) bytes(n int) []byte {
	if p, ok := s.bytePool.Get().(*[]byte); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]byte, n)
}

func (s *scratch) putBytes(b []byte) { s.bytePool.Put(&b) }
