package rewards

import (
	"fmt"
	"runtime/debug"
)

// Guard calls do, and makes of a panic an error of class Panicked with the beginning of
// the stack. The Manager guards the goroutine that calls a scorer; one that a scorer
// starts itself it must guard itself, for a panic there would end the process.
func Guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s\n%s", Panicked, clip(fmt.Sprint(p), maxMessage/2), clip(string(debug.Stack()), maxMessage/2))
		}
	}()
	return do()
}
