package pickle

// For the tests of the package alone.
var (
	ErrCycle     = errCycle
	ErrEncode    = errEncode
	ErrForbidden = errForbidden
	ErrPickle    = errPickle
	ErrType      = errType
)
