//go:build !unix

package pickle_test

import "time"

// cpuTime is the time on the clock where no processor time is to be had.
func cpuTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
