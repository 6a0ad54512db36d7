package infer

import (
	"regexp"
)

// The devices of a model beside cuda:<n>, which is the nth card that the process sees.
const (
	CPU = "cpu"
	// Pool is every card of the process's reward pool.
	Pool = "cuda"
)

// DeviceForm says for people what names a device.
const DeviceForm = "cpu, cuda (every card of the reward pool) or cuda:<n>"

var deviceForm = regexp.MustCompile(`^(cpu|cuda|cuda:(0|[1-9][0-9]{0,2}))$`)

// ValidDevice reports whether a text names a device. Each has one name only, because models
// are shared by it.
func ValidDevice(device string) bool { return deviceForm.MatchString(device) }
